//! `on_near_limit` is called before a limit is reached, once for each key and window.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tidegate::{Builder, ErrorKind, KeyOverride, Limiter, ManualClock, NearLimit, Options, Overrides, Policy};

/// A limiter on a clock, and the keys that it told.
fn told(change: impl FnOnce(Builder) -> Builder) -> (Limiter, Arc<ManualClock>, Arc<Mutex<Vec<NearLimit>>>) {
    let (near, clock) =
        (Arc::<Mutex<Vec<NearLimit>>>::default(), Arc::new(ManualClock::new(Duration::from_secs(1_700_000_040))));
    let noted = Arc::clone(&near);
    let listener = move |near: &NearLimit| noted.lock().expect("a lock").push(near.clone());
    let builder = Limiter::builder().clock(Arc::clone(&clock)).on_near_limit(Arc::new(listener));
    (change(builder).build().expect("a limiter"), clock, near)
}

fn keys(near: &Mutex<Vec<NearLimit>>) -> Vec<String> {
    near.lock().expect("a lock").iter().map(|near| near.key.clone()).collect()
}

#[test]
fn each_key_is_told_once_in_a_window_before_its_limit() {
    let (limiter, clock, near) = told(|builder| builder);
    let notation = "fixed-window 10/minute; fixed-window 1000/day";
    for key in ["alice", "bob"] {
        for count in 1..=15 {
            limiter.check(notation, key).expect("a decision");
            assert_eq!(keys(&near).iter().filter(|told| *told == key).count(), usize::from(count >= 8), "{count}");
        }
    }
    let first = near.lock().expect("a lock")[0].clone();
    assert_eq!(
        (&*first.policy, &*first.key, &*first.notation),
        ("fixed-window 10/minute; fixed-window 1000/day", "alice", "fixed-window 10/minute")
    );
    assert_eq!((first.limit, first.remaining, first.reset_after), (10, 2, Duration::from_secs(60)));
    clock.advance(Duration::from_secs(59));
    limiter.check(notation, "alice").expect("a decision");
    clock.advance(Duration::from_secs(1));
    limiter.check_n(notation, "alice", 7).expect("a decision");
    assert_eq!(keys(&near), ["alice", "bob"]);
    limiter.charge(notation, "alice", 1).expect("a decision");
    assert_eq!(keys(&near), ["alice", "bob", "alice"]);
}

#[test]
fn only_admissions_of_limited_keys_are_told() {
    let (limiter, _, near) = told(|builder| builder);
    limiter.peek("1/minute", "peeks", 1).expect("a peek");
    limiter.check_n("5/minute", "too much", 6).expect("a decision");
    let overrides: Overrides = [("free", KeyOverride::unlimited())].into_iter().collect();
    let limits = Policy::parse("1/minute").expect("a policy").limits().to_vec();
    let policy = Policy::new(limits, Options { overrides: Some(overrides), ..Options::default() }).expect("a policy");
    limiter.check(&policy, "free").expect("a decision");
    assert_eq!(keys(&near), Vec::<String>::new());
    // Other ways to an answer.
    assert!(limiter.acquire("5/minute", "acquires", 4, None).expect("a decision").allowed());
    limiter.check_all([("5/minute", "a", 4), ("5/minute", "b", 1)]).expect("a decision");
    drop(limiter.hold("concurrency 1", "holds", 1).expect("a hold"));
    assert_eq!(keys(&near), ["acquires", "a", "holds"]);
}

#[test]
fn the_part_is_an_option_and_a_panic_changes_no_answer() {
    for (part, expected) in [(0.5, 5), (0.7, 7), (1.0, 10), (0.05, 1)] {
        let (limiter, _, near) = told(|builder| builder.near_limit(part));
        let used = (1..=10).find(|_| {
            limiter.check("10/minute", "k").expect("a decision");
            !near.lock().expect("a lock").is_empty()
        });
        assert_eq!(used, Some(expected), "{part}");
    }
    for part in [0.0, -1.0, 1.1, f64::NAN] {
        let error = Limiter::builder().near_limit(part).build().expect_err("no part");
        assert!(error.kind() == ErrorKind::ConfigInvalid && error.message().contains("near_limit"), "{error}");
    }
    let lines = Arc::<Mutex<Vec<String>>>::default();
    let said = Arc::clone(&lines);
    let warned = move |line: &str| said.lock().expect("a lock").push(line.to_owned());
    let builder = Limiter::builder().on_near_limit(Arc::new(|_| panic!("a mistake"))).on_warning(Arc::new(warned));
    let limiter = builder.build().expect("a limiter");
    assert!(limiter.check("1/minute", "k").expect("a decision").allowed());
    assert_eq!(*lines.lock().expect("a lock"), ["on_near_limit panicked"]);
}
