//! The data in Redis: which keys, in which slot, which bytes, and for how long.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use std::time::{Duration, Instant};

use proptest::prelude::*;
use proptest::test_runner::FileFailurePersistence;
use redis::Connection;
use tidegate::{Algorithm, CheckOptions, Decision, Limiter, ManualClock, Options, Policy};
use tidegate_tests::any_limiter::fresh_prefix;
use tidegate_tests::budget::share;
use tidegate_tests::decision_values::DecisionValues;
use tidegate_tests::hash_slot::hash_slot;
use tidegate_tests::model::Model;
use tidegate_tests::servers::{Kind, Servers};
use tidegate_tests::strategies::{self, Action};

const START: u64 = 1_704_067_200_000_000;
const ALL_RATES: &str = "fixed-window 5/minute; calendar-window 5/minute; sliding-log 5/minute; 5/minute; \
    sliding-counter 5/minute; token-bucket 5/minute; gcra 5/minute; leaky-bucket 5/minute";

/// One server for all tests here, with a connection besides those of the limiters.
static SERVER: LazyLock<(Servers, Mutex<Connection>)> = LazyLock::new(|| {
    let servers = Servers::start(Kind::Single);
    let client = redis::Client::open(servers.url()).expect("a URL");
    let connection = client.get_connection().expect("a connection");
    (servers, Mutex::new(connection))
});

fn query<T: redis::FromRedisValue>(command: &redis::Cmd) -> T {
    let mut connection = SERVER.1.lock().unwrap_or_else(PoisonError::into_inner);
    command.query(&mut connection).expect("an answer")
}

fn cases(cases: u32) -> ProptestConfig {
    let kept = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/stored.regressions");
    ProptestConfig {
        cases,
        failure_persistence: Some(Box::new(FileFailurePersistence::Direct(kept))),
        ..ProptestConfig::default()
    }
}

/// A limiter on the server, with a separate prefix and clock.
struct Stored {
    limiter: Limiter,
    clock: Arc<ManualClock>,
    prefix: String,
    now: u64,
}

impl Stored {
    fn new() -> Self {
        let (clock, prefix) = (Arc::new(ManualClock::new(Duration::from_micros(START))), fresh_prefix());
        let limiter = Limiter::builder().store(SERVER.0.url()).prefix(&prefix).clock(Arc::clone(&clock));
        let limiter = limiter.deny_cache(Duration::ZERO).timeout(Duration::from_secs(10)).build().expect("a limiter");
        Self { limiter, clock, prefix, now: START }
    }

    fn pass(&mut self, time: u64) {
        self.now += time;
        self.clock.set(Duration::from_micros(self.now));
    }

    fn check(&self, policy: &Policy, cost: u64) -> Decision {
        self.limiter.check_n(policy, "key", cost).expect("a check")
    }

    fn keys(&self) -> BTreeSet<Vec<u8>> {
        query(redis::cmd("KEYS").arg(format!("{}*", self.prefix)))
    }

    /// Every key with its serialized value.
    fn bytes(&self) -> BTreeMap<Vec<u8>, Vec<u8>> {
        self.keys().into_iter().map(|key| (key.clone(), query(redis::cmd("DUMP").arg(key)))).collect()
    }

    /// Every key with its time to live in milliseconds.
    fn lives(&self) -> BTreeMap<Vec<u8>, i64> {
        self.keys().into_iter().map(|key| (key.clone(), query(redis::cmd("PTTL").arg(key)))).collect()
    }

    /// The microseconds from now until everything except a block has lost its meaning.
    fn meaning(&self, policy: &Policy) -> u64 {
        let peek = self.limiter.peek(policy, "key", 1).expect("a peek");
        peek.limits().map(|limit| limit.reset_after.as_micros() as u64).max().unwrap_or(0)
    }
}

fn policy(notation: &str, options: Options) -> Policy {
    let limits = Policy::parse(notation).expect("a notation").limits().to_vec();
    Policy::new(limits, options).expect("in range").named("p").expect("short")
}

proptest! {
    #![proptest_config(cases(120))]

    #[test]
    fn a_denial_leaves_every_byte(
        policy in strategies::policy(strategies::RATES, 3, strategies::plain())
            .prop_filter("a bucket with initial starts with the first denial", |policy| {
                policy.limits().iter().all(|limit| limit.initial().is_none_or(|initial| initial == limit.capacity()))
            }),
        before in proptest::collection::vec((strategies::pause(), 1u64..6), 0..20),
        later in proptest::collection::vec((strategies::pause(), 1u64..50), 1..6),
    ) {
        let mut stored = Stored::new();
        for (pause, cost) in before {
            stored.pass(pause);
            stored.check(&policy, cost);
        }
        for (pause, cost) in later {
            stored.pass(pause);
            let bytes = stored.bytes();
            stored.limiter.peek(&policy, "key", cost).expect("a peek");
            prop_assert_eq!(&stored.bytes(), &bytes, "a peek");
            if stored.check(&policy, cost).allowed() {
                continue;
            }
            prop_assert_eq!(&stored.bytes(), &bytes, "a check");
            let both = [(&policy, "other", 1), (&policy, "key", cost)];
            prop_assert!(!stored.limiter.check_all(both).expect("a check_all").allowed());
            prop_assert_eq!(&stored.bytes(), &bytes, "a check_all");
        }
    }

    #[test]
    fn every_key_ends_within_a_second_after_its_meaning(
        policy in strategies::policy(&Algorithm::ALL, 3, strategies::any_options())
            .prop_filter("a bucket with initial keeps its meaning for longer", |policy| {
                policy.limits().iter().all(|limit| limit.initial().is_none_or(|initial| initial == limit.capacity()))
            }),
        actions in proptest::collection::vec((strategies::pause(), strategies::any_action()), 1..15),
    ) {
        let mut stored = Stored::new();
        // Units that went back leave traces until all earlier charges have ended.
        let (mut blocked_until, mut traces_until) = (0, 0);
        for (pause, action) in actions {
            stored.pass(pause);
            let began = Instant::now();
            let limiter = &stored.limiter;
            match action {
                action if !action.fits(&policy) => continue,
                Action::Check(cost) => {
                    let decision = stored.check(&policy, cost);
                    if !decision.allowed() || decision.shadow() {
                        continue;
                    }
                    blocked_until = 0;
                }
                Action::Charge(cost) => drop(limiter.charge(&policy, "key", cost).expect("a charge")),
                Action::Refund(cost) => {
                    // A sliding counter weighs its units until the end of the next window.
                    let counters = policy.limits().iter().filter(|limit| limit.algorithm() == Algorithm::SlidingCounter);
                    let weighed = counters.map(|limit| {
                        let period = limit.period().micros();
                        stored.now / period * period + 2 * period
                    });
                    let ends = weighed.fold(stored.now + stored.meaning(&policy), u64::max);
                    traces_until = traces_until.max(ends);
                    drop(limiter.refund(&policy, "key", cost).expect("a refund"));
                }
                Action::Unblock => {
                    limiter.unblock(&policy, "key").expect("an unblock");
                    blocked_until = 0;
                }
                Action::Block(length) => {
                    limiter.block(&policy, "key", Duration::from_micros(length)).expect("a block");
                    blocked_until = stored.now + length;
                }
                _ => continue,
            }
            // A denied check of this policy begins a block. Its end is not known here.
            if policy.options().block_for.is_some() {
                continue;
            }
            let meaning = stored.meaning(&policy).max(blocked_until.saturating_sub(stored.now));
            for (key, life) in stored.lives() {
                let journal = key.starts_with(format!("{}:j:", stored.prefix).as_bytes());
                let log = key.starts_with(format!("{}:l:", stored.prefix).as_bytes());
                prop_assert!(life > 0, "{:?} has a TTL", String::from_utf8_lossy(&key));
                if journal {
                    continue;
                }
                let longest = meaning.max(traces_until.saturating_sub(stored.now)).div_ceil(1_000) as i64 + 1_000;
                prop_assert!(life <= longest, "{} ms for {} µs", life, meaning);
                let lived = began.elapsed().as_millis() as i64 + 1;
                prop_assert!(log || life + lived >= (meaning / 1_000) as i64, "{} ms for {} µs", life, meaning);
            }
        }
    }

    #[test]
    fn pairs_never_share(
        pairs in proptest::collection::btree_set(("[ab:{}\u{0}]{1,3}", "[ab:{}\u{0}]{0,3}"), 2..40),
    ) {
        let policies: BTreeMap<&str, Policy> = pairs
            .iter()
            .map(|(name, _)| (name.as_str(), Policy::parse("fixed-window 1/day").unwrap().named(name.as_str()).unwrap()))
            .collect();
        let stored = Stored::new();
        let memory = Limiter::builder().build().expect("a limiter");
        for allowed in [true, false] {
            for (name, key) in &pairs {
                for limiter in [&stored.limiter, &memory] {
                    let decision = limiter.check(&policies[name.as_str()], key).expect("a check");
                    prop_assert_eq!(decision.allowed(), allowed, "{:?} {:?}", name, key);
                }
            }
        }
        prop_assert_eq!(stored.keys().len(), pairs.len());
    }
}

proptest! {
    #![proptest_config(cases(share(12)))]

    #[test]
    fn a_long_log_answers_as_the_model_does(
        count in 150u64..400,
        twin in prop_oneof![Just(""), Just("; sliding-log 500/10s"), Just("; sliding-log 250/9s; gcra 1000/s")],
        actions in proptest::collection::vec((0u64..60_000, 0u8..100, 1u64..4, 1u64..200), 300..500),
    ) {
        let mut stored = Stored::new();
        let mut model = Model::new(START);
        let mut policy = policy(&format!("sliding-log {count}/10s{twin}"), Options::default());
        for (pause, kind, cost, many) in actions {
            stored.pass(if kind == 0 { pause * 100 } else { pause });
            model.set(stored.now);
            match kind {
                0..=1 => {
                    let counts: Vec<u64> = policy.limits().iter().map(|_| 100 + many).collect();
                    policy = strategies::changed(&policy, &counts);
                }
                2..=4 => {
                    stored.limiter.refund(&policy, "key", many).expect("a refund");
                    model.refund(&policy, "key", many);
                }
                5..=6 => {
                    stored.limiter.charge(&policy, "key", cost).expect("a charge");
                    model.charge(&policy, "key", cost);
                }
                7..=12 => {
                    let found = DecisionValues::of(&stored.limiter.peek(&policy, "key", many).expect("a peek"));
                    prop_assert_eq!(found, model.peek(&policy, "key", many));
                }
                13..=18 => prop_assert_eq!(DecisionValues::of(&stored.check(&policy, many)), model.check(&policy, "key", many, None)),
                19..=25 => {
                    let options = CheckOptions { cost: many, partial: true, ..CheckOptions::default() };
                    let found = stored.limiter.check_with(&policy, "key", &options).expect("a partial check");
                    prop_assert_eq!(DecisionValues::of(&found), model.take(&policy, "key", many, None));
                }
                _ => prop_assert_eq!(DecisionValues::of(&stored.check(&policy, cost)), model.check(&policy, "key", cost, None)),
            }
        }
    }
}

#[test]
fn a_policy_and_key_have_one_slot_whatever_their_bytes() {
    let policy =
        policy("sliding-log 200/minute; fixed-window 200/minute", Options { journal: 5, ..Options::default() });
    let long = "{".repeat(10_000);
    let mut slots = BTreeSet::new();
    for key in ["", "a", "{", "}", "{}", "{a}", "{a}b", "}{", "\0", "\n", " ", "☂", "{{{}}}", &long] {
        let stored = Stored::new();
        // Enough entries for chunks of the log.
        for time in 0..150 {
            stored.clock.set(Duration::from_micros(START + time));
            assert!(stored.limiter.check(&policy, key).expect("a check").allowed());
        }
        let keys = stored.keys();
        assert_eq!(keys.len(), 3, "a value, chunks and a journal");
        let own: BTreeSet<u16> = keys.iter().map(|key| hash_slot(key)).collect();
        assert_eq!(own.len(), 1, "{key:?}: {own:?}");
        slots.extend(own);
    }
    assert!(slots.len() > 10, "and different keys have different slots");
}

#[test]
fn chunks_of_a_log_and_journals_end_too() {
    let mut stored = Stored::new();
    let policy = policy("sliding-log 300/10s", Options { journal: 5, ..Options::default() });
    for _ in 0..250 {
        stored.pass(1_000);
        assert!(stored.check(&policy, 1).allowed());
    }
    let lives = stored.lives();
    assert_eq!(lives.len(), 3);
    for (key, life) in lives {
        // All entries are of the last quarter of a second.
        assert!((9_000..=11_000).contains(&life), "{} has {life} ms", String::from_utf8_lossy(&key));
    }
    let bytes = stored.bytes();
    let full = stored.check(&policy, 100);
    assert!(!full.allowed());
    let journal = format!("{}:j:", stored.prefix).into_bytes();
    let after = stored.bytes();
    for (key, bytes) in bytes {
        assert_eq!(key.starts_with(&journal), after[&key] != bytes, "only the journal records a denial");
    }
    stored.limiter.refund(&policy, "key", 250).expect("a refund");
    assert!(
        stored.lives().values().all(|life| (1..=11_000).contains(life)),
        "the traces of the refund end with what it gave back"
    );
}

#[test]
fn a_lost_expiry_changes_no_answer() {
    let mut stored = Stored::new();
    let policy =
        policy(ALL_RATES, Options { block_for: Some("10 minutes".parse().expect("a length")), ..Options::default() });
    assert!(stored.check(&policy, 5).allowed());
    for round in 0..3 {
        assert!(!stored.check(&policy, 1).allowed());
        for key in stored.keys() {
            let _: i64 = query(redis::cmd("PERSIST").arg(key));
        }
        // Past every limit and the block.
        stored.pass(3_600_000_000);
        let peek = stored.limiter.peek(&policy, "key", 5).expect("a peek");
        assert!(peek.allowed(), "round {round}: {peek:?}");
        assert!(peek.limits().all(|limit| limit.remaining == 5 && limit.reset_after.is_zero()), "{peek:?}");
        assert!(stored.check(&policy, 5).allowed());
        assert!(stored.lives().values().all(|life| *life > 0), "it ends again");
    }
}

#[test]
fn nothing_is_written_outside_the_prefix() {
    let own = Servers::start(Kind::Single);
    let limiter = Limiter::builder().store(own.url()).prefix("mine").timeout(Duration::from_secs(10));
    let limiter = limiter.build().expect("a limiter");
    let noted = policy(ALL_RATES, Options { journal: 3, ..Options::default() });
    for key in ["a", "b", ""] {
        let options = CheckOptions { meta: Some(b"metadata".to_vec()), ..CheckOptions::default() };
        limiter.check_with(&noted, key, &options).expect("a check");
        limiter.block(&noted, key, Duration::from_secs(9)).expect("a block");
    }
    let keys = own.command(0, &["KEYS", "mine*"]);
    assert_eq!(own.command(0, &["DBSIZE"]), keys.as_array().expect("a list").len());
    for key in ["a", "b", ""] {
        limiter.clear(&noted, key).expect("a clear");
    }
    let left = own.command(0, &["KEYS", "mine*"]);
    let left = left.as_array().expect("a list");
    let of = |kind: &str| left.iter().filter(|key| key.as_str().is_some_and(|key| key.starts_with(kind))).count();
    assert_eq!(
        (left.len(), of("mine:j:"), of("mine:l:")),
        (6, 3, 0),
        "a value that was used keeps when it was cleared"
    );
}
