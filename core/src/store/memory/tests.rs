use super::*;
use crate::plan_cache::plan_of;
use crate::policy::Policy;
use crate::store::request::Operation;

const CHECK: Operation = Operation::Check { cost: 1, hold: 0, meta: None };

fn stored(store: &Memory) -> usize {
    store.shards.iter().map(|shard| shard.lock().usages.len()).sum()
}

#[test]
fn a_flood_of_keys_stays_within_bounds_and_admits_no_key_that_is_denied() {
    let store = Memory::new(2_000);
    let plan = plan_of(&Policy::parse("2/hour").expect("a policy"));
    let check = |key: &str, now| {
        store.ask(&Entry { plan: &plan, key, operation: CHECK }, CallContext::at(Some(now))).expect("an answer").applied
    };
    let now = 1_800_000_000_000_000;
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

#[test]
fn expired_usages_are_swept_when_others_are_added() {
    let store = Memory::new(1_000_000);
    let plan = plan_of(&Policy::parse("5/1ms").expect("a policy"));
    for number in 0..20_000 {
        let key = format!("key {number}");
        store.ask(&Entry { plan: &plan, key: &key, operation: CHECK }, CallContext::default()).expect("an answer");
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
