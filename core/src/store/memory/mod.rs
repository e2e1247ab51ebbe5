//! The embedded store: sharded, bounded, swept, in this process.
//!
//! A shard is a slab of entries and a table of their numbers. A hand walks over the slab: every newcomer pays for
//! looking at a few entries, so the expired ones go without a thread or a timer. When a shard is full the hand looks
//! for the entry that matters least; an entry that is denying somebody is never taken, the shard grows instead.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::BuildHasher;
use std::time::{SystemTime, UNIX_EPOCH};

use foldhash::fast::RandomState;
use parking_lot::Mutex;

mod shard;
mod usage;

use shard::Shard;
use usage::{Kept, Usage};

use super::Store;
use super::call_context::CallContext;
use super::completion::{BatchCompletion, MakeCompletion, PingCompletion, wake};
use super::layer_states::LayerStates;
use super::request::{Answer, Entry, Operation, States};
use crate::error::Result;
use crate::one_or_many::OneOrMany;

/// Entries a newcomer looks at for expired ones.
const SWEPT: usize = 2;
/// The most shards; more than the threads that ever run at once.
const SHARDS: usize = 64;
/// A shard has room for at least so many keys.
const SHARD_KEYS: usize = 256;

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
        if let Some(view) = index.and_then(|index| shard.usages[index].pass(entry, now)) {
            return Answer { applied: true, now, views: OneOrMany::One(view), ..Answer::default() };
        }
        self.run_in(&mut shard, index, hash, entry, now, swept)
    }

    /// Everything that is not over in one step.
    #[inline(never)]
    fn run_in(
        &self,
        shard: &mut Shard,
        index: Option<usize>,
        hash: u64,
        entry: &Entry<'_>,
        now: u64,
        swept: usize,
    ) -> Answer {
        if let Some(index) = index {
            return shard.usages[index].apply(entry, now);
        }
        if !brings(entry, now) {
            return unknown(entry, now);
        }
        let mut usage = Usage::new(entry, hash);
        let answer = usage.apply(entry, now);
        if usage.matters(now) {
            shard.insert(usage, now, self.shard_keys, swept);
        }
        answer
    }

    /// Stores a usage that is known from elsewhere, instead of what was there.
    pub(crate) fn put(&self, entry: &Entry<'_>, states: States, blocked_until: u64, now: u64) {
        let hash = self.hash(entry);
        let mut usage = Usage::new(entry, hash);
        let (format, ..) = usage.kept();
        usage.restore((format, states.into_iter().collect(), blocked_until));
        usage.renew(entry.plan, now);
        let mut shard = self.shards[self.shard_of(hash)].lock();
        if let Some(index) = shard.find(hash, entry) {
            shard.remove(index);
        }
        if usage.matters(now) {
            shard.insert(usage, now, self.shard_keys, SWEPT);
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
        let mut refused = Vec::with_capacity(entries.len());
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
                usage.read(entry.plan, now);
                let asked = usage.kept();
                drafts.push(Draft { usage, stored, asked, was_stored, changed: false });
                drafts.len() - 1
            });
            let admits = drafts[owner].usage.admits(entry, now);
            if admits {
                drafts[owner].usage.charge(entry, now);
            }
            refused.push((!admits).then(|| drafts[owner].usage.refusing(entry, now)));
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
                usage.renew(entry.plan, now);
            }
        }
        let answers = entries.iter().enumerate().map(|(index, entry)| {
            let charged = if admitted[index] && stands { entry.operation.cost() } else { 0 };
            let answer = drafts[owners[index]].usage.answer(entry, now, admitted[index], charged);
            Answer { refused: refused[index], ..answer }
        });
        let answers: Vec<Answer> = answers.collect();
        for (answer, owner) in answers.iter().zip(&owners).filter(|(answer, _)| !answer.applied) {
            drafts[*owner].usage.denied(answer);
        }
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
    match &entry.operation {
        Operation::Check { cost, .. } => {
            let options = entry.plan.policy.options();
            entry.plan.denial_writes
                || options.journal > 0
                || entry.plan.rules.iter().all(|rule| rule.admits(&rule.fresh(), now, *cost))
        }
        Operation::Charge { .. } => true,
        Operation::Block { micros } => *micros > 0,
        _ => false,
    }
}

/// The answer about a key that is not stored and stays so.
fn unknown(entry: &Entry<'_>, now: u64) -> Answer {
    let cost = entry.operation.cost();
    let applied = match &entry.operation {
        Operation::Check { .. } => false,
        Operation::Peek { .. } => entry.plan.rules.iter().all(|rule| rule.admits(&rule.fresh(), now, cost)),
        Operation::Renew { .. } | Operation::Close { .. } => false,
        _ => true,
    };
    let attempts = matches!(entry.operation, Operation::Journal).then(Box::default);
    Answer { applied, now, views: entry.plan.unused_views(now, cost), attempts, ..Answer::default() }
}

impl Store for Memory {
    #[inline]
    fn ask(&self, entry: &Entry<'_>, context: CallContext<'_>) -> Result<Answer> {
        let (now, swept) = self.time(context.now);
        Ok(self.run(entry, now, swept))
    }

    fn ask_all(&self, entries: &[Entry<'_>], context: CallContext<'_>) -> Result<Vec<Answer>> {
        let (now, swept) = self.time(context.now);
        Ok(self.run_all(entries, now, swept))
    }

    fn submit(
        &self,
        entry: &Entry<'_>,
        context: CallContext<'_>,
        _: &mut LayerStates,
        _: MakeCompletion<'_>,
    ) -> Option<Result<Answer>> {
        Some(self.ask(entry, context))
    }

    fn submit_all(&self, entries: &[Entry<'_>], context: CallContext<'_>, done: BatchCompletion) {
        wake(done(self.ask_all(entries, context)));
    }

    fn ping(&self, _: CallContext<'_>) -> Result<()> {
        Ok(())
    }

    fn submit_ping(&self, _: CallContext<'_>, done: PingCompletion) {
        wake(done(Ok(())));
    }

    fn close(&self) {}

    fn try_immediate(&self, entry: &Entry<'_>, context: CallContext<'_>) -> Option<Result<Answer>> {
        Some(self.ask(entry, context))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan_cache::plan_of;
    use crate::policy::Policy;

    const CHECK: Operation = Operation::Check { cost: 1, hold: 0, meta: None };

    fn stored(store: &Memory) -> usize {
        store.shards.iter().map(|shard| shard.lock().usages.len()).sum()
    }

    #[test]
    fn a_flood_of_keys_stays_within_bounds_and_frees_nobody_who_is_denied() {
        let store = Memory::new(2_000);
        let plan = plan_of(&Policy::parse("2/hour").expect("a policy"));
        let check = |key: &str, now| {
            store
                .ask(&Entry { plan: &plan, key, operation: CHECK }, CallContext::at(Some(now)))
                .expect("an answer")
                .applied
        };
        let now = 1_800_000_000_000_000;
        let denied: Vec<String> = (0..50).map(|number| format!("denied {number}")).collect();
        for key in &denied {
            assert_eq!([check(key, now), check(key, now), check(key, now)], [true, true, false]);
        }
        for number in 0..100_000_u64 {
            assert!(check(&format!("flood {number}"), now + number));
        }
        assert!(stored(&store) <= 2_000 + 50 + SHARDS, "{} keys", stored(&store));
        for key in &denied {
            assert!(!check(key, now + 100_000), "{key} was forgotten");
        }
    }

    #[test]
    fn what_has_expired_is_swept_by_newcomers() {
        let store = Memory::new(1_000_000);
        let plan = plan_of(&Policy::parse("5/1ms").expect("a policy"));
        for number in 0..20_000 {
            let key = format!("key {number}");
            store.ask(&Entry { plan: &plan, key: &key, operation: CHECK }, CallContext::default()).expect("an answer");
            if number % 100 == 0 {
                // Expiry is by the store's own clock, which tests cannot move.
                let start = store.now();
                while store.now() < start + 1_200 {
                    std::hint::spin_loop();
                }
            }
        }
        assert!(stored(&store) < 2_000, "{} keys are left of 20,000", stored(&store));
    }
}
