//! Repeats a denial without asking again, until the moment the store named.

use std::ops::ControlFlow;
use std::time::Duration;

use super::denial::{Denial, Times};
use super::layer::{CallState, Layer};
use super::table::{Shard, Table};
use crate::clock::SteadyClock;
use crate::error::Result;
use crate::fork::PerProcess;
use crate::store::call_context::CallContext;
use crate::store::layer_states::LayerStates;
use crate::store::request::{Answer, Entry, Operation, Source};

/// The longest that a denial may be repeated.
pub(crate) const LONGEST: Duration = Duration::from_secs(60);
/// Denials of one policy and key that are kept, each of another cost.
const COSTS: usize = 4;

/// See the module.
pub(crate) struct DenyCache {
    longest: u64,
    time: SteadyClock,
    /// A child that was forked off begins anew: its parent's locks may be held for ever there.
    denials: PerProcess<Table<Denial>>,
}

/// What is known when a check is sent.
#[derive(Clone, Copy)]
pub(super) struct SentCheck {
    hash: u64,
    /// Changes of the shard; when there are more afterwards, the answer may be of before them.
    changes: u64,
    sent: u64,
    /// Whether something is kept of this key.
    known: bool,
}

/// Of a check from which the cache may learn.
impl CallState for Option<SentCheck> {
    const WORDS: usize = 4;

    #[inline]
    fn save(self, states: &mut LayerStates) {
        states.push(match self {
            Some(SentCheck { hash, changes, sent, known }) => [1 | u64::from(known) << 1, hash, changes, sent],
            None => [0; 4],
        });
    }

    #[inline]
    fn load(states: &mut LayerStates) -> Self {
        let [flags, hash, changes, sent] = states.next();
        (flags != 0).then_some(SentCheck { hash, changes, sent, known: flags & 2 != 0 })
    }
}

enum Look {
    Denied(Answer),
    Ask(SentCheck),
    /// Nothing that is ever repeated.
    Other,
}

impl DenyCache {
    pub(crate) fn new(longest: Duration) -> Self {
        let longest = longest.min(LONGEST).as_micros() as u64;
        Self { longest, time: SteadyClock::default(), denials: PerProcess::new() }
    }

    /// How often it answered.
    pub(crate) fn answers(&self) -> u64 {
        self.with(|table| table.sum(|shard| shard.answers))
    }

    /// Forgets all denials: keys have moved to another store.
    pub(crate) fn forget(&self) {
        self.with(|table| {
            table.each(|shard| {
                shard.changes += 1;
                shard.clear();
            });
        });
    }

    fn with<R>(&self, run: impl FnOnce(&Table<Denial>) -> R) -> R {
        self.denials.with(Table::default, run)
    }

    fn time(&self, given: Option<u64>) -> u64 {
        given.unwrap_or_else(|| self.time.micros())
    }

    /// A denial at hand. `renews`: whether this check may be the one that goes through to renew it.
    #[inline]
    fn look(&self, entry: &Entry<'_>, given: Option<u64>, renews: bool) -> Look {
        let Operation::Check { cost, .. } = entry.operation else { return Look::Other };
        if !entry.plan.repeats_denials() {
            return Look::Other;
        }
        let now = self.time(given);
        self.with(|table| {
            let hash = table.hash(entry);
            let mut shard = table.shard(hash);
            let found = shard.find(hash, |denial| denial.cost == cost && denial.is_of(entry));
            if let Some(answer) = found.and_then(|index| shard.at(index).repeated(entry.plan, now, renews)) {
                shard.answers += 1;
                return Look::Denied(answer);
            }
            let known = found.is_some() || shard.find(hash, |denial| denial.is_of(entry)).is_some();
            Look::Ask(SentCheck { hash, changes: shard.changes, sent: now, known })
        })
    }

    /// Takes over what came of a check.
    fn learn(&self, sent_check: SentCheck, entry: &Entry<'_>, given: Option<u64>, answer: &mut Answer) {
        let states = answer.states.take();
        if answer.applied {
            if sent_check.known {
                // What others are denied, they are denied longer now.
                self.with(|table| {
                    table.shard(sent_check.hash).remove_all(sent_check.hash, |denial| denial.is_of(entry))
                });
            }
            return;
        }
        let Some(states) = states.filter(|_| answer.source == Source::Store) else { return };
        let heard = self.time(given);
        let times = Times { sent: sent_check.sent, heard, longest: self.longest };
        let Some(denial) = Denial::new(entry, sent_check.hash, answer, *states, &times) else { return };
        let until = denial.until;
        if self.with(|table| keep(&mut table.shard(sent_check.hash), sent_check, entry, denial)) {
            answer.denied_for = (until - heard) as u32;
        }
    }

    /// Something about a key is being changed, or was.
    fn changed(&self, entry: &Entry<'_>) {
        self.with(|table| {
            let hash = table.hash(entry);
            let mut shard = table.shard(hash);
            shard.changes += 1;
            shard.remove_all(hash, |denial| denial.is_of(entry));
        });
    }
}

/// Keeps a denial, unless something was changed since it was asked for.
fn keep(shard: &mut Shard<Denial>, sent_check: SentCheck, entry: &Entry<'_>, denial: Denial) -> bool {
    if shard.changes != sent_check.changes {
        return false;
    }
    let of_key = shard.all(sent_check.hash, |other| other.is_of(entry));
    let same = of_key.iter().find(|index| shard.get(**index).cost == denial.cost).copied();
    let soonest = || of_key.iter().min_by_key(|index| shard.get(**index).until).copied();
    match same.or_else(|| if of_key.len() >= COSTS { soonest() } else { None }) {
        Some(index) => *shard.at(index) = denial,
        None => {
            let now = denial.heard;
            shard.insert(denial, now);
        }
    }
    true
}

/// Whether an operation changes usage or a block.
const fn changes(operation: &Operation) -> bool {
    matches!(
        operation,
        Operation::Charge { .. } | Operation::Refund { .. } | Operation::Block { .. } | Operation::Clear
    )
}

impl Layer for DenyCache {
    type State = Option<SentCheck>;

    #[inline]
    fn before(&self, entry: &Entry<'_>, context: CallContext<'_>) -> ControlFlow<Result<Answer>, Option<SentCheck>> {
        match self.look(entry, context.now, true) {
            Look::Denied(answer) => return ControlFlow::Break(Ok(answer)),
            Look::Ask(sent_check) => return ControlFlow::Continue(Some(sent_check)),
            Look::Other if changes(&entry.operation) => self.changed(entry),
            Look::Other => {}
        }
        ControlFlow::Continue(None)
    }

    #[inline]
    fn after(
        &self,
        entry: &Entry<'_>,
        now: Option<u64>,
        sent_check: Option<SentCheck>,
        mut result: Result<Answer>,
    ) -> Result<Answer> {
        if let (Some(sent_check), Ok(answer)) = (sent_check, &mut result) {
            self.learn(sent_check, entry, now, answer);
        }
        // A peek that is admitted says that what is known is over.
        let admitted = || matches!((&entry.operation, &result), (Operation::Peek { .. }, Ok(answer)) if answer.applied);
        if changes(&entry.operation) || admitted() {
            self.changed(entry);
        }
        result
    }

    /// What was charged is denied longer to others. The store is asked also where an entry is known to be denied: the
    /// Decision says how all others stand, which only the store knows.
    fn after_all(
        &self,
        entries: &[Entry<'_>],
        _: Option<u64>,
        _: Option<SentCheck>,
        result: Result<Vec<Answer>>,
    ) -> Result<Vec<Answer>> {
        if let Ok(answers) = &result {
            for (entry, _) in entries.iter().zip(answers).filter(|(_, answer)| answer.applied) {
                self.with(|table| {
                    let hash = table.hash(entry);
                    table.shard(hash).remove_all(hash, |denial| denial.is_of(entry));
                });
            }
        }
        result
    }

    #[inline]
    fn try_immediate(&self, entry: &Entry<'_>, now: Option<u64>) -> Option<Result<Answer>> {
        match self.look(entry, now, false) {
            Look::Denied(answer) => Some(Ok(answer)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use parking_lot::Mutex;

    use super::super::layer::Layered;
    use super::super::stub::Stub;
    use super::*;
    use crate::algorithm::{Rule, View};
    use crate::plan::Plan;
    use crate::plan_cache::plan_of;
    use crate::policy::Policy;
    use crate::store::{Store, submit_then};

    const CHECK: Operation = Operation::Check { cost: 1, hold: 0, meta: None };
    /// The stub's clock is another one.
    const NOW: u64 = 1_800_000_000_000_000;

    /// A denial for so long.
    fn denial(plan: &Plan, micros: u64) -> Answer {
        let view = View { remaining: 0, admits_at: Some(NOW + micros), resets_at: NOW + micros, delay: 0 };
        let states = plan.rules.iter().map(Rule::fresh).collect();
        Answer { now: NOW, views: std::iter::once(view).collect(), states: Some(Box::new(states)), ..Answer::default() }
    }

    struct Asked {
        stub: Arc<Stub>,
        cache: Arc<DenyCache>,
        store: Arc<dyn Store>,
        plan: Arc<Plan>,
        said: Arc<Mutex<Vec<Answer>>>,
    }

    impl Asked {
        fn new() -> Self {
            let stub = Arc::new(Stub::default());
            let cache = Arc::new(DenyCache::new(Duration::from_secs(1)));
            let store = Layered::around(Arc::clone(&cache), Arc::clone(&stub) as Arc<dyn Store>);
            Self {
                stub,
                cache,
                store,
                plan: plan_of(&Policy::parse("1/hour").expect("a policy")),
                said: Arc::default(),
            }
        }

        fn submit(&self, operation: Operation) {
            let said = Arc::clone(&self.said);
            let done = move |result: Result<Answer>| {
                said.lock().push(result.expect("an answer"));
                None
            };
            submit_then(&self.store, &Entry { plan: &self.plan, key: "k", operation }, CallContext::default(), done);
        }

        fn try_immediate(&self) -> Option<Answer> {
            let entry = Entry { plan: &self.plan, key: "k", operation: CHECK };
            self.store.try_immediate(&entry, CallContext::default()).map(|answer| answer.expect("an answer"))
        }
    }

    #[test]
    fn an_answer_that_was_under_way_during_a_change_is_not_kept() {
        for overtaken in [false, true] {
            let asked = Asked::new();
            let denied = denial(&asked.plan, 3_600_000_000);
            asked.submit(CHECK);
            asked.submit(Operation::Refund { cost: 1 });
            if overtaken {
                // The denial comes while the refund is under way, which is known to have been done later.
                asked.stub.answer(Ok(denied));
                asked.stub.answer(Ok(Answer { applied: true, ..Answer::default() }));
            } else {
                asked.submit(CHECK);
                asked.stub.answer(Ok(denied.clone()));
                asked.stub.answer(Ok(Answer { applied: true, ..Answer::default() }));
                asked.stub.answer(Ok(denied));
            }
            assert_eq!(asked.try_immediate(), None);
            assert!(asked.said.lock().iter().all(|answer| answer.denied_for == 0));
        }
    }

    #[test]
    fn a_denial_ends_counted_from_when_it_was_asked_and_its_moment_stands_still() {
        for micros in [300_000, 3_600_000_000] {
            let asked = Asked::new();
            asked.submit(CHECK);
            std::thread::sleep(Duration::from_millis(40));
            asked.stub.answer(Ok(denial(&asked.plan, micros)));
            let longest = micros.min(1_000_000);
            let first = asked.said.lock()[0].clone();
            assert!(u64::from(first.denied_for) <= longest - 40_000, "{first:?}");
            let again = asked.try_immediate().expect("it is known");
            assert_eq!(again.source, Source::DenyCache);
            // Its times count from when the answer was there.
            assert!(again.now >= NOW && again.now - NOW <= longest - 40_000, "{again:?}");
            assert_eq!(again.views[0].admits_at, Some(NOW + micros));
            assert!(again.denied_for <= first.denied_for);
            asked.submit(CHECK);
            assert_eq!(asked.said.lock()[1].source, Source::DenyCache, "it was answered at once");
        }
    }

    #[test]
    fn a_fallback_is_not_repeated() {
        let asked = Asked::new();
        asked.submit(CHECK);
        let closed = Answer { source: Source::Fallback, ..denial(&asked.plan, 1_000_000) };
        asked.stub.answer(Ok(closed));
        assert_eq!(asked.try_immediate(), None);
    }

    #[test]
    fn a_million_attacked_keys_take_no_more_room_than_there_is() {
        let asked = Asked::new();
        let entry_of = |number: u64| format!("key {number}");
        for number in 0..200_000 {
            let key = entry_of(number);
            let entry = Entry { plan: &asked.plan, key: &key, operation: CHECK };
            let Look::Ask(sent_check) = asked.cache.look(&entry, Some(NOW), true) else { panic!("not known") };
            asked.cache.learn(sent_check, &entry, Some(NOW), &mut denial(&asked.plan, 9_000_000));
        }
        assert_eq!(asked.cache.with(|table| table.sum(Shard::len)), 65_536);
        // Whoever was forgotten is asked for again.
        let denied = (0..200_000).filter(|number| {
            let key = entry_of(*number);
            let entry = Entry { plan: &asked.plan, key: &key, operation: CHECK };
            matches!(asked.cache.look(&entry, Some(NOW), true), Look::Denied(_))
        });
        assert_eq!(denied.count(), 65_536);
        // However many costs are tried, a key has no more than its share.
        for cost in 1..100 {
            let entry =
                Entry { plan: &asked.plan, key: "costs", operation: Operation::Check { cost, hold: 0, meta: None } };
            let Look::Ask(sent_check) = asked.cache.look(&entry, Some(NOW), true) else { panic!("not known") };
            asked.cache.learn(sent_check, &entry, Some(NOW), &mut denial(&asked.plan, 9_000_000));
        }
        let entry = Entry { plan: &asked.plan, key: "costs", operation: CHECK };
        let kept = asked.cache.with(|table| {
            let hash = table.hash(&entry);
            table.shard(hash).all(hash, |denial| denial.is_of(&entry)).len()
        });
        assert_eq!(kept, COSTS);
    }
}
