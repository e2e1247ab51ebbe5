//! Shared code of the tests. A mistake in it would let a test pass that proves nothing.

use tidegate_tests::budget::{is_full, within};
use tidegate_tests::hash_slot::hash_slot;

#[test]
fn a_slot_is_what_redis_says_it_is() {
    assert_eq!((hash_slot(b"123456789"), hash_slot(b"foo{bar}baz"), hash_slot(b"bar")), (12_739, 5_061, 5_061));
}

#[test]
fn without_time_a_hundredth_of_the_cases_runs_and_with_enough_all_of_them() {
    let mut cases = within(0, 5..1_005);
    let seeds: Vec<u64> = cases.by_ref().collect();
    let expected = if is_full() { 1_000 } else { 10 };
    assert_eq!((seeds, cases.begun()), ((5..5 + expected).collect(), expected));
    assert_eq!(within(0, [7]).collect::<Vec<_>>(), [7], "a single case always runs");
    assert_eq!(within(3_600, 0..100).count(), 100);
}
