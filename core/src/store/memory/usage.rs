//! What is stored of one policy and key, and what each operation does to it.

use std::collections::VecDeque;
use std::sync::Arc;

use compact_str::CompactString;

use crate::algorithm::{Admitted, MAX_SAFE_INTEGER, Rule, State, View};
use crate::one_or_many::OneOrMany;
use crate::plan::{LimitTag, Plan, StateFormat};
use crate::store::request::{Answer, Attempt, Entry, Operation};

/// What is stored of one policy and key. Its size is what a store of many keys costs, in memory and in time.
pub(super) struct Usage {
    format: Arc<StateFormat>,
    key: CompactString,
    states: States,
    /// When states and block have lost their meaning.
    pub(super) ends: u64,
    rare: Option<Box<Rare>>,
    /// Until when a check that was refused would be refused again.
    denies_until: u64,
    pub(super) hash: u64,
}

const _: () = assert!(size_of::<Usage>() <= 96, "a usage has grown");

type States = OneOrMany<State>;

/// What few usages have.
#[derive(Default)]
struct Rare {
    blocked_until: u64,
    journal: Option<Journal>,
}

#[derive(Default)]
struct Journal {
    /// Oldest first.
    attempts: VecDeque<Attempt>,
    ends: u64,
}

/// The parts of a usage that calls change.
pub(super) type Kept = (Arc<StateFormat>, States, u64);

impl Usage {
    pub(super) fn new(entry: &Entry<'_>, hash: u64) -> Self {
        Self {
            format: Arc::clone(&entry.plan.format),
            key: entry.key.into(),
            states: entry.plan.rules.iter().map(Rule::fresh).collect(),
            ends: 0,
            rare: None,
            denies_until: 0,
            hash,
        }
    }

    #[inline]
    pub(super) fn is_of(&self, entry: &Entry<'_>) -> bool {
        let format = &entry.plan.format;
        (Arc::ptr_eq(&self.format, format) || self.format.identity == format.identity) && self.key == entry.key
    }

    #[inline]
    fn blocked_until(&self) -> u64 {
        self.rare.as_ref().map_or(0, |rare| rare.blocked_until)
    }

    fn block(&mut self, until: u64) {
        if until == self.blocked_until() {
            return;
        }
        self.rare.get_or_insert_default().blocked_until = until;
        if until == 0 && self.journal().is_none() {
            self.rare = None;
        }
    }

    /// Whether the key is denied, so that forgetting it would admit somebody.
    pub(super) fn denies(&self, now: u64) -> bool {
        self.denies_until.max(self.blocked_until()) > now
    }

    /// Takes over what another version of the policy left, limit by limit.
    #[inline]
    pub(super) fn adopt(&mut self, plan: &Plan, now: u64) {
        if !Arc::ptr_eq(&self.format, &plan.format) {
            self.adopt_slowly(plan, now);
        }
    }

    #[cold]
    pub(super) fn adopt_slowly(&mut self, plan: &Plan, now: u64) {
        if self.format.tags != plan.format.tags {
            let states = self.states.iter().cloned();
            let mut old: Vec<(&LimitTag, Option<State>)> =
                self.format.tags.iter().zip(states).map(|(tag, state)| (tag, Some(state))).collect();
            let limits = plan.format.tags.iter().zip(&plan.rules).zip(plan.policy.limits());
            let taken = limits.map(|((tag, rule), limit)| {
                let same = old.iter_mut().find(|(other, state)| state.is_some() && other.is_same_limit(tag));
                match same {
                    Some((other, state)) => match state.take() {
                        Some(mut state) => {
                            if other.bucket_count != tag.bucket_count {
                                rule.rescale(&mut state, (other.bucket_count, limit.period().micros()), now);
                            }
                            state
                        }
                        None => rule.fresh(),
                    },
                    None => rule.fresh(),
                }
            });
            self.states = taken.collect();
        }
        self.format = Arc::clone(&plan.format);
    }

    #[inline]
    pub(super) fn admits(&self, entry: &Entry<'_>, now: u64) -> bool {
        let cost = entry.operation.cost();
        self.blocked_until() <= now
            && entry.plan.rules.iter().zip(&self.states).all(|(rule, state)| rule.admits(state, now, cost))
    }

    fn try_charge(&mut self, entry: &Entry<'_>, now: u64) -> bool {
        let admits = self.admits(entry, now);
        if admits {
            self.charge(entry, now);
        }
        admits
    }

    #[inline]
    pub(super) fn charge(&mut self, entry: &Entry<'_>, now: u64) {
        let (cost, hold) = match entry.operation {
            Operation::Check { cost, hold, .. } => (cost, hold),
            Operation::Charge { cost } => (cost, 0),
            _ => return,
        };
        if matches!(entry.operation, Operation::Check { .. }) && self.blocked_until() <= now {
            self.block(0);
        }
        for (rule, state) in entry.plan.rules.iter().zip(&mut self.states) {
            rule.charge(state, now, cost, hold);
        }
    }

    /// The limits that refuse a check now, bit by bit.
    #[cold]
    pub(super) fn refusing(&self, entry: &Entry<'_>, now: u64) -> u16 {
        let asked = entry.plan.rules.iter().zip(&self.states).enumerate();
        let refusing = asked.filter(|(_, (rule, state))| !rule.admits(state, now, entry.operation.cost()));
        refusing.fold(0, |bits, (index, _)| bits | 1 << index)
    }

    /// What a denial changes: nothing, unless the policy says so. Says whether it did.
    pub(super) fn refuse(&mut self, entry: &Entry<'_>, now: u64) -> bool {
        let plan = entry.plan;
        let Operation::Check { cost, hold, .. } = entry.operation else { return false };
        if !plan.denial_writes {
            return false;
        }
        let options = plan.policy.options();
        let blocked = self.blocked_until() > now;
        let mut changed = options.count_denied;
        for (rule, state) in plan.rules.iter().zip(&mut self.states) {
            if options.count_denied {
                rule.charge(state, now, cost, hold);
            } else if !blocked {
                changed |= rule.start(state, now);
            }
        }
        if let (false, Some(period)) = (blocked, options.block_for) {
            self.block(now + period.micros());
            changed = true;
        }
        changed
    }

    /// Remembers until when the refusal lasts.
    pub(super) fn denied(&mut self, answer: &Answer) {
        let moments = answer.views.iter().filter_map(|view| view.admits_at);
        self.denies_until = moments.fold(self.blocked_until(), u64::max);
    }

    /// To be called after a change: what has lost its meaning is forgotten, as Redis forgets it.
    pub(super) fn renew(&mut self, plan: &Plan, now: u64) {
        self.ends = self.meaning(plan);
        if self.ends <= now {
            self.forget(&plan.rules);
        }
    }

    fn meaning(&self, plan: &Plan) -> u64 {
        let states = plan.rules.iter().zip(&self.states);
        let ends = states.map(|(rule, state)| rule.ends(state)).fold(self.blocked_until(), u64::max);
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
        self.block(0);
        self.ends = 0;
    }

    pub(super) fn note(&mut self, entry: &Entry<'_>, now: u64, allowed: bool) {
        let most = entry.plan.policy.options().journal as usize;
        let Operation::Check { cost, meta, .. } = &entry.operation else { return };
        if most == 0 {
            return;
        }
        let journal = self.rare.get_or_insert_default().journal.get_or_insert_default();
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

    pub(super) fn apply(&mut self, entry: &Entry<'_>, now: u64) -> Answer {
        if !Arc::ptr_eq(&self.format, &entry.plan.format) || entry.plan.grace > 0 {
            return self.apply_to_other(entry, now);
        }
        self.apply_to_own(entry, now).0
    }

    /// What nearly every call is, in one step: a check of one limit that admits it. `None` changed nothing.
    #[inline(always)]
    pub(super) fn pass(&mut self, entry: &Entry<'_>, now: u64) -> Option<View> {
        let plan = entry.plan;
        let (Operation::Check { cost, .. }, [rule], OneOrMany::One(state), None) =
            (&entry.operation, &*plan.rules, &mut self.states, &self.rare)
        else {
            return None;
        };
        if !Arc::ptr_eq(&self.format, &plan.format) || plan.grace > 0 || plan.policy.options().journal > 0 {
            return None;
        }
        let (meter, state) = rule.as_meter(state)?;
        let Admitted { ends, view } = meter.try_charge(state, now, *cost)?;
        // Later than now: a unit that was just charged has not drained.
        self.ends = ends;
        Some(view)
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

    fn journal(&self) -> Option<&Journal> {
        self.rare.as_ref()?.journal.as_ref()
    }

    pub(super) fn kept(&self) -> Kept {
        (Arc::clone(&self.format), self.states.clone(), self.blocked_until())
    }

    pub(super) fn restore(&mut self, kept: Kept) {
        let blocked_until;
        (self.format, self.states, blocked_until) = kept;
        self.block(blocked_until);
    }

    /// The answer, and whether the usage changed.
    pub(super) fn apply_to_own(&mut self, entry: &Entry<'_>, now: u64) -> (Answer, bool) {
        match &entry.operation {
            Operation::Check { cost, .. } => {
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
            Operation::Peek { .. } => {
                let admits = self.admits(entry, now);
                (self.answer(entry, now, admits, 0), false)
            }
            operation => {
                let applied = self.change(operation, entry, now);
                let changed = applied && !matches!(operation, Operation::Journal);
                if changed {
                    self.renew(entry.plan, now);
                }
                let mut answer = self.answer(entry, now, applied, 0);
                if matches!(operation, Operation::Journal) {
                    let attempts = self.journal().into_iter().flat_map(|journal| journal.attempts.iter().rev());
                    let live = attempts.filter(|attempt| attempt.at + entry.plan.journal_life() > now);
                    answer.attempts = Some(Box::new(live.cloned().collect()));
                }
                (answer, changed)
            }
        }
    }

    /// Every operation that is neither a check nor a peek.
    pub(super) fn change(&mut self, operation: &Operation, entry: &Entry<'_>, now: u64) -> bool {
        let rules = entry.plan.rules.iter().zip(&mut self.states);
        match *operation {
            Operation::Charge { .. } => self.charge(entry, now),
            Operation::Refund { cost } => rules.for_each(|(rule, state)| rule.refund(state, now, cost)),
            Operation::Block { micros } => {
                self.block(if micros == 0 { 0 } else { (now + micros).min(MAX_SAFE_INTEGER) })
            }
            Operation::Renew { hold } => {
                return rules.fold(false, |found, (rule, state)| rule.renew(state, now, hold) || found);
            }
            Operation::Close { hold } => {
                return rules.fold(false, |found, (rule, state)| rule.close(state, now, hold) || found);
            }
            Operation::Clear => {
                rules.for_each(|(rule, state)| *state = rule.fresh());
                self.block(0);
            }
            Operation::Journal | Operation::Check { .. } | Operation::Peek { .. } => {}
        }
        true
    }

    pub(super) fn answer(&self, entry: &Entry<'_>, now: u64, applied: bool, charged: u64) -> Answer {
        let cost = entry.operation.cost();
        let view = |(rule, state): (&Rule, &State)| rule.view(state, now, cost, charged);
        let views = entry.plan.rules.iter().zip(&self.states).map(view).collect();
        Answer { applied, now, blocked_until: self.blocked_until(), views, ..Answer::default() }
    }

    pub(super) fn matters(&self, now: u64) -> bool {
        self.ends > now || self.journal().is_some_and(|journal| journal.ends > now)
    }
}
