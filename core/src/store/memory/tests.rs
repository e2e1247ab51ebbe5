use std::sync::Arc;

use super::*;
use crate::plan::plan_cache::plan_of;
use crate::policy::{Options, Policy};
use crate::store::request::{Details, Operation};

const CHECK: Operation = Operation::check(1);

const NOW: u64 = 1_800_000_000_000_000;

fn memory(max_keys: usize, max_bytes: usize) -> Memory {
    Memory::new(MemoryBounds { max_keys, max_bytes }, Arc::default())
}

fn stored(store: &Memory) -> usize {
    (0..store.shards.len()).map(|shard| store.lock(shard).len()).sum()
}

fn bytes(store: &Memory) -> usize {
    (0..store.shards.len()).map(|shard| store.lock(shard).bytes).sum()
}

fn check(store: &Memory, plan: &Arc<Plan>, key: &str, now: u64) -> bool {
    let entry = Entry { plan, key, operation: CHECK };
    store.answer(&entry, Some(now)).applied
}

#[test]
fn a_flood_of_keys_stays_within_bounds_and_admits_no_key_that_is_denied() {
    let store = memory(2_000, usize::MAX);
    let plan = plan_of(&Policy::parse("2/hour").expect("a policy"));
    let check = |key: &str, now| check(&store, &plan, key, now);
    let now = NOW;
    let denied: Vec<String> = (0..50).map(|number| format!("denied {number}")).collect();
    for key in &denied {
        assert_eq!([check(key, now), check(key, now), check(key, now)], [true, true, false]);
    }
    for number in 0..100_000_u64 {
        assert!(check(&format!("flood {number}"), now + number));
    }
    assert!(stored(&store) <= 2_000 + 50 + MAX_SHARDS, "{} keys", stored(&store));
    for key in &denied {
        assert!(!check(key, now + 100_000), "{key} was removed");
    }
}

/// A thread may read the clock, wait for the lock, and meet usage that another thread has charged later.
#[test]
fn a_call_that_waited_is_not_decided_before_the_call_that_it_waited_for() {
    let store = memory(1_000, usize::MAX);
    let plan = plan_of(&Policy::parse("2/hour").expect("a policy"));
    let later = store.clock.micros() + 60_000_000;
    (0..store.shards.len()).for_each(|shard| assert_eq!(store.lock(shard).moment(later), later));
    let entry = Entry { plan: &plan, key: "k", operation: CHECK };
    assert_eq!(store.answer(&entry, None).now, later);
    let mut simple = SimpleAnswer::default();
    assert!(store.try_simple_check(&plan, "k", 1, None, &mut simple));
    assert_eq!(simple.now, later);
    let entries = ["k", "l"].map(|key| Entry { plan: &plan, key, operation: CHECK });
    let answers = store.begin_all(&entries, CallContext::at(None), &mut LayerStates::default());
    let answers = answers.expect("answers").expect("no error");
    assert!(answers.iter().all(|answer| answer.now == later));
    assert_eq!(store.answer(&entry, Some(NOW)).now, NOW, "a time that is given stays");
}

#[test]
fn expired_usages_are_swept_when_others_are_added() {
    let store = memory(1_000_000, usize::MAX);
    let plan = plan_of(&Policy::parse("5/1ms").expect("a policy"));
    for number in 0..20_000 {
        let key = format!("key {number}");
        store.answer(&Entry { plan: &plan, key: &key, operation: CHECK }, None);
        if number % 100 == 0 {
            // Expiry is by the clock of the process, which a test cannot move.
            let start = store.clock.micros();
            while store.clock.micros() < start + 1_200 {
                std::hint::spin_loop();
            }
        }
    }
    assert!(stored(&store) < 2_000, "{} keys are left of 20,000", stored(&store));
}

#[test]
fn denied_keys_beyond_max_keys_are_kept_until_max_bytes_and_then_the_soonest_to_end_is_forgotten() {
    let store = memory(1_000, 2_000_000);
    let plan = plan_of(&Policy::parse("1/hour").expect("a policy"));
    let deny =
        |key: &str, now| assert_eq!([check(&store, &plan, key, now), check(&store, &plan, key, now)], [true, false]);
    // Within the bytes every denial is kept, although they are more than `max_keys`.
    let early: Vec<String> = (0..4_000).map(|number| format!("early {number}")).collect();
    early.iter().zip(NOW..).for_each(|(key, now)| deny(key, now));
    assert!(bytes(&store) < 2_000_000, "{} bytes", bytes(&store));
    assert!(early.iter().all(|key| !check(&store, &plan, key, NOW + 5_000)));
    assert_eq!(store.forgotten_denials.get(), 0);
    // Far more than fit: the bytes stay within their bound, and each denial that is forgotten is counted.
    let late: Vec<String> = (0..20_000).map(|number| format!("late {number}")).collect();
    late.iter().zip(NOW + 600_000_000..).for_each(|(key, now)| deny(key, now));
    assert!(bytes(&store) <= 2_000_000, "{} bytes", bytes(&store));
    let forgotten = store.forgotten_denials.get() as usize;
    assert_eq!(stored(&store) + forgotten, early.len() + late.len());
    // Those that end soonest went first.
    let (now, kept) = (NOW + 700_000_000, |keys: &[String], now| {
        keys.iter()
            .filter(|key| {
                let entry = Entry { plan: &plan, key, operation: Operation::peek(1) };
                !store.answer(&entry, Some(now)).applied
            })
            .count()
    });
    assert_eq!(kept(&early, now), 0, "a denial was kept that ends before others that were forgotten");
    assert_eq!(kept(&late, now), stored(&store));
    assert!(stored(&store) > 5_000, "{} keys for 2 MB", stored(&store));
}

#[test]
fn what_is_not_denied_goes_before_a_denial() {
    let store = memory(1_000_000, 1_000_000);
    let plan = plan_of(&Policy::parse("2/hour").expect("a policy"));
    let denied: Vec<String> = (0..500).map(|number| format!("denied {number}")).collect();
    for key in &denied {
        assert_eq!([0; 3].map(|_| check(&store, &plan, key, NOW)), [true, true, false]);
    }
    for number in 0..50_000_u64 {
        assert!(check(&store, &plan, &format!("flood {number}"), NOW + number));
    }
    assert!(bytes(&store) <= 1_000_000, "{} bytes", bytes(&store));
    assert_eq!(store.forgotten_denials.get(), 0);
    assert!(denied.iter().all(|key| !check(&store, &plan, key, NOW + 60_000)));
}

#[test]
fn a_debt_that_has_denied_no_check_yet_goes_after_what_is_not_denied() {
    for notation in ["fixed-window 10/day", "sliding-log 10/day", "gcra 10/day", "token-bucket 10/day"] {
        let store = memory(1_000, usize::MAX);
        let plan = plan_of(&Policy::parse(notation).expect("a policy"));
        let in_debt: Vec<String> = (0..50).map(|number| format!("in debt {number}")).collect();
        for key in &in_debt {
            let entry = Entry { plan: &plan, key, operation: Operation::charge(15) };
            store.answer(&entry, Some(NOW));
        }
        for number in 0..20_000_u64 {
            assert!(check(&store, &plan, &format!("flood {number}"), NOW + number));
        }
        for key in &in_debt {
            assert!(!check(&store, &plan, key, NOW + 20_000), "{notation}: {key} was forgotten");
        }
    }
}

#[test]
fn every_sort_of_state_is_counted_and_nothing_is_left_of_it() {
    // A log of many entries, a window of many granules, holds, several limits, a block and a journal with metadata.
    let mut policies: Vec<Policy> =
        ["sliding-log 1000000/hour", "sliding-window 1000000/hour", "concurrency 1000000 ttl 3600 s", "5/s; 5/m; 5/h"]
            .map(|notation| Policy::parse(notation).expect("a policy"))
            .into();
    let options = Options { journal: 100, ..Options::default() };
    let limits = Policy::parse("100/hour").expect("a policy").limits().to_vec();
    policies.push(Policy::new(limits, options).expect("a policy").named("journal").expect("a name"));
    for policy in &policies {
        let store = memory(1_000_000, 4_000_000);
        let plan = plan_of(policy);
        for number in 0..30_000_u64 {
            let key = format!("key {}", number % 100);
            let operation = Operation::Check {
                cost: 1,
                hold: number + 1,
                details: Details { meta: Some([7; 600].into()), ..Details::default() }.shared(),
            };
            let entry = Entry { plan: &plan, key: &key, operation };
            store.answer(&entry, Some(NOW + number * 100_000));
            let block = Entry { operation: Operation::Block { micros: 1_000 }, ..entry };
            store.answer(&block, Some(NOW + number * 100_000));
            assert!(bytes(&store) <= 4_000_000, "{policy}: {} bytes after {number} checks", bytes(&store));
        }
        let measured: usize = (0..store.shards.len()).map(|shard| store.lock(shard).measured_bytes()).sum();
        assert_eq!(bytes(&store), measured, "{policy}");
        // A year later each call removes a part of the expired usages.
        let later = NOW + 365 * 86_400_000_000;
        (0..100_u64).for_each(|number| store.sweep(later + number));
        assert_eq!((stored(&store), bytes(&store)), (0, 0), "{policy}");
    }
}

#[test]
fn a_key_with_much_state_does_not_push_out_the_keys_of_its_shard() {
    let store = memory(1_000_000, 8_000_000);
    let (small, large) = ["1000/hour", "sliding-log 10000000/hour"]
        .map(|notation| plan_of(&Policy::parse(notation).expect("a policy")))
        .into();
    let keys: Vec<String> = (0..10_000).map(|number| format!("small {number}")).collect();
    keys.iter().for_each(|key| assert!(check(&store, &small, key, NOW)));
    for number in 0..100_000_u64 {
        check(&store, &large, "large", NOW + number);
    }
    assert!(bytes(&store) <= 8_000_000);
    assert_eq!(stored(&store), keys.len() + 1, "there is room for all");
}

#[test]
fn a_long_key_takes_no_more_than_a_short_one_and_is_not_taken_for_another() {
    let store = memory(1_000_000, usize::MAX);
    let plan = plan_of(&Policy::parse("1/hour").expect("a policy"));
    for number in 0..200 {
        let key = format!("{number:060000}");
        assert_eq!([check(&store, &plan, &key, NOW), check(&store, &plan, &key, NOW)], [true, false]);
    }
    assert!(bytes(&store) <= 200 * 400, "{} bytes for 200 keys", bytes(&store));
}
