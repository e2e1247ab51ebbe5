use std::sync::Arc;

use crate::process::lock::Mutex;

use super::*;
use crate::algorithm::{Rule, View};
use crate::plan::Plan;
use crate::plan::plan_cache::plan_of;
use crate::policy::Policy;
use crate::resilience::layer::Layered;
use crate::resilience::layer::{submit_then, try_immediate};
use crate::resilience::stub_store::StubStore;
use crate::store::Store;

const CHECK: Operation = Operation::check(1);
/// The time of the store. The cache uses the clock of the process.
const NOW: u64 = 1_800_000_000_000_000;

/// A denial that lasts so many microseconds.
fn denial(plan: &Plan, micros: u64) -> Answer {
    let view = View { left: 0, admits_at: Some(NOW + micros), resets_at: NOW + micros, ..View::default() };
    let states = plan.rules.iter().map(Rule::fresh).collect();
    Answer { now: NOW, views: std::iter::once(view).collect(), states: Some(Box::new(states)), ..Answer::default() }
}

struct TestCache {
    stub: Arc<StubStore>,
    cache: Arc<DenyCache>,
    store: Arc<dyn Store>,
    plan: Arc<Plan>,
    answers: Arc<Mutex<Vec<Answer>>>,
}

impl TestCache {
    fn new() -> Self {
        let stub = Arc::new(StubStore::default());
        let cache = Arc::new(DenyCache::new(Duration::from_secs(1)));
        let store = Layered::around(Arc::clone(&cache), Arc::clone(&stub) as Arc<dyn Store>);
        Self { stub, cache, store, plan: plan_of(&Policy::parse("1/hour").expect("a policy")), answers: Arc::default() }
    }

    fn submit(&self, operation: Operation) {
        let answers = Arc::clone(&self.answers);
        let done = move |result: Result<Answer>| {
            answers.lock().push(result.expect("an answer"));
            None
        };
        submit_then(&self.store, &Entry { plan: &self.plan, key: "k", operation }, CallContext::at(None), done);
    }

    fn try_immediate(&self) -> Option<Answer> {
        let entry = Entry { plan: &self.plan, key: "k", operation: CHECK };
        try_immediate(&*self.store, &entry, CallContext::at(None)).map(|answer| answer.expect("an answer"))
    }
}

#[test]
fn an_answer_that_was_in_flight_during_a_change_is_not_kept() {
    for overtaken in [false, true] {
        let test = TestCache::new();
        let denied = denial(&test.plan, 3_600_000_000);
        test.submit(CHECK);
        test.submit(Operation::Refund { cost: 1, details: None });
        if overtaken {
            // The denial arrives while the refund is in flight: the store did the refund later.
            test.stub.answer(Ok(denied));
            test.stub.answer(Ok(Answer { applied: true, ..Answer::default() }));
        } else {
            test.submit(CHECK);
            test.stub.answer(Ok(denied.clone()));
            test.stub.answer(Ok(Answer { applied: true, ..Answer::default() }));
            test.stub.answer(Ok(denied));
        }
        assert_eq!(test.try_immediate(), None);
        assert!(test.answers.lock().iter().all(|answer| answer.denied_for == 0));
    }
}

#[test]
fn the_time_of_a_denial_counts_from_when_it_was_asked_for_and_its_moments_do_not_move() {
    for micros in [300_000, 3_600_000_000] {
        let test = TestCache::new();
        test.submit(CHECK);
        std::thread::sleep(Duration::from_millis(40));
        test.stub.answer(Ok(denial(&test.plan, micros)));
        let longest = micros.min(1_000_000);
        let first = test.answers.lock()[0].clone();
        assert!(u64::from(first.denied_for) <= longest - 40_000, "{first:?}");
        let again = test.try_immediate().expect("a known denial");
        assert_eq!(again.source, Source::DenyCache);
        // Its times count from when the answer was received.
        assert!(again.now >= NOW && again.now - NOW <= longest - 40_000, "{again:?}");
        assert_eq!(again.views[0].admits_at, Some(NOW + micros));
        assert!(again.denied_for <= first.denied_for);
        test.submit(CHECK);
        assert_eq!(test.answers.lock()[1].source, Source::DenyCache, "it needed no waiting");
    }
}

#[test]
fn an_answer_of_the_fallback_is_not_repeated() {
    let test = TestCache::new();
    test.submit(CHECK);
    let closed = Answer { source: Source::Fallback, ..denial(&test.plan, 1_000_000) };
    test.stub.answer(Ok(closed));
    assert_eq!(test.try_immediate(), None);
}

#[test]
fn the_cache_stays_within_its_capacity_under_a_flood_of_keys() {
    let test = TestCache::new();
    let entry_of = |number: u64| format!("key {number}");
    for number in 0..200_000 {
        let key = entry_of(number);
        let entry = Entry { plan: &test.plan, key: &key, operation: CHECK };
        let Lookup::Ask(sent_check) = test.cache.lookup(&entry, Some(NOW), true) else { panic!("a known denial") };
        test.cache.learn(sent_check, &entry, Some(NOW), &mut denial(&test.plan, 9_000_000));
    }
    assert_eq!(test.cache.with(|table| table.sum(TableShard::len)), 65_536);
    // The store is asked again about the keys that were dropped.
    let denied = (0..200_000).filter(|number| {
        let key = entry_of(*number);
        let entry = Entry { plan: &test.plan, key: &key, operation: CHECK };
        matches!(test.cache.lookup(&entry, Some(NOW), true), Lookup::Denied(_))
    });
    assert_eq!(denied.count(), 65_536);
    // However many costs are tried, only some of them are kept for one key.
    for cost in 1..100 {
        let entry = Entry { plan: &test.plan, key: "costs", operation: Operation::check(cost) };
        let Lookup::Ask(sent_check) = test.cache.lookup(&entry, Some(NOW), true) else { panic!("a known denial") };
        test.cache.learn(sent_check, &entry, Some(NOW), &mut denial(&test.plan, 9_000_000));
    }
    let entry = Entry { plan: &test.plan, key: "costs", operation: CHECK };
    let kept = test.cache.with(|table| {
        let key = TableKeyRef::of(entry.key);
        let hash = table.hash(entry.plan, key);
        table.shard(hash).all(hash, |denial| denial.is_of(entry.plan, key)).len()
    });
    assert_eq!(kept, MAX_COSTS);
}
