//! The embedded store: sharded, bounded, swept, in this process.
//!
//! A shard is a slab of entries and a table of their numbers. A hand walks over the slab: every newcomer pays for
//! looking at a few entries, so the expired ones go without a thread or a timer. When a shard is full the hand looks
//! for the entry that matters least; an entry that is denying somebody is never taken, the shard grows instead.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::hash::BuildHasher;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use compact_str::CompactString;
use foldhash::fast::RandomState;
use hashbrown::HashTable;
use parking_lot::Mutex;
use smallvec::SmallVec;

use super::{AllDone, Answer, Attempt, Done, Entry, Op, Pinged, Source, Store, Views};
use crate::algorithm::{MAX, Rule, State};
use crate::error::Result;
use crate::plan::{Plan, Tag};

/// Entries a newcomer looks at for expired ones.
const SWEPT: usize = 2;
/// Entries looked at for the one that matters least, when a shard is full.
const WEIGHED: usize = 16;
/// The most shards; more than the threads that ever run at once.
const SHARDS: usize = 64;
/// A shard has room for at least so many keys.
const SHARD_KEYS: usize = 256;

/// What is stored of one policy and key.
struct Usage {
    identity: u128,
    key: CompactString,
    hash: u64,
    shape: Arc<[Tag]>,
    states: SmallVec<[State; 1]>,
    blocked_until: u64,
    /// Until when a check that was refused would be refused again.
    denies_until: u64,
    /// When everything above has lost its meaning.
    ends: u64,
    journal: Option<Box<Journal>>,
}

struct Journal {
    /// Oldest first.
    attempts: VecDeque<Attempt>,
    ends: u64,
}

#[derive(Default)]
struct Shard {
    table: HashTable<u32>,
    usages: Vec<Usage>,
    hand: usize,
}

/// See the module.
pub(crate) struct Memory {
    shards: Box<[Mutex<Shard>]>,
    hasher: RandomState,
    shard_keys: usize,
    clock: quanta::Clock,
    /// The clock's own count when the store was made …
    started: u64,
    /// … and the wall time then, in nanoseconds.
    started_at: u64,
}

impl Memory {
    /// A store of at most `max_keys` keys, not counting those that are being denied.
    pub(crate) fn new(max_keys: usize) -> Self {
        let shards = (max_keys / SHARD_KEYS).clamp(1, SHARDS).next_power_of_two().min(SHARDS);
        let clock = quanta::Clock::new();
        let started = clock.raw();
        let started_at = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos() as u64;
        Self {
            shards: (0..shards).map(|_| Mutex::default()).collect(),
            hasher: RandomState::default(),
            shard_keys: max_keys.div_ceil(shards).max(1),
            clock,
            started,
            started_at,
        }
    }

    /// Wall time when the store was made, monotonic from there on.
    #[inline]
    fn now(&self) -> u64 {
        (self.started_at + self.clock.delta_as_nanos(self.started, self.clock.raw())) / 1_000
    }

    /// The time to decide by, and how many entries a newcomer looks at. A clock that is given may run backwards: what
    /// has expired by it stays, as it would in Redis, until a shard is full.
    #[inline]
    fn time(&self, given: Option<u64>) -> (u64, usize) {
        given.map_or_else(|| (self.now(), SWEPT), |now| (now, 0))
    }

    #[inline]
    fn hash(&self, entry: &Entry<'_>) -> u64 {
        // The identity is a digest already; the key is the caller's, so the hasher is seeded.
        self.hasher.hash_one(entry.key) ^ entry.plan.identity as u64
    }

    #[inline]
    fn shard_of(&self, hash: u64) -> usize {
        // The table uses the low bits and the top seven.
        (hash >> 40) as usize & (self.shards.len() - 1)
    }

    #[inline(always)]
    fn run(&self, entry: &Entry<'_>, now: u64, swept: usize) -> Answer {
        let hash = self.hash(entry);
        let mut shard = self.shards[self.shard_of(hash)].lock();
        let index = shard.find(hash, entry);
        if index.is_none() && !brings(entry, now) {
            return unknown(entry, now);
        }
        match index {
            Some(index) => shard.usages[index].apply(entry, now),
            None => {
                let mut usage = Usage::new(entry, hash);
                let answer = usage.apply(entry, now);
                if usage.matters(now) {
                    shard.insert(usage, now, self.shard_keys, swept);
                }
                answer
            }
        }
    }

    fn run_all(&self, entries: &[Entry<'_>], now: u64, swept: usize) -> Vec<Answer> {
        let hashes: Vec<u64> = entries.iter().map(|entry| self.hash(entry)).collect();
        // One order for everybody, so that two calls never wait for each other.
        let needed: BTreeSet<usize> = hashes.iter().map(|hash| self.shard_of(*hash)).collect();
        let mut shards: BTreeMap<usize, _> =
            needed.into_iter().map(|shard| (shard, self.shards[shard].lock())).collect();

        // Every usage is taken out, once for each policy and key, and put back when all is decided.
        let mut drafts: Vec<Draft> = Vec::new();
        let mut owners = Vec::with_capacity(entries.len());
        let mut admitted = Vec::with_capacity(entries.len());
        for (entry, hash) in entries.iter().zip(&hashes) {
            let known = drafts.iter().position(|draft| draft.usage.hash == *hash && draft.usage.is_of(entry));
            let owner = known.unwrap_or_else(|| {
                let stored = shards.get_mut(&self.shard_of(*hash)).and_then(|shard| {
                    let at = shard.find(*hash, entry)?;
                    Some(shard.remove(at))
                });
                let was_stored = stored.is_some();
                let mut usage = stored.unwrap_or_else(|| Usage::new(entry, *hash));
                let stored = usage.kept();
                usage.adopt(entry.plan);
                let asked = usage.kept();
                drafts.push(Draft { usage, stored, asked, was_stored, changed: false });
                drafts.len() - 1
            });
            let admits = drafts[owner].usage.admits(entry, now);
            if admits {
                drafts[owner].usage.charge(entry, now);
            }
            owners.push(owner);
            admitted.push(admits);
        }
        let stands = entries.iter().zip(&admitted).all(|(entry, admits)| *admits || entry.plan.policy.options().shadow);
        if !stands {
            for Draft { usage, asked, .. } in &mut drafts {
                usage.restore(asked.clone());
            }
        }
        for (index, entry) in entries.iter().enumerate() {
            let Draft { usage, changed, .. } = &mut drafts[owners[index]];
            *changed |= if admitted[index] { stands } else { usage.refuse(entry, now) };
            usage.note(entry, now, admitted[index] && stands);
        }
        for (index, entry) in entries.iter().enumerate() {
            let Draft { usage, changed, .. } = &mut drafts[owners[index]];
            if *changed {
                usage.renew(&entry.plan.rules, now);
            }
        }
        let answers = entries.iter().enumerate().map(|(index, entry)| {
            let charged = if admitted[index] && stands { entry.op.cost() } else { 0 };
            drafts[owners[index]].usage.answer(entry, now, admitted[index], charged)
        });
        let answers = answers.collect();
        for Draft { mut usage, stored, was_stored, changed, .. } in drafts {
            if !changed {
                usage.restore(stored);
            }
            let kept = usage.matters(now) || was_stored && !changed;
            if let Some(shard) = shards.get_mut(&self.shard_of(usage.hash)).filter(|_| kept) {
                shard.insert(usage, now, self.shard_keys, swept);
            }
        }
        answers
    }
}

/// The parts of a usage that calls change.
type Kept = (Arc<[Tag]>, SmallVec<[State; 1]>, u64);

/// A usage taken out of its shard.
struct Draft {
    usage: Usage,
    /// What it was, as it was stored …
    stored: Kept,
    /// … and as the policy at hand reads it.
    asked: Kept,
    was_stored: bool,
    changed: bool,
}

/// Whether an entry about a key that is not stored can store something; if not, nothing needs to be made.
#[inline]
fn brings(entry: &Entry<'_>, now: u64) -> bool {
    match &entry.op {
        Op::Check { cost, .. } => {
            let options = entry.plan.policy.options();
            entry.plan.denial_writes
                || options.journal > 0
                || entry.plan.rules.iter().all(|rule| rule.admits(&rule.fresh(), now, *cost))
        }
        Op::Charge { .. } => true,
        Op::Block { micros } => *micros > 0,
        _ => false,
    }
}

/// The answer about a key that is not stored and stays so.
fn unknown(entry: &Entry<'_>, now: u64) -> Answer {
    let cost = entry.op.cost();
    let views: Views = entry.plan.rules.iter().map(|rule| rule.view(&rule.fresh(), now, cost, 0)).collect();
    let applied = match &entry.op {
        Op::Check { .. } => false,
        Op::Peek { .. } => entry.plan.rules.iter().all(|rule| rule.admits(&rule.fresh(), now, cost)),
        Op::Renew { .. } | Op::Close { .. } => false,
        _ => true,
    };
    let attempts = matches!(entry.op, Op::Journal).then(Box::default);
    Answer { applied, now, blocked_until: 0, views, source: Source::Store, attempts }
}

impl Usage {
    fn new(entry: &Entry<'_>, hash: u64) -> Self {
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
    fn is_of(&self, entry: &Entry<'_>) -> bool {
        self.identity == entry.plan.identity && self.key == entry.key
    }

    /// Takes over what another version of the policy left, limit by limit.
    #[inline]
    fn adopt(&mut self, plan: &Plan) {
        if !Arc::ptr_eq(&self.shape, &plan.shape) {
            self.adopt_slowly(plan);
        }
    }

    #[cold]
    fn adopt_slowly(&mut self, plan: &Plan) {
        if self.shape != plan.shape {
            let mut old: Vec<(&Tag, Option<State>)> =
                self.shape.iter().zip(self.states.drain(..)).map(|(tag, state)| (tag, Some(state))).collect();
            let mut states = SmallVec::new();
            for (tag, rule) in plan.shape.iter().zip(&plan.rules) {
                let same =
                    old.iter_mut().find(|(other, state)| state.is_some() && other.0 == tag.0 && other.1 == tag.1);
                states.push(match same {
                    Some((other, state)) => match state.take() {
                        Some(state) => refitted(state, other.2, tag.2),
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
    fn admits(&self, entry: &Entry<'_>, now: u64) -> bool {
        let cost = entry.op.cost();
        self.blocked_until <= now
            && entry.plan.rules.iter().zip(&self.states).all(|(rule, state)| rule.admits(state, now, cost))
    }

    #[inline(always)]
    fn try_charge(&mut self, entry: &Entry<'_>, now: u64) -> bool {
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
    fn charge(&mut self, entry: &Entry<'_>, now: u64) {
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

    /// What a denial changes: nothing, unless the policy says so. Says whether it did.
    fn refuse(&mut self, entry: &Entry<'_>, now: u64) -> bool {
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

    /// To be called after a change: what has lost its meaning is forgotten, as Redis forgets it.
    #[inline(always)]
    fn renew(&mut self, rules: &[Rule], now: u64) {
        self.ends =
            rules.iter().zip(&self.states).map(|(rule, state)| rule.ends(state)).fold(self.blocked_until, u64::max);
        if self.ends <= now {
            self.forget(rules);
        }
    }

    #[cold]
    fn forget(&mut self, rules: &[Rule]) {
        self.states = rules.iter().map(Rule::fresh).collect();
        (self.blocked_until, self.ends) = (0, 0);
    }

    fn note(&mut self, entry: &Entry<'_>, now: u64, allowed: bool) {
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
    fn apply(&mut self, entry: &Entry<'_>, now: u64) -> Answer {
        if !Arc::ptr_eq(&self.shape, &entry.plan.shape) {
            return self.apply_to_other(entry, now);
        }
        self.apply_to_own(entry, now).0
    }

    /// Another version of the policy reads the state its way; only when it writes does its way stay.
    #[cold]
    fn apply_to_other(&mut self, entry: &Entry<'_>, now: u64) -> Answer {
        let before = self.kept();
        self.adopt(entry.plan);
        let (answer, changed) = self.apply_to_own(entry, now);
        if !changed {
            self.restore(before);
        }
        answer
    }

    fn kept(&self) -> Kept {
        (Arc::clone(&self.shape), self.states.clone(), self.blocked_until)
    }

    fn restore(&mut self, kept: Kept) {
        (self.shape, self.states, self.blocked_until) = kept;
    }

    /// The answer, and whether the usage changed.
    #[inline(always)]
    fn apply_to_own(&mut self, entry: &Entry<'_>, now: u64) -> (Answer, bool) {
        let rules = &entry.plan.rules;
        match &entry.op {
            Op::Check { cost, .. } => {
                let admits = self.try_charge(entry, now);
                let changed = admits || self.refuse(entry, now);
                if changed {
                    self.renew(rules, now);
                }
                if entry.plan.policy.options().journal > 0 {
                    self.note(entry, now, admits);
                }
                let answer = self.answer(entry, now, admits, if admits { *cost } else { 0 });
                if !admits {
                    let moments = answer.views.iter().filter_map(|view| view.admits_at);
                    self.denies_until = moments.fold(self.blocked_until, u64::max);
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
                    self.renew(rules, now);
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
    fn change(&mut self, op: &Op, entry: &Entry<'_>, now: u64) -> bool {
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
    fn answer(&self, entry: &Entry<'_>, now: u64, applied: bool, charged: u64) -> Answer {
        let cost = entry.op.cost();
        let view = |(rule, state): (&Rule, &State)| rule.view(state, now, cost, charged);
        let views = match (&*entry.plan.rules, &*self.states) {
            ([rule], [state]) => Views::from_buf([view((rule, state))]),
            (rules, states) => rules.iter().zip(states).map(view).collect(),
        };
        Answer { applied, now, blocked_until: self.blocked_until, views, source: Source::Store, attempts: None }
    }

    fn matters(&self, now: u64) -> bool {
        self.ends > now || self.journal.as_ref().is_some_and(|journal| journal.ends > now)
    }
}

/// A bucket's fraction, when the new numbers have another denominator: rounded up, which admits less.
fn refitted(mut state: State, had_fractions: bool, has_fractions: bool) -> State {
    if let (State::TokenBucket(state) | State::Gcra(state) | State::LeakyBucket(state), true, false) =
        (&mut state, had_fractions, has_fractions)
    {
        if state.part > 0 {
            state.since += 1;
        }
        state.part = 0;
    }
    state
}

impl Shard {
    #[inline]
    fn find(&self, hash: u64, entry: &Entry<'_>) -> Option<usize> {
        self.table.find(hash, |index| self.usages[*index as usize].is_of(entry)).map(|index| *index as usize)
    }

    /// Stores a newcomer, making room for it first.
    fn insert(&mut self, usage: Usage, now: u64, most: usize, swept: usize) {
        for _ in 0..swept {
            let Some(at) = self.turn() else { break };
            if !self.usages[at].matters(now) {
                self.remove(at);
            }
        }
        if self.usages.len() >= most
            && let Some(least) = self.least(now)
        {
            self.remove(least);
        }
        let index = self.usages.len();
        let usages = &self.usages;
        self.table.insert_unique(usage.hash, index as u32, |index| usages[*index as usize].hash);
        self.usages.push(usage);
    }

    /// The entry under the hand, which moves on.
    fn turn(&mut self) -> Option<usize> {
        if self.usages.is_empty() {
            return None;
        }
        self.hand = if self.hand + 1 < self.usages.len() { self.hand + 1 } else { 0 };
        Some(self.hand)
    }

    /// The entry that matters least among the next few: an expired one, else the first to expire of those that deny
    /// nobody.
    fn least(&mut self, now: u64) -> Option<usize> {
        let mut least: Option<usize> = None;
        for _ in 0..WEIGHED.min(self.usages.len()) {
            let at = self.turn()?;
            let usage = &self.usages[at];
            if !usage.matters(now) {
                return Some(at);
            }
            if usage.denies_until <= now && least.is_none_or(|least| usage.ends < self.usages[least].ends) {
                least = Some(at);
            }
        }
        least
    }

    fn remove(&mut self, at: usize) -> Usage {
        let hash = self.usages[at].hash;
        if let Ok(found) = self.table.find_entry(hash, |index| *index as usize == at) {
            found.remove();
        }
        let removed = self.usages.swap_remove(at);
        if let Some(moved) = self.usages.get(at) {
            let from = self.usages.len();
            if let Some(index) = self.table.find_mut(moved.hash, |index| *index as usize == from) {
                *index = at as u32;
            }
        }
        removed
    }
}

impl Store for Memory {
    #[inline]
    fn ask(&self, entry: &Entry<'_>, now: Option<u64>) -> Result<Answer> {
        let (now, swept) = self.time(now);
        Ok(self.run(entry, now, swept))
    }

    fn ask_all(&self, entries: &[Entry<'_>], now: Option<u64>) -> Result<Vec<Answer>> {
        let (now, swept) = self.time(now);
        Ok(self.run_all(entries, now, swept))
    }

    fn submit(&self, entry: &Entry<'_>, now: Option<u64>, done: Done) {
        done(self.ask(entry, now));
    }

    fn submit_all(&self, entries: &[Entry<'_>], now: Option<u64>, done: AllDone) {
        done(self.ask_all(entries, now));
    }

    fn ping(&self) -> Result<()> {
        Ok(())
    }

    fn submit_ping(&self, done: Pinged) {
        done(Ok(()));
    }

    fn close(&self) {}

    fn is_immediate(&self) -> bool {
        true
    }
}
