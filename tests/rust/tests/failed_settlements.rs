//! Charges when things go wrong: a settle without a reply, a key that was cleared or lost, two releases, several slots.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::json;
use tidegate::{ErrorKind, Lease, Limiter, ManualClock, OnStoreError, Options, Policy, Source};
use tidegate_tests::proxy::{Condition, Proxy};
use tidegate_tests::servers::{Kind, Servers};
use tidegate_tests::wait::wait_until;

fn named(notation: &str, options: Options) -> Policy {
    let limits = Policy::parse(notation).expect("a notation").limits().to_vec();
    Policy::new(limits, options).expect("in range").named("p").expect("a name")
}

fn plain(notation: &str) -> Policy {
    named(notation, Options::default())
}

fn limiter(url: &str, prefix: &str) -> Limiter {
    let builder = Limiter::builder().store(url).prefix(prefix).timeout(Duration::from_secs(10));
    builder.deny_cache(Duration::ZERO).build().expect("a limiter")
}

#[test]
fn a_settle_whose_outcome_is_not_known_ends_the_decision() {
    let redis = Servers::start(Kind::Single);
    let proxy = Proxy::to(redis.port(0));
    let url = format!("redis://127.0.0.1:{}", proxy.port());
    let behind = Limiter::builder().store(url).prefix("lost").timeout(Duration::from_secs(2));
    let behind = behind.on_store_error(OnStoreError::Raise).build().expect("a limiter");
    let direct = limiter(redis.url(), "lost");
    let policy = plain("fixed-window 100/hour");
    let decision = behind.check_n(&policy, "k", 50).expect("a decision");
    assert!(direct.check_n(&policy, "k", 50).expect("a decision").allowed());
    proxy.set(Condition::DropReplies);
    let error = behind.settle(&decision, 20).expect_err("no reply arrives");
    assert!(error.kind() == ErrorKind::StoreTimeout && !error.did_not_run(), "{error}");
    proxy.set(Condition::Healthy);
    let error = behind.settle(&decision, 20).expect_err("it is settled once");
    assert_eq!(error.kind(), ErrorKind::ConfigInvalid, "{error}");
    // The settle ran: 30 of its 50 units went back, once.
    assert_eq!(direct.peek(&policy, "k", 1).expect("a peek").remaining(), 30);
}

#[test]
fn a_settle_that_certainly_was_not_made_may_be_made_again() {
    let redis = Servers::start(Kind::Single);
    let proxy = Proxy::to(redis.port(0));
    let url = format!("redis://127.0.0.1:{}", proxy.port());
    let behind = Limiter::builder().store(url).timeout(Duration::from_secs(10));
    let behind = behind.on_store_error(OnStoreError::Raise).build().expect("a limiter");
    let policy = plain("fixed-window 100/hour");
    let decision = behind.check_n(&policy, "k", 50).expect("a decision");
    proxy.set(Condition::Refuse);
    while proxy.open() > 0 {
        thread::sleep(Duration::from_millis(1));
    }
    // A connection that was open a moment ago may take the command and end. The outcome would not be known.
    behind.peek(&policy, "k", 1).expect_err("the store is gone");
    let error = behind.settle(&decision, 20).expect_err("the store is gone");
    assert!(error.kind() == ErrorKind::StoreUnavailable && error.did_not_run(), "{error}");
    proxy.set(Condition::Healthy);
    let deadline = Instant::now() + Duration::from_secs(20);
    while behind.peek(&policy, "k", 1).is_err() {
        assert!(Instant::now() < deadline, "the store is back");
        thread::sleep(Duration::from_millis(10));
    }
    behind.settle(&decision, 20).expect("settled");
    assert_eq!(behind.peek(&policy, "k", 1).expect("a peek").remaining(), 80);
}

/// Takes units in advance. Returns the number of units that the checks spent until then.
fn lease(limiter: &Limiter, policy: &Policy, clock: Option<&ManualClock>) -> u64 {
    let deadline = Instant::now() + Duration::from_secs(20);
    let mut spent = 0;
    loop {
        let decision = limiter.check(policy, "k").expect("a decision");
        spent += u64::from(decision.allowed());
        if decision.source() == Source::Lease {
            return spent;
        }
        assert!(Instant::now() < deadline, "units are leased");
        thread::sleep(Duration::from_micros(200));
        clock.inspect(|clock| clock.advance(Duration::from_micros(200)));
    }
}

#[test]
fn units_of_leases_do_not_go_back_to_a_key_that_was_cleared_or_lost() {
    let redis = Servers::start(Kind::Single);
    for how in ["clear", "FLUSHALL", "CLIENT KILL"] {
        let policy = named(
            "fixed-window 10000/hour",
            Options { lease: Some(Lease::percent(5.0).expect("a lease")), ..Options::default() },
        );
        let (holder, other) = (limiter(redis.url(), "leased"), limiter(redis.url(), "leased"));
        let mut spent = lease(&holder, &policy, None);
        match how {
            "clear" => {
                other.clear(&policy, "k").expect("a clear");
                spent = 0;
            }
            "FLUSHALL" => {
                redis.command(0, &["FLUSHALL"]);
                spent = 0;
            }
            // The limiter must connect again, perhaps to a server that has lost the charge.
            _ => drop(redis.command(0, &["CLIENT", "KILL", "TYPE", "normal"])),
        }
        other.charge(plain("fixed-window 10000/hour"), "k", 5_000).expect("a charge");
        // The rest of the leased block goes back when the limiter closes, or its time is over.
        holder.close();
        thread::sleep(Duration::from_millis(1_200));
        let used = 10_000 - other.peek(&policy, "k", 1).expect("a peek").remaining();
        if how == "CLIENT KILL" {
            assert!(used >= 5_000 + spent, "{how}: {used}");
        } else {
            assert_eq!(used, 5_000 + spent, "{how}: what was charged before it does not come back");
        }
        other.clear(&policy, "k").expect("a clear");
        redis.command(0, &["FLUSHALL"]);
    }
}

#[test]
fn units_of_leases_do_not_go_back_to_a_server_that_lost_their_charge() {
    let servers = Servers::start_with(Kind::Sentinel, json!({"down_after_ms": 500}));
    let notation = "fixed-window 10000/day";
    let lease_of = Some(Lease::percent(5.0).expect("a lease"));
    let policy = named(notation, Options { lease: lease_of, ..Options::default() });
    // This clock stands still while a replica is promoted, so that the leased block has not aged when it goes back.
    let clock = Arc::new(ManualClock::new(Duration::from_secs(1_800_000_000)));
    let limiter = || {
        let builder = Limiter::builder().store(servers.url()).prefix("lost").timeout(Duration::from_secs(10));
        builder.deny_cache(Duration::ZERO).clock(Arc::clone(&clock)).build().expect("a limiter")
    };
    let (holder, other) = (limiter(), limiter());
    other.charge(plain(notation), "k", 1_000).expect("a charge");
    // The replicas know of earlier leases of the key, so they lose the charge of one lease only.
    let known = limiter();
    lease(&known, &policy, Some(&clock));
    known.close();
    let used = || 10_000 - other.peek(plain(notation), "k", 1).expect("a peek").remaining();
    let before = used();
    let info = |node: usize| servers.command(node, &["INFO", "replication"]).to_string();
    let offset = |text: &str, field: &str| {
        let number = text.split(&format!("{field}:")).nth(1).expect("the field");
        let number: String = number.chars().take_while(char::is_ascii_digit).collect();
        number.parse::<u64>().expect("a number")
    };
    let has_all = |node| offset(&info(node), "slave_repl_offset") >= offset(&info(0), "master_repl_offset");
    wait_until(Duration::from_secs(20), "the charge is replicated", || has_all(1) && has_all(2));
    for replica in [1, 2] {
        servers.command(replica, &["CONFIG", "SET", "masterauth", "wrong"]);
        servers.command(replica, &["CLIENT", "KILL", "TYPE", "master"]);
    }
    wait_until(Duration::from_secs(20), "the links are cut", || {
        [1, 2].iter().all(|replica| info(*replica).contains("master_link_status:down"))
    });
    lease(&holder, &policy, Some(&clock));
    servers.kill(0);
    wait_until(Duration::from_secs(180), "a replica is promoted", || other.peek(plain(notation), "k", 1).is_ok());
    wait_until(Duration::from_secs(20), "the holder knows it", || {
        holder.peek(plain(notation), "k", 1).is_ok_and(|decision| decision.source() == Source::Store)
    });
    // The rest of the block was charged on the old server.
    holder.close();
    thread::sleep(Duration::from_millis(500));
    assert_eq!(used(), before, "units went back whose charge was lost");
}

#[test]
fn two_releases_with_different_algorithms_count_each_for_itself() {
    let servers = [Servers::start(Kind::Single), Servers::start(Kind::Cluster)];
    for (number, redis) in servers.iter().enumerate() {
        let (old, new) = (limiter(redis.url(), "two"), limiter(redis.url(), "two"));
        let (window, bucket) = (plain("sliding-window 100/hour"), plain("gcra 100/hour"));
        let mut admitted = [0, 0];
        for _ in 0..600 {
            admitted[0] += u64::from(old.check(&window, "k").expect("a decision").allowed());
            admitted[1] += u64::from(new.check(&bucket, "k").expect("a decision").allowed());
        }
        assert!(admitted[0] == 100 && (100..=102).contains(&admitted[1]), "{number}: {admitted:?}");
        // A debt stays, and blocks count for both.
        let (daily, other) = (plain("fixed-window 100/day"), plain("sliding-log 100/day"));
        old.charge(&daily, "debt", 5_000).expect("a charge");
        assert!(new.check(&other, "debt").expect("a decision").allowed());
        let over: Vec<u64> = old.peek(&daily, "debt", 1).expect("a peek").limits().map(|limit| limit.over).collect();
        assert_eq!(over, [4_900]);
        let blocks = |notation: &str| {
            named(notation, Options { block_for: Some("1 hour".parse().expect("a length")), ..Options::default() })
        };
        let (one, two) = (blocks("fixed-window 2/day"), blocks("sliding-log 50/day"));
        for _ in 0..3 {
            old.check(&one, "blocked").expect("a decision");
            new.check(&two, "blocked").expect("a decision");
        }
        assert!(
            !new.check(&two, "blocked").expect("a decision").allowed(),
            "the block of the one counts for the other"
        );
    }
}

#[test]
fn a_decision_is_for_the_limits_that_it_charged() {
    let redis = Servers::start(Kind::Single);
    for url in ["memory://", redis.url()] {
        let limiter = limiter(url, "limits");
        let before = plain("fixed-window 10/hour");
        let decision = limiter.check_n(&before, "k", 5).expect("a decision");
        let after = plain("fixed-window 10/hour; sliding-log 10/hour");
        assert!(limiter.check_n(&after, "k", 5).expect("a decision").allowed());
        limiter.settle(&decision, 0).expect("settled");
        let left: Vec<u64> =
            limiter.peek(&before, "k", 1).expect("a peek").limits().map(|limit| limit.remaining).collect();
        assert_eq!(left, [5]);
        let left: Vec<u64> =
            limiter.peek(&after, "k", 1).expect("a peek").limits().map(|limit| limit.remaining).collect();
        assert_eq!(left, [5, 5], "{url}");
    }
}

#[test]
fn another_release_on_the_same_keys_is_told_once() {
    let redis = Servers::start(Kind::Single);
    let told = Arc::new(Mutex::new(Vec::new()));
    let heard = Arc::clone(&told);
    let old = limiter(redis.url(), "told");
    let new = Limiter::builder().store(redis.url()).prefix("told").timeout(Duration::from_secs(10));
    let new = new.on_warning(Arc::new(move |sentence: &str| heard.lock().expect("no panic").push(sentence.to_owned())));
    let new = new.build().expect("a limiter");
    for key in ["a", "b", "c"] {
        assert!(old.check(plain("sliding-window 100/minute"), key).expect("a decision").allowed());
    }
    assert!(new.check(plain("gcra 100/minute"), "alone").expect("a decision").allowed());
    assert_eq!(*told.lock().expect("no panic"), [""; 0], "one release alone");
    for key in ["a", "b", "c"] {
        assert!(new.check(plain("gcra 100/minute"), key).expect("a decision").allowed());
    }
    let told = told.lock().expect("no panic").clone();
    let [sentence] = &*told else { panic!("{told:?}") };
    for part in ["policy \"p\"", "gcra 100/minute", "sliding-window per minute"] {
        assert!(sentence.contains(part), "{sentence}");
    }
}

/// Several threads take units of two slots together and give them back, so that undone charges and refunds cross.
#[test]
fn check_all_over_slots_leaks_no_units() {
    let cluster = Servers::start(Kind::Cluster);
    let policy = plain("sliding-log 6/day");
    let ended = AtomicBool::new(false);
    let admitted: u64 = thread::scope(|scope| {
        let run = |number: usize| {
            let (policy, ended, url) = (&policy, &ended, cluster.url());
            scope.spawn(move || {
                let (limiter, mut admitted) = (limiter(url, "slots"), 0);
                // They use different orders, so that one slot refuses after the other has charged.
                let keys = if number.is_multiple_of(2) { ["a", "b"] } else { ["b", "a"] };
                while !ended.load(Ordering::Relaxed) {
                    let cost = 1 + (number % 3) as u64;
                    let entries = keys.map(|key| (policy, key, cost));
                    if limiter.check_all(entries).expect("a decision").allowed() {
                        admitted += 1;
                        keys.iter().for_each(|key| drop(limiter.refund(policy, key, cost).expect("a refund")));
                    }
                }
                admitted
            })
        };
        let threads: Vec<_> = (0..6).map(run).collect();
        thread::sleep(Duration::from_secs(3));
        ended.store(true, Ordering::Relaxed);
        threads.into_iter().map(|thread| thread.join().expect("it ends")).sum()
    });
    assert!(admitted > 50, "{admitted} were admitted");
    let limiter = limiter(cluster.url(), "slots");
    for key in ["a", "b"] {
        let left = limiter.peek(&policy, key, 1).expect("a peek").remaining();
        assert_eq!(left, 6, "{key} after {admitted} that gave all back");
    }
}
