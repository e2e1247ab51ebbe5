//! Keys with other numbers than their policy, from its file and set live, in memory and on servers.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tidegate::{CheckOptions, Decision, KeyOverride, Limiter, ManualClock, OnStoreError, Options, Overrides, Policy};
use tidegate_tests::any_limiter::fresh_prefix;
use tidegate_tests::budget::is_full;
use tidegate_tests::decision_values::DecisionValues;
use tidegate_tests::model::Model;
use tidegate_tests::random::Random;
use tidegate_tests::servers::{Kind, Servers, is_redis_6};
use tidegate_tests::shared_file::SharedFile;

const START: u64 = 1_704_067_200_000_000;

fn own(text: &str) -> KeyOverride {
    KeyOverride::parse(text).expect("limits")
}

fn policy(notation: &str, overrides: &[(&str, &str)]) -> Policy {
    let overrides: Overrides = overrides.iter().map(|(key, text)| (*key, own(text))).collect();
    let options = Options { overrides: Some(overrides), ..Options::default() };
    let limits = Policy::parse(notation).expect("a notation").limits().to_vec();
    Policy::new(limits, options).and_then(|policy| policy.named("p")).expect("a policy")
}

fn limiter(url: &str, prefix: &str, clock: Option<&Arc<ManualClock>>) -> Limiter {
    let builder = Limiter::builder().store(url).prefix(prefix).timeout(Duration::from_secs(10));
    let builder = builder.deny_cache(Duration::ZERO);
    clock.map_or(builder.clone(), |clock| builder.clock(Arc::clone(clock))).build().expect("a limiter")
}

fn on_each_store(run: impl Fn(&str)) {
    let (redis, shared) = (Servers::start(Kind::Single), SharedFile::new());
    ["memory://", &shared.url("max_bytes=8MB"), redis.url()].into_iter().for_each(run);
}

#[test]
fn a_policy_has_numbers_for_single_keys() {
    on_each_store(|url| {
        let policy = policy("2/hour", &[("alice", "5/hour"), ("org:7", "1/hour; 3/day"), ("internal", "none")]);
        let limiter = limiter(url, &fresh_prefix(), None);
        for (key, limit, admitted) in [("bob", 2, 2), ("alice", 5, 5), ("org:7", 1, 1), ("internal", 2, 40)] {
            let allowed = (0..40).filter(|_| limiter.check(&policy, key).expect("a decision").allowed()).count();
            let decision = limiter.peek(&policy, key, 1).expect("a peek");
            assert_eq!((allowed, decision.limit(), decision.overridden()), (admitted, limit, key != "bob"), "{key}");
        }
        let free = limiter.check_with(&policy, "internal", &CheckOptions { cost: 1_000, ..CheckOptions::default() });
        let free = free.expect("a decision");
        assert_eq!((free.allowed(), free.granted(), free.remaining()), (true, 1_000, 2));
    });
}

#[test]
fn a_policy_has_numbers_for_networks() {
    on_each_store(|url| {
        let networks =
            [("10.0.0.0/8", "5/hour"), ("10.1.0.0/16", "none"), ("10.1.2.3", "1/hour"), ("2001:db8::/32", "4/hour")];
        let (policy, prefix) = (policy("2/hour", &networks), fresh_prefix());
        let limiter = limiter(url, &prefix, None);
        for (key, admitted) in [
            ("9.9.9.9", 2),
            ("10.9.9.9", 5),
            ("::ffff:10.8.8.8", 5),
            ("10.1.9.9", 20),
            ("10.1.2.3", 1),
            ("2001:db8:1:2::/64", 4),
            ("2001:db9::1", 2),
        ] {
            let allowed = (0..20).filter(|_| limiter.check(&policy, key).expect("a decision").allowed()).count();
            let peek = limiter.peek(&policy, key, 1).expect("a peek");
            assert_eq!((allowed, peek.overridden()), (admitted, admitted != 2), "{key}");
        }
        // Each address has its own usage. A live override is of one key, and comes first.
        assert!(limiter.check(&policy, "10.9.9.8").expect("a decision").allowed());
        limiter.set_override(&policy, "10.9.9.8", Some(&own("9/hour")), None).expect("an override");
        assert_eq!(limiter.peek(&policy, "10.9.9.8", 1).expect("a peek").limit(), 9);
        limiter.set_override(&policy, "10.9.9.8", None, None).expect("a removal");
        let decision = limiter.check_all([(&policy, "10.9.9.8"), (&policy, "9.9.9.8")]).expect("a decision");
        assert_eq!(decision.decisions().iter().map(Decision::limit).collect::<Vec<_>>(), [5, 2]);
    });
}

/// A flood of addresses in ten thousand networks makes a plan for each network, and none for each address.
#[test]
fn a_flood_of_addresses_in_many_networks_is_bounded() {
    let networks: Vec<(String, &str)> =
        (0..10_000).map(|number| (format!("10.{}.{}.0/24", number / 256, number % 256), "9/hour")).collect();
    let networks: Vec<(&str, &str)> = networks.iter().map(|(network, text)| (&**network, *text)).collect();
    let policy = policy("2/hour", &networks);
    let limiter = limiter("memory://?max_keys=1000", &fresh_prefix(), None);
    for number in 0_u32..100_000 {
        let key = std::net::Ipv4Addr::from(0x0a00_0000 + number * 25).to_string();
        assert_eq!(limiter.check(&policy, &key).expect("a decision").limit(), 9, "{key}");
    }
}

#[test]
fn what_was_used_stays_used_and_what_is_removed_is_as_before() {
    on_each_store(|url| {
        let limiter = limiter(url, &fresh_prefix(), None);
        let check = || limiter.check("3/hour", "k").expect("a decision");
        assert!((0..3).all(|_| check().allowed()) && !check().allowed());
        limiter.set_override("3/hour", "k", Some(&own("5/hour; 100/day")), None).expect("an override");
        let decision = check();
        assert_eq!((decision.allowed(), decision.remaining(), decision.limits().len()), (true, 1, 2));
        assert_eq!((decision.overridden(), decision.policy()), (true, "3/hour"));
        // A clear forgets the usage, but not the numbers.
        limiter.clear("3/hour", "k").expect("a clear");
        assert_eq!((check().remaining(), check().limit()), (4, 5));
        limiter.set_override("3/hour", "k", Some(&own("none")), None).expect("an override");
        assert!((0..50).all(|_| check().allowed()));
        limiter.block("3/hour", "k", Duration::from_secs(60)).expect("a block");
        assert!(!check().allowed(), "a block denies whatever the numbers are");
        limiter.unblock("3/hour", "k").expect("an end");
        limiter.set_override("3/hour", "k", None, None).expect("a removal");
        let decision = check();
        assert_eq!((decision.allowed(), decision.overridden(), decision.remaining()), (true, false, 0));
        limiter.set_override("3/hour", "k", Some(&own("9/hour")), None).expect("an override");
        limiter.clear_all().expect("a clear");
        assert_eq!((check().limit(), limiter.overrides("3/hour").expect("a list")), (3, Vec::new()));
    });
}

/// An override may lack limits of the policy. They still belong to the same release.
#[test]
fn an_override_with_fewer_limits_is_no_other_release() {
    on_each_store(|url| {
        let told = Arc::new(Mutex::new(Vec::new()));
        let heard = Arc::clone(&told);
        let builder = Limiter::builder().store(url).prefix(fresh_prefix()).timeout(Duration::from_secs(10));
        let heard = move |sentence: &str| heard.lock().expect("no panic").push(sentence.to_owned());
        let limiter = builder.on_warning(Arc::new(heard)).build().expect("a limiter");
        let policy = policy("sliding-log 10/minute; 100/hour", &[]);
        assert!(limiter.check(&policy, "k").expect("a decision").allowed());
        limiter.set_override(&policy, "k", Some(&own("sliding-log 50/minute")), None).expect("an override");
        let decision = limiter.check(&policy, "k").expect("a decision");
        assert_eq!((decision.limit(), decision.overridden()), (50, true));
        assert_eq!(tidegate::host::other_limits(&decision), [""; 0]);
        assert_eq!(*told.lock().expect("no panic"), [""; 0], "{url}");
        assert!(limiter.check(self::policy("gcra 9/day", &[]), "k").expect("a decision").allowed());
        assert_eq!(told.lock().expect("no panic").len(), usize::from(url != "memory://"), "another one is told");
    });
}

#[test]
fn other_limiters_of_the_store_learn_at_once() {
    for kind in [Kind::Single, Kind::Cluster] {
        let redis = Servers::start(kind);
        let prefix = fresh_prefix();
        let (one, other) = (limiter(redis.url(), &prefix, None), limiter(redis.url(), &prefix, None));
        let policy = policy("2/hour", &[("file", "4/hour")]);
        for key in ["file", "k", "{braces}", "ключ"] {
            let limit = |limiter: &Limiter| limiter.check(&policy, key).expect("a decision").limit();
            let before = limit(&other);
            one.set_override(&policy, key, Some(&own("7/hour")), None).expect("an override");
            assert_eq!((limit(&one), limit(&other), limit(&other)), (7, 7, 7), "{key}");
            one.set_override(&policy, key, Some(&own("8/hour; 9/day")), None).expect("an override");
            assert_eq!((limit(&other), limit(&one)), (8, 8), "{key}");
            assert_eq!(one.overrides(&policy).expect("a list").len(), 1);
            one.set_override(&policy, key, None, None).expect("a removal");
            assert_eq!((limit(&other), limit(&one)), (before, before), "{key}");
        }
    }
}

/// Once nothing is stored about the key, no value tells the other limiter that the override has gone.
#[test]
fn a_peek_learns_that_the_override_of_an_unused_key_was_removed() {
    let (redis, shared, postgres) = (Servers::start(Kind::Single), SharedFile::new(), Servers::start(Kind::Postgres));
    let table = format!("{}?create=yes", postgres.url());
    for url in [&shared.url("max_bytes=8MB"), redis.url(), &table] {
        let prefix = fresh_prefix();
        let (one, other) = (limiter(url, &prefix, None), limiter(url, &prefix, None));
        let policy = policy("2/hour", &[]);
        one.set_override(&policy, "k", Some(&own("7/hour")), None).expect("an override");
        let peeked = || other.peek(&policy, "k", 1).expect("a decision").limit();
        assert_eq!(peeked(), 7, "{url}");
        one.set_override(&policy, "k", None, None).expect("a removal");
        assert_eq!(peeked(), 2, "{url}");
    }
}

/// If the server forbids a command, that is not the fault of the key.
#[test]
fn a_command_that_the_script_may_not_run_is_no_broken_state() {
    let user = "on >secret ~* -@all +ping +get +eval +evalsha +set +del +time";
    let redis = Servers::start_with(Kind::Single, serde_json::json!({"users": {"least": user}}));
    let url = redis.url().replace("://", "://least:secret@");
    let limiter = Limiter::builder().store(url).on_store_error(OnStoreError::Raise);
    let limiter = limiter.timeout(Duration::from_secs(10)).build().expect("a limiter");
    let journal = Options { journal: 10, ..Options::default() };
    let limits = Policy::parse("2/hour").expect("a notation").limits().to_vec();
    let journal = Policy::new(limits, journal).and_then(|policy| policy.named("journal")).expect("a policy");
    assert!(limiter.check(policy("2/hour", &[]), "k").expect("a decision").allowed());
    let failures =
        [limiter.check(&journal, "k").map(drop), limiter.set_override("2/hour", "k", Some(&own("7/hour")), None)];
    for failure in failures {
        let error = failure.expect_err("the user may not");
        assert!(error.message().contains("the ACL user lacks a command"), "{error}");
    }
}

/// A server that refuses a write gives the reason, whatever the write was for.
#[test]
fn a_write_that_the_server_refuses_is_no_broken_state() {
    let redis = Servers::start(Kind::Single);
    let limiter = Limiter::builder().store(redis.url()).timeout(Duration::from_secs(10)).deny_cache(Duration::ZERO);
    let limiter = limiter.on_store_error(OnStoreError::Raise).build().expect("a limiter");
    let journal = Options { journal: 10, ..Options::default() };
    let journal =
        Policy::new(Policy::parse("1/hour").expect("a notation").limits().to_vec(), journal).expect("a policy");
    let log = Policy::parse("sliding-log 2000/hour").expect("a policy");
    for _ in 0..2 {
        limiter.check(&journal, "k").expect("a decision");
    }
    for _ in 0..127 {
        limiter.check(&log, "k").expect("a decision");
    }
    limiter.set_override("3/hour", "old", Some(&own("5/hour")), None).expect("an override");
    let mut refusals = vec![("OOM", ["CONFIG", "SET", "maxmemory", "1"], ["CONFIG", "SET", "maxmemory", "0"])];
    // Redis 6.2 does not ask for replicas before a write of a script.
    if !is_redis_6() {
        let least = |number| ["CONFIG", "SET", "min-replicas-to-write", number];
        refusals.push(("NOREPLICAS", least("1"), least("0")));
    }
    for (code, begin, end) in refusals {
        redis.command(0, &begin);
        let refused = [
            ("set", limiter.set_override("3/hour", "k", Some(&own("5/hour")), None).err()),
            ("check", limiter.check("3/hour", "k").err()),
            ("journal", limiter.check(&journal, "k").err()),
            ("log", (0..200).find_map(|_| limiter.check(&log, "k").err())),
            ("block", limiter.block("3/hour", "k", Duration::from_secs(9)).err()),
        ];
        redis.command(0, &end);
        for (call, error) in refused {
            let error = error.unwrap_or_else(|| panic!("{call} was served under {code}"));
            assert!(error.message().contains(code) && !error.message().contains("state"), "{call}: {error}");
            assert!(code != "OOM" || error.message().contains("maxmemory: raise it"), "{call}: {error}");
        }
        limiter.set_override("3/hour", "k", Some(&own("5/hour")), None).expect("all is well again");
    }
    redis.command(0, &["REPLICAOF", "127.0.0.1", "1"]);
    let error = limiter.set_override("3/hour", "k", None, None).expect_err("it only reads");
    assert!(error.message().contains("READONLY"), "{error}");
    let error = limiter.set_override("3/hour", "k", Some(&own("6/hour")), None).expect_err("it only reads");
    assert!(error.message().contains("READONLY") && error.message().contains("connect to the primary"), "{error}");
}

/// The keys of these policies have companions in their slot. The list of overrides has none.
#[test]
fn policies_with_logs_and_journals_have_overrides_in_a_cluster() {
    let cluster = Servers::start(Kind::Cluster);
    let limiter = limiter(cluster.url(), &fresh_prefix(), None);
    let journal = Options { journal: 10, ..Options::default() };
    let limits = |notation: &str| Policy::parse(notation).expect("a notation").limits().to_vec();
    for (name, notation, options) in [
        ("log", "sliding-log 2/hour", Options::default()),
        ("journal", "2/hour", journal.clone()),
        ("both", "sliding-log 2/hour", journal),
    ] {
        let policy = Policy::new(limits(notation), options).and_then(|policy| policy.named(name)).expect("a policy");
        for key in ["a", "b", "c", "d"] {
            assert!(limiter.check(&policy, key).expect("a decision").allowed());
            limiter.set_override(&policy, key, Some(&own("7/hour")), None).expect("an override");
            assert_eq!(limiter.check(&policy, key).expect("a decision").limit(), 7, "{name} {key}");
            assert_eq!(limiter.overrides(&policy).expect("a list").len(), 1);
            limiter.set_override(&policy, key, None, None).expect("a removal");
            assert_eq!(limiter.check(&policy, key).expect("a decision").limit(), 2, "{name} {key}");
            assert_eq!(limiter.overrides(&policy).expect("a list").len(), 0);
        }
    }
}

#[test]
fn every_call_has_the_numbers_of_its_key() {
    on_each_store(|url| {
        let prefix = fresh_prefix();
        let (setter, limiter) = (limiter(url, &prefix, None), limiter(url, &prefix, None));
        // In memory each limiter has a separate store.
        let setter = if url.starts_with("memory") { &limiter } else { &setter };
        let named = |notation: &str, name: &str| {
            Policy::parse(notation).and_then(|policy| policy.named(name)).expect("a policy")
        };
        let (rate, pool) = (named("1/hour", "rate"), named("concurrency 1", "pool"));
        for key in ["charge", "refund", "take", "all", "wait", "settle"] {
            setter.set_override(&rate, key, Some(&own("10/hour")), None).expect("an override");
        }
        assert_eq!(limiter.charge(&rate, "charge", 4).expect("a charge").remaining(), 6);
        assert_eq!(limiter.refund(&rate, "refund", 4).expect("a refund").limit(), 10);
        let part = CheckOptions { cost: 20, partial: true, ..CheckOptions::default() };
        assert_eq!(limiter.check_with(&rate, "take", &part).expect("a decision").granted(), 10);
        let all = limiter.check_all([(&rate, "all", 6), (&rate, "plain", 1)]).expect("a decision");
        assert_eq!((all.allowed(), all.decisions()[0].remaining(), all.decisions()[1].overridden()), (true, 4, false));
        let waited = limiter.acquire(&rate, "wait", 10, Some(Duration::from_secs(1))).expect("a decision");
        assert!(waited.allowed() && waited.overridden());
        let refused = limiter.acquire(&rate, "wait", 10, Some(Duration::from_millis(20))).expect("a decision");
        assert!(!refused.allowed() && refused.limit() == 10);
        let settled = limiter.check_with(&rate, "settle", &CheckOptions { cost: 8, ..CheckOptions::default() });
        limiter.settle(&settled.expect("a decision"), 3).expect("a settle");
        assert_eq!(limiter.peek(&rate, "settle", 1).expect("a peek").remaining(), 7);
        setter.set_override(&pool, "k", Some(&own("concurrency 3")), None).expect("an override");
        let holds: Vec<_> = (0..4).map(|_| limiter.hold(&pool, "k", 1).expect("an answer")).collect();
        assert_eq!(holds.iter().filter(|hold| matches!(hold, tidegate::HoldAnswer::Held(_))).count(), 3);
        drop(holds);
        setter.set_override(&pool, "k", Some(&own("none")), None).expect("an override");
        let holds: Vec<_> = (0..9).map(|_| limiter.hold(&pool, "k", 1).expect("an answer")).collect();
        assert!(holds.iter().all(|hold| matches!(hold, tidegate::HoldAnswer::Held(hold) if !hold.lost())));
    });
}

#[test]
fn units_that_an_override_has_not_are_not_limited() {
    on_each_store(|url| {
        let limiter = limiter(url, &fresh_prefix(), None);
        let policy =
            Policy::parse("500/minute; 1000 tokens/minute").and_then(|policy| policy.named("llm")).expect("a policy");
        limiter
            .set_override(&policy, "k", Some(&own("2000 tokens/minute; 9 requests/minute")), None)
            .expect("an override");
        let options = CheckOptions { units: [("tokens", 1_500)].into(), ..CheckOptions::default() };
        let decision = limiter.check_with(&policy, "k", &options).expect("a decision");
        let left: Vec<u64> = decision.limits().map(|limit| limit.remaining).collect();
        assert_eq!((decision.allowed(), left), (true, vec![500, 8]));
        limiter.settle(&decision, [("tokens", 100)]).expect("a settle");
        let peek = limiter.peek(&policy, "k", [("tokens", 1)]).expect("a peek");
        assert_eq!(peek.limits().map(|limit| limit.remaining).collect::<Vec<_>>(), [1_900, 8]);
    });
}

#[test]
fn what_is_no_override_is_refused() {
    let limiter = limiter("memory://", "tg", None);
    let code = |key: &str, text: &KeyOverride, ttl| {
        limiter.set_override("5/s", key, Some(text), ttl).expect_err("an error").code()
    };
    assert_eq!(KeyOverride::parse("5/fortnight").expect_err("an error").code(), "policy_invalid");
    assert_eq!(code("k", &own("concurrency 4"), None), "policy_invalid");
    assert_eq!(code("k", &own("5 tokens/s"), None), "policy_invalid");
    assert_eq!(code(&"k".repeat(1_025), &own("5/s"), None), "key_invalid");
    assert_eq!(code("k", &own("5/s"), Some(Duration::ZERO)), "config_invalid");
    assert_eq!(code("k", &own("5/s"), Some(Duration::from_secs(400_000_000))), "config_invalid");
}

#[test]
fn a_list_is_bounded_and_without_what_has_ended() {
    on_each_store(|url| {
        let clock = Arc::new(ManualClock::new(Duration::from_micros(START)));
        let limiter = limiter(url, &fresh_prefix(), Some(&clock));
        let minute = Some(Duration::from_secs(60));
        for number in 0..3 {
            limiter.set_override("5/s", &format!("k{number}"), Some(&own("6/s")), minute).expect("an override");
        }
        limiter.set_override("5/s", "stays", Some(&own("none")), None).expect("an override");
        let listed = limiter.overrides("5/s").expect("a list");
        assert_eq!(
            listed.iter().map(|own| (&*own.key, &*own.limits)).collect::<Vec<_>>(),
            [("k0", "6/s"), ("k1", "6/s"), ("k2", "6/s"), ("stays", "none")]
        );
        assert!(listed[0].expires_at.is_some() && listed[3].expires_at.is_none());
        assert_eq!(limiter.check("5/s", "k0").expect("a decision").limit(), 6);
        clock.advance(Duration::from_secs(60));
        assert_eq!(limiter.check("5/s", "k0").expect("a decision").limit(), 5);
        assert_eq!(limiter.overrides("5/s").expect("a list").len(), 1);
        let other = self::limiter(url, &fresh_prefix(), Some(&clock));
        assert_eq!(other.overrides("5/s").expect("a list"), [], "{url}: of another prefix");
    });
}

#[test]
fn ten_thousand_keys_of_a_policy_and_no_more() {
    on_each_store(|url| {
        // This is slow, because a file reads its records again and again to count them.
        if url.starts_with("file:") && !is_full() {
            return;
        }
        let limiter = limiter(url, &fresh_prefix(), None);
        for number in 0..10_000 {
            limiter.set_override("5/s", &number.to_string(), Some(&own("6/s")), None).expect("an override");
        }
        let beyond = limiter.set_override("5/s", "beyond", Some(&own("6/s")), None).expect_err("it is full");
        assert_eq!(beyond.code(), "config_invalid", "{beyond}");
        assert_eq!(limiter.check("5/s", "beyond").expect("a decision").limit(), 5);
        limiter.set_override("5/s", "7", Some(&own("7/s")), None).expect("one that is there");
        limiter.set_override("5/s", "8", None, None).expect("a removal");
        limiter.set_override("5/s", "beyond", Some(&own("6/s")), None).expect("there is room");
        assert_eq!(limiter.overrides("5/s").expect("a list").len(), 10_000);
    });
}

#[test]
fn nothing_is_left_of_an_override_that_ends_or_is_removed() {
    let redis = Servers::start(Kind::Single);
    let prefix = fresh_prefix();
    let limiter = limiter(redis.url(), &prefix, None);
    let mut connection =
        redis::Client::open(redis.url()).and_then(|client| client.get_connection()).expect("a connection");
    let mut lives = || -> Vec<i64> {
        let keys: Vec<Vec<u8>> = redis::cmd("KEYS").arg(format!("{prefix}*")).query(&mut connection).expect("keys");
        let life = |key| redis::cmd("PTTL").arg(key).query(&mut connection).expect("a life");
        keys.into_iter().map(life).collect()
    };
    limiter.set_override("5/s", "k", Some(&own("6/s")), Some(Duration::from_secs(100))).expect("an override");
    assert!(lives().iter().all(|life| (99_000..=101_000).contains(life)), "{:?}", lives());
    limiter.set_override("5/s", "k", Some(&own("6/s")), None).expect("an override");
    assert_eq!(lives(), [-1, -1], "without an end both keys stay");
    limiter.set_override("5/s", "other", Some(&own("6/s")), Some(Duration::from_secs(100))).expect("an override");
    limiter.set_override("5/s", "k", None, None).expect("a removal");
    assert!(lives().iter().all(|life| (0..=101_000).contains(life)), "{:?}", lives());
    limiter.set_override("5/s", "other", None, None).expect("a removal");
    assert_eq!(lives(), [] as [i64; 0]);
}

/// The model has no overrides. For one key, it plays the change of a policy instead.
#[test]
fn random_histories_are_those_of_a_policy_that_changes() {
    let (redis, shared) = (Servers::start(Kind::Single), SharedFile::new());
    let mut random = Random::new(7);
    let texts = [
        "5/10s",
        "20/10s",
        "3/2s; 8/10s",
        "gcra 2/s burst 4",
        "gcra 5/s burst 9",
        "token-bucket 6/3s",
        "token-bucket 2/3s",
        "fixed-window 4/5s; 5/10s",
        "sliding-log 6/4s",
    ];
    for round in 0..40 {
        for url in ["memory://", &shared.url("max_bytes=16MB"), redis.url()] {
            let clock = Arc::new(ManualClock::new(Duration::from_micros(START)));
            let prefix = fresh_prefix();
            let named = |text: &str| Policy::parse(text).and_then(|policy| policy.named("p")).expect("a policy");
            let base = named(random.pick(&texts));
            let first = limiter(url, &prefix, Some(&clock));
            let second = if url.starts_with("memory") { first.clone() } else { limiter(url, &prefix, Some(&clock)) };
            let mut model = Model::new(START);
            let (mut effective, mut is_overridden) = (base.clone(), false);
            for step in 0..80 {
                let pause = random.pick(&[0, 1, 1_000, 300_000, 2_000_000]);
                clock.advance(Duration::from_micros(pause));
                model.set(model.now() + pause);
                let by = if random.one_in(2) { &first } else { &second };
                let cost = random.pick(&[1, 1, 1, 2, 3]);
                let overridden = is_overridden;
                let compare = |found: tidegate::Result<Decision>, expected: DecisionValues| {
                    let expected = DecisionValues { overridden, ..expected };
                    let found = DecisionValues::of(&found.expect("a decision"));
                    assert_eq!(found, expected, "round {round}, step {step} on {url}: {base} as {effective}");
                };
                match random.below(12) {
                    0 => {
                        let text = random.pick(&texts);
                        by.set_override(&base, "k", Some(&own(text)), None).expect("an override");
                        (effective, is_overridden) = (named(text), true);
                        model.adopt(&effective, "k");
                    }
                    1 => {
                        by.set_override(&base, "k", None, None).expect("a removal");
                        effective = base.clone();
                        if std::mem::take(&mut is_overridden) {
                            model.adopt(&effective, "k");
                        }
                    }
                    2 => {
                        by.clear(&base, "k").expect("a clear");
                        model.clear(&effective, "k");
                    }
                    3 => {
                        by.charge(&base, "k", cost).expect("a charge");
                        model.charge(&effective, "k", cost);
                    }
                    4 => compare(by.peek(&base, "k", cost), model.peek(&effective, "k", cost)),
                    5 => {
                        let options = CheckOptions { cost: 5, partial: true, ..CheckOptions::default() };
                        compare(by.check_with(&base, "k", &options), model.take(&effective, "k", 5, None));
                    }
                    _ => compare(by.check_n(&base, "k", cost), model.check(&effective, "k", cost, None)),
                }
            }
        }
    }
}

#[test]
fn a_small_memory_keeps_the_overrides_that_it_has_and_refuses_more() {
    let clock = Arc::new(ManualClock::new(Duration::from_micros(START)));
    let limiter = limiter("memory://?max_bytes=1MB", &fresh_prefix(), Some(&clock));
    let set = |policy: &str, key: &str, ttl: Option<Duration>| {
        limiter.set_override(policy, key, Some(&own("fixed-window 7/hour")), ttl)
    };
    // Keys of policies without a name. There may be any number of these.
    let (mut kept, mut refused) = (Vec::new(), None);
    for number in 0..100_000_u64 {
        let (policy, key) = (format!("fixed-window {}/hour", number / 10 + 8), format!("key {number}"));
        match set(&policy, &key, Some(Duration::from_secs(60))) {
            Ok(()) => kept.push((policy, key)),
            Err(error) => {
                refused = Some(error);
                break;
            }
        }
    }
    let error = refused.expect("a megabyte is not enough");
    assert_eq!(error.code(), "config_invalid");
    assert!(error.message().contains("max_bytes"), "{error}");
    assert!((2_000..20_000).contains(&kept.len()), "{} keys in a megabyte", kept.len());
    // Other keys push none of the overrides out.
    for number in 0..20_000 {
        limiter.check("fixed-window 3/hour", &format!("other {number}")).expect("a decision");
    }
    for (policy, key) in kept.iter().step_by(97) {
        assert_eq!(limiter.peek(policy.as_str(), key, 1).expect("a peek").limit(), 7, "{policy} {key}");
    }
    // A removal makes room, and so does the end of other overrides.
    for (policy, key) in &kept[..10] {
        limiter.set_override(policy.as_str(), key, None, None).expect("a removal");
    }
    set("9/minute", "one more", None).expect("there is room");
    assert!((0..50).any(|number| set("9/minute", &format!("more {number}"), None).is_err()), "and not for many");
    let before = limiter.overrides("9/minute").expect("a list").len();
    clock.advance(Duration::from_secs(61));
    for number in 0..1_000 {
        set("9/minute", &format!("later {number}"), None).expect("those before have ended");
    }
    assert_eq!(limiter.overrides("9/minute").expect("a list").len(), before + 1_000);
    limiter.clear_all().expect("a clear");
    for number in 0..kept.len() as u64 {
        set(&format!("fixed-window {}/hour", number / 10 + 8), &format!("key {number}"), None).expect("all are gone");
    }
}
