//! The rollout of a new store.

use std::collections::BTreeSet;
use std::time::Duration;

use tidegate::{ErrorKind, Limiter};
use tidegate_tests::servers::{Kind, Servers};

use super::{clock, scripts};

const PATIENT: Duration = Duration::from_secs(10);

#[test]
fn a_share_is_stable_and_grows_and_goes_back_at_once() {
    let (old, new) = (Servers::start(Kind::Single), Servers::start(Kind::Single));
    let limiter = Limiter::builder().rollout(old.url(), new.url(), 0.0).timeout(PATIENT).clock(clock());
    let limiter = limiter.build().expect("a limiter");
    let moved = || -> BTreeSet<u32> {
        let on_new = |number: &u32| {
            let before = scripts(&new);
            limiter.check("gcra 1000/s", &format!("user {number}")).expect("a decision");
            scripts(&new) > before
        };
        (0..200).filter(on_new).collect()
    };
    assert_eq!(moved().len(), 0);
    let mut smaller = BTreeSet::new();
    for percent in [10.0, 20.0, 60.0, 100.0] {
        limiter.set_rollout(percent).expect("a share");
        let now = moved();
        let wanted = percent / 100.0 * 200.0;
        assert!((now.len() as f64 - wanted).abs() < 25.0, "{} of 200 at {percent} %", now.len());
        assert!(smaller.is_subset(&now), "moved keys stay moved");
        assert_eq!(moved(), now, "a share is stable");
        smaller = now;
    }
    assert_eq!(smaller.len(), 200);
    limiter.set_rollout(0.0).expect("a share");
    assert_eq!(moved().len(), 0);
    for wrong in [-0.1, 100.1, f64::NAN, f64::INFINITY] {
        assert_eq!(limiter.set_rollout(wrong).expect_err("no share").kind(), ErrorKind::ConfigInvalid);
    }
    let plain = Limiter::builder().build().expect("a limiter");
    assert_eq!(plain.set_rollout(1.0).expect_err("no rollout").kind(), ErrorKind::ConfigInvalid);
}

#[test]
fn a_denial_of_the_new_store_ends_when_the_old_one_is_back() {
    let (old, new) = (Servers::start(Kind::Single), Servers::start(Kind::Single));
    let limiter = Limiter::builder().rollout(old.url(), new.url(), 100.0).timeout(PATIENT).clock(clock());
    let limiter = limiter.build().expect("a limiter");
    let check = || limiter.check("2/hour", "k").expect("a decision").allowed();
    assert_eq!([check(), check(), check(), check()], [true, true, false, false]);
    limiter.set_rollout(0.0).expect("a share");
    assert_eq!([check(), check(), check()], [true, true, false]);
}

#[test]
fn check_all_across_both_refunds_what_it_charged() {
    let (old, new) = (Servers::start(Kind::Single), Servers::start(Kind::Single));
    let limiter = Limiter::builder().rollout(old.url(), new.url(), 50.0).timeout(PATIENT).clock(clock());
    let limiter = limiter.build().expect("a limiter");
    let entries: Vec<_> =
        (0..20).map(|number| ("5/hour", format!("user {number}"), if number == 13 { 6 } else { 1 })).collect();
    for _ in 0..3 {
        assert!(!limiter.check_all(entries.clone()).expect("a decision").allowed());
    }
    for (policy, key, _) in &entries {
        assert_eq!(limiter.peek(*policy, key, 1).expect("a peek").remaining(), 5, "{key}");
    }
    assert!(scripts(&old) > 3 && scripts(&new) > 3);
}

#[test]
fn from_memory_to_a_server() {
    let new = Servers::start(Kind::Single);
    let limiter = Limiter::builder().rollout("memory://", new.url(), 50.0).timeout(PATIENT).build().expect("a limiter");
    for number in 0..40 {
        assert!(limiter.check("1/hour", &format!("user {number}")).expect("a decision").allowed());
        assert!(!limiter.check("1/hour", &format!("user {number}")).expect("a decision").allowed());
    }
    let held = new.command(0, &["DBSIZE"]).as_i64().expect("a number");
    assert!((8..32).contains(&held), "{held} of 40");
}
