//! What is stored of one policy and key, and what each operation does to it.

use std::collections::VecDeque;
use std::sync::Arc;

use compact_str::CompactString;
use smallvec::SmallVec;

use super::super::{Answer, Attempt, Entry, Op, Views};
use crate::algorithm::{MAX, Rule, State};
use crate::plan::{Plan, Tag};

/// What is stored of one policy and key.
pub(super) struct Usage {
    pub(super) identity: u128,
    pub(super) key: CompactString,
    pub(super) hash: u64,
    pub(super) shape: Arc<[Tag]>,
    pub(super) states: SmallVec<[State; 1]>,
    pub(super) blocked_until: u64,
    /// Until when a check that was refused would be refused again.
    pub(super) denies_until: u64,
    /// When everything above has lost its meaning.
    pub(super) ends: u64,
    journal: Option<Box<Journal>>,
}

struct Journal {
    /// Oldest first.
    attempts: VecDeque<Attempt>,
    ends: u64,
}

/// The parts of a usage that calls change.
pub(super) type Kept = (Arc<[Tag]>, SmallVec<[State; 1]>, u64);

impl Usage {
    pub(super) fn new(entry: &Entry<'_>, hash: u64) -> Self {
        Self {
            identity: entry.plan.identity,
            key: entry.key.into(),
            hash,
            shape: Arc::clone(&entry.plan.shape),
            states: entry.plan.rules.iter().map(Rule::fresh).collect(),
            blocked_until: 0,
            denies_until: 0,
            ends: 0,
            journal: None,
        }
    }

    #[inline]
    pub(super) fn is_of(&self, entry: &Entry<'_>) -> bool {
        self.identity == entry.plan.identity && self.key == entry.key
    }

    /// Takes over what another version of the policy left, limit by limit.
    #[inline]
    pub(super) fn adopt(&mut self, plan: &Plan, now: u64) {
        if !Arc::ptr_eq(&self.shape, &plan.shape) {
            self.adopt_slowly(plan, now);
        }
    }

    #[cold]
    pub(super) fn adopt_slowly(&mut self, plan: &Plan, now: u64) {
        if self.shape != plan.shape {
            let mut old: Vec<(&Tag, Option<State>)> =
                self.shape.iter().zip(self.states.drain(..)).map(|(tag, state)| (tag, Some(state))).collect();
            let mut states = SmallVec::new();
            for (index, (tag, rule)) in plan.shape.iter().zip(&plan.rules).enumerate() {
                let same =
                    old.iter_mut().find(|(other, state)| state.is_some() && other.0 == tag.0 && other.1 == tag.1);
                states.push(match same {
                    Some((other, state)) => match state.take() {
                        Some(mut state) => {
                            if other.2 != tag.2 {
                                let period = plan.policy.limits()[index].period().micros();
                                rule.refit(&mut state, (period, other.2), now);
                            }
                            state
                        }
                        None => rule.fresh(),
                    },
                    None => rule.fresh(),
                });
            }
            self.states = states;
        }
        self.shape = Arc::clone(&plan.shape);
    }

    #[inline]
    pub(super) fn admits(&self, entry: &Entry<'_>, now: u64) -> bool {
        let cost = entry.op.cost();
        self.blocked_until <= now
            && entry.plan.rules.iter().zip(&self.states).all(|(rule, state)| rule.admits(state, now, cost))
    }

    #[inline(always)]
    pub(super) fn try_charge(&mut self, entry: &Entry<'_>, now: u64) -> bool {
        if let ([rule], [state], Op::Check { cost, hold, .. }, 0) =
            (&*entry.plan.rules, &mut *self.states, &entry.op, self.blocked_until)
        {
            return rule.try_add(state, now, *cost, *hold);
        }
        let admits = self.admits(entry, now);
        if admits {
            self.charge(entry, now);
        }
        admits
    }

    #[inline]
    pub(super) fn charge(&mut self, entry: &Entry<'_>, now: u64) {
        let (cost, hold) = match entry.op {
            Op::Check { cost, hold, .. } => (cost, hold),
            Op::Charge { cost } => (cost, 0),
            _ => return,
        };
        if matches!(entry.op, Op::Check { .. }) && self.blocked_until <= now {
            self.blocked_until = 0;
        }
        for (rule, state) in entry.plan.rules.iter().zip(&mut self.states) {
            rule.add(state, now, cost, hold);
        }
    }

    /// The limits that refuse a check now, bit by bit.
    #[cold]
    pub(super) fn refusing(&self, entry: &Entry<'_>, now: u64) -> u16 {
        let asked = entry.plan.rules.iter().zip(&self.states).enumerate();
        let refusing = asked.filter(|(_, (rule, state))| !rule.admits(state, now, entry.op.cost()));
        refusing.fold(0, |bits, (index, _)| bits | 1 << index)
    }

    /// What a denial changes: nothing, unless the policy says so. Says whether it did.
    pub(super) fn refuse(&mut self, entry: &Entry<'_>, now: u64) -> bool {
        let plan = entry.plan;
        let Op::Check { cost, hold, .. } = entry.op else { return false };
        if !plan.denial_writes {
            return false;
        }
        let options = plan.policy.options();
        let blocked = self.blocked_until > now;
        let mut changed = options.count_denied;
        for (rule, state) in plan.rules.iter().zip(&mut self.states) {
            if options.count_denied {
                rule.add(state, now, cost, hold);
            } else if !blocked {
                changed |= rule.birth(state, now);
            }
        }
        if let (false, Some(period)) = (blocked, options.block_for) {
            self.blocked_until = now + period.micros();
            changed = true;
        }
        changed
    }

    /// Remembers until when the refusal lasts.
    pub(super) fn denied(&mut self, answer: &Answer) {
        let moments = answer.views.iter().filter_map(|view| view.admits_at);
        self.denies_until = moments.fold(self.blocked_until, u64::max);
    }

    /// To be called after a change: what has lost its meaning is forgotten, as Redis forgets it.
    #[inline(always)]
    pub(super) fn renew(&mut self, plan: &Plan, now: u64) {
        self.ends = self.meaning(plan);
        if self.ends <= now {
            self.forget(&plan.rules);
        }
    }

    #[inline]
    fn meaning(&self, plan: &Plan) -> u64 {
        let states = plan.rules.iter().zip(&self.states);
        let ends = states.map(|(rule, state)| rule.ends(state)).fold(self.blocked_until, u64::max);
        if ends == 0 { 0 } else { ends + plan.grace }
    }

    /// Reads the usage as this policy does: what another version left, and when all is over, buckets that do not start
    /// full as never seen.
    pub(super) fn read(&mut self, plan: &Plan, now: u64) {
        self.adopt(plan, now);
        if plan.grace > 0 && self.meaning(plan) <= now {
            for (rule, state) in plan.rules.iter().zip(&mut self.states) {
                if rule.grace() > 0 {
                    *state = rule.fresh();
                }
            }
        }
    }

    #[cold]
    pub(super) fn forget(&mut self, rules: &[Rule]) {
        self.states = rules.iter().map(Rule::fresh).collect();
        (self.blocked_until, self.ends) = (0, 0);
    }

    pub(super) fn note(&mut self, entry: &Entry<'_>, now: u64, allowed: bool) {
        let most = entry.plan.policy.options().journal as usize;
        let Op::Check { cost, meta, .. } = &entry.op else { return };
        if most == 0 {
            return;
        }
        let journal = self.journal.get_or_insert_with(|| Box::new(Journal { attempts: Default::default(), ends: 0 }));
        journal.attempts.push_back(Attempt {
            at: now,
            allowed,
            cost: *cost,
            meta: meta.as_deref().map(<[u8]>::to_vec),
        });
        let surplus = journal.attempts.len().saturating_sub(most);
        journal.attempts.drain(..surplus);
        journal.ends = now + entry.plan.journal_life();
    }

    #[inline(always)]
    pub(super) fn apply(&mut self, entry: &Entry<'_>, now: u64) -> Answer {
        if !Arc::ptr_eq(&self.shape, &entry.plan.shape) || entry.plan.grace > 0 {
            return self.apply_to_other(entry, now);
        }
        self.apply_to_own(entry, now).0
    }

    /// Another version of the policy reads the state its way; only when it writes does its way stay.
    #[cold]
    pub(super) fn apply_to_other(&mut self, entry: &Entry<'_>, now: u64) -> Answer {
        let before = self.kept();
        self.read(entry.plan, now);
        let (answer, changed) = self.apply_to_own(entry, now);
        if !changed {
            self.restore(before);
        }
        answer
    }

    pub(super) fn kept(&self) -> Kept {
        (Arc::clone(&self.shape), self.states.clone(), self.blocked_until)
    }

    pub(super) fn restore(&mut self, kept: Kept) {
        (self.shape, self.states, self.blocked_until) = kept;
    }

    /// The answer, and whether the usage changed.
    #[inline(always)]
    pub(super) fn apply_to_own(&mut self, entry: &Entry<'_>, now: u64) -> (Answer, bool) {
        match &entry.op {
            Op::Check { cost, .. } => {
                let admits = self.try_charge(entry, now);
                let charges = !admits && entry.plan.policy.options().count_denied;
                let refused = charges.then(|| self.refusing(entry, now));
                let changed = admits || self.refuse(entry, now);
                if changed {
                    self.renew(entry.plan, now);
                }
                if entry.plan.policy.options().journal > 0 {
                    self.note(entry, now, admits);
                }
                let mut answer = self.answer(entry, now, admits, if admits { *cost } else { 0 });
                answer.refused = refused;
                if !admits {
                    self.denied(&answer);
                }
                (answer, changed)
            }
            Op::Peek { .. } => {
                let admits = self.admits(entry, now);
                (self.answer(entry, now, admits, 0), false)
            }
            op => {
                let applied = self.change(op, entry, now);
                let changed = applied && !matches!(op, Op::Journal);
                if changed {
                    self.renew(entry.plan, now);
                }
                let mut answer = self.answer(entry, now, applied, 0);
                if matches!(op, Op::Journal) {
                    let attempts = self.journal.iter().flat_map(|journal| journal.attempts.iter().rev());
                    let live = attempts.filter(|attempt| attempt.at + entry.plan.journal_life() > now);
                    answer.attempts = Some(Box::new(live.cloned().collect()));
                }
                (answer, changed)
            }
        }
    }

    /// Every operation that is neither a check nor a peek.
    pub(super) fn change(&mut self, op: &Op, entry: &Entry<'_>, now: u64) -> bool {
        let rules = entry.plan.rules.iter().zip(&mut self.states);
        match *op {
            Op::Charge { .. } => self.charge(entry, now),
            Op::Refund { cost } => rules.for_each(|(rule, state)| rule.take(state, now, cost)),
            Op::Block { micros } => self.blocked_until = if micros == 0 { 0 } else { (now + micros).min(MAX) },
            Op::Renew { hold } => {
                return rules.fold(false, |found, (rule, state)| rule.renew(state, now, hold) || found);
            }
            Op::Close { hold } => {
                return rules.fold(false, |found, (rule, state)| rule.close(state, now, hold) || found);
            }
            Op::Clear => {
                rules.for_each(|(rule, state)| *state = rule.fresh());
                self.blocked_until = 0;
            }
            Op::Journal | Op::Check { .. } | Op::Peek { .. } => {}
        }
        true
    }

    #[inline(always)]
    pub(super) fn answer(&self, entry: &Entry<'_>, now: u64, applied: bool, charged: u64) -> Answer {
        let cost = entry.op.cost();
        let view = |(rule, state): (&Rule, &State)| rule.view(state, now, cost, charged);
        let views = match (&*entry.plan.rules, &*self.states) {
            ([rule], [state]) => Views::from_buf([view((rule, state))]),
            (rules, states) => rules.iter().zip(states).map(view).collect(),
        };
        Answer { applied, now, blocked_until: self.blocked_until, views, ..Answer::default() }
    }

    pub(super) fn matters(&self, now: u64) -> bool {
        self.ends > now || self.journal.as_ref().is_some_and(|journal| journal.ends > now)
    }
}
