//! Tests which options exclude each other.

use super::*;
use crate::policy::Policy;

#[test]
fn what_cannot_lease_says_why() {
    let lease = Some(Lease::parse("5%").expect("a lease"));
    let error = |limits: &str, options: Options| {
        let limits = Policy::parse(limits).expect("a notation").limits().to_vec();
        Policy::new(limits, Options { lease, ..options }).expect_err("it cannot lease").message().to_owned()
    };
    let plain = Options::default;
    assert!(error("5/s; concurrency 3", plain()).contains("is held and given back"));
    assert!(error("leaky-bucket 5/s", plain()).contains("the store has to give each unit"));
    assert!(error("5/s", Options { count_denied: true, ..plain() }).contains("count_denied"));
    assert!(error("5/s", Options { journal: 5, ..plain() }).contains("a journal"));
}
