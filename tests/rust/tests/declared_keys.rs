//! Every key that a script touches was declared, because some servers and proxies run no other scripts. Only a call over several
//! slots of a cluster has keys that no command can declare. `folding.rs` and the simulation test what happens if it is refused.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use redis::Value;
use tidegate::http::Observation;
use tidegate::{
    AsyncLimiter, Builder, CheckOptions, Cost, HoldAnswer, KeyOverride, Limiter, ManualClock, OnStoreError, Options,
    Policy,
};
use tidegate_tests::history;
use tidegate_tests::servers::{Kind, Servers};

/// The commands that a server serves from now on, as MONITOR prints them.
struct Monitor(redis::Connection);

impl Monitor {
    fn of(redis: &Servers) -> Self {
        let mut connection = redis.connection(0);
        connection.set_read_timeout(Some(Duration::from_secs(60))).expect("a timeout");
        redis::cmd("MONITOR").exec(&mut connection).expect("MONITOR");
        Self(connection)
    }

    /// The words of each command before the one with the word `end`, and true if a script ran it.
    fn until(mut self, end: &str) -> Vec<(bool, Vec<String>)> {
        let mut commands = Vec::new();
        loop {
            let Value::SimpleString(line) = self.0.recv_response().expect("a line") else { panic!("a line of text") };
            let (head, words) = line.split_once("] ").expect("a line of MONITOR");
            let words: Vec<String> = words[1..words.len() - 1].split("\" \"").map(str::to_owned).collect();
            if words.iter().any(|word| word == end) {
                return commands;
            }
            commands.push((head.ends_with(" lua"), words));
        }
    }
}

fn builder(redis: &Servers) -> Builder {
    let builder = Limiter::builder().store(redis.url()).timeout(Duration::from_secs(10));
    builder.on_store_error(OnStoreError::Raise).deny_cache(Duration::ZERO)
}

/// The calls that the histories leave out: overrides, leases, turns, lines, observations, and calls that travel together.
async fn everything_else(limiter: AsyncLimiter) {
    let own = KeyOverride::parse("9/minute").expect("limits");
    limiter.set_override("5/minute", "own", Some(&own), None).await.expect("an override");
    assert_eq!(limiter.overrides("5/minute").await.expect("a list").len(), 1);
    assert_eq!(limiter.check("5/minute", "own").await.expect("an answer").limit(), 9);
    limiter.set_override("5/minute", "own", None, None).await.expect("removed");

    // The log is so long that a part of it is in a second key, which the refund reads.
    for _ in 0..200 {
        assert!(limiter.check("sliding-log 1000/minute", "long").await.expect("an answer").allowed());
    }
    limiter.refund("sliding-log 1000/minute", "long", 150).await.expect("a refund");

    let options = Options { lease: Some("10".parse().expect("a lease")), ..Options::default() };
    let leased =
        Policy::new(Policy::parse("1000/s").expect("a notation").limits().to_vec(), options).expect("a policy");
    let turn = |policy: &'static str| limiter.acquire(policy, "turn", 1, Some(Duration::from_secs(5)));
    for _ in 0..30 {
        assert!(limiter.check(&leased, "leased").await.expect("an answer").allowed());
    }
    for policy in ["gcra 20/s burst 1", "2/100ms"] {
        for _ in 0..4 {
            assert!(turn(policy).await.expect("an answer").allowed());
        }
    }
    let HoldAnswer::Held(hold) = limiter.hold("concurrency 1", "held", 1).await.expect("a hold") else {
        panic!("full")
    };
    let waits = limiter
        .hold_within("concurrency 1", "held", &CheckOptions::from(Cost::from(1)), Some(Duration::from_millis(50)))
        .await;
    assert!(matches!(waits.expect("an answer"), HoldAnswer::Denied(_)));
    drop(hold);

    let mut said = Observation::default();
    (said.limit, said.remaining, said.reset_after) = (Some(10), Some(3), Some(Duration::from_secs(60)));
    limiter.observe("10/minute", "outgoing", vec![said], None).await.expect("learned");

    let options = Options { journal: 5, ..Options::default() };
    let log = Policy::new(Policy::parse("sliding-log 3/minute").expect("a notation").limits().to_vec(), options);
    let log = Arc::new(log.expect("a policy"));
    let mut waiting = tokio::task::JoinSet::new();
    for number in 0..40 {
        let (limiter, log) = (limiter.clone(), Arc::clone(&log));
        waiting.spawn(async move {
            let key = format!("together {}", number % 7);
            match number % 2 {
                0 => limiter.check(&*log, &key).await,
                _ => limiter.check("5/minute", &key).await,
            }
        });
    }
    for answer in waiting.join_all().await {
        answer.expect("an answer");
    }
    limiter.clear(&*log, "together 0").await.expect("cleared");
}

#[test]
fn every_key_of_a_script_is_declared() {
    let redis = Servers::start(Kind::Single);
    let monitor = Monitor::of(&redis);
    let commands = std::thread::spawn(|| monitor.until("the end"));
    let clock = Arc::new(ManualClock::new(Duration::ZERO));
    let limiter = builder(&redis).clock(Arc::clone(&clock)).build().expect("a limiter");
    for seed in 0..300 {
        let _answers = history::run(seed, &limiter, &clock);
    }
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime");
    runtime.block_on(everything_else(builder(&redis).build_async().expect("a limiter")));
    redis.command(0, &["ECHO", "the end"]);

    let mut declared: Vec<String> = Vec::new();
    let (mut touching, mut together) = (BTreeSet::new(), 0);
    for (by_script, words) in commands.join().expect("the commands") {
        let verb = words[0].to_ascii_uppercase();
        if by_script && verb != "TIME" {
            assert!(declared.contains(&words[1]), "{words:?} is not among {declared:?}");
            touching.insert(verb);
        } else if verb.starts_with("EVAL") {
            let count = words[2].parse().expect("a number of keys");
            declared = words[3..].iter().take(count).cloned().collect();
            together = together.max(count);
        }
    }
    // Nothing was left out: the value, the log, the journal, the overrides, and several keys at once.
    let expected =
        ["GET", "SET", "DEL", "HSET", "HGET", "HDEL", "HGETALL", "LPUSH", "LTRIM", "LRANGE", "PEXPIRE", "PTTL"];
    assert!(expected.iter().all(|verb| touching.contains(*verb)), "{touching:?}");
    assert!(together > 3, "{together}");
}
