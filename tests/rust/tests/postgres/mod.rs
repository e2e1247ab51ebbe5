//! PostgreSQL as the store, with real servers: the table, faults, and processes that contend.

use std::io::Write;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use serde_json::json;
use tidegate::host::{postgres_ddl, set_up_postgres};
use tidegate::{
    Builder, CheckOptions, Decision, ErrorKind, KeyOverride, Lease, Limiter, ManualClock, OnStoreError, Options,
    Policy, Source,
};
use tidegate_tests::lateness::LatenessProbe;
use tidegate_tests::servers::{Kind, Servers};
use tidegate_tests::wait::wait_until;

mod faults;
mod sharing;

const PATIENCE: Duration = Duration::from_secs(60);
const TIMEOUT: Duration = Duration::from_millis(300);
const POLICY: &str = "fixed-window 1000000/day";

fn server() -> (Servers, String) {
    let server = Servers::start(Kind::Postgres);
    let url = format!("{}?create=yes", server.url());
    (server, url)
}

fn builder(url: &str) -> Builder {
    Limiter::builder().store(url).timeout(Duration::from_secs(10)).deny_cache(Duration::ZERO)
}

fn strict(url: &str) -> Limiter {
    builder(url).on_store_error(OnStoreError::Raise).build().expect("a limiter")
}

fn used(limiter: &Limiter, key: &str) -> u64 {
    1_000_000 - limiter.peek(POLICY, key, 1).expect("a peek").remaining()
}

#[test]
fn a_missing_table_is_an_error_that_names_the_command() {
    let server = Servers::start(Kind::Postgres);
    let url = format!("{}?table=limits.tidegate", server.url());
    let limiter = strict(&url);
    let error = limiter.check(POLICY, "alice").expect_err("no table");
    assert_eq!(error.kind(), ErrorKind::StoreRejected);
    assert!(error.message().contains("tidegate setup") && error.did_not_run(), "{error}");
    let denied = set_up_postgres(&url, PATIENCE).expect_err("no schema");
    assert_eq!(denied.kind(), ErrorKind::StoreRejected, "{denied}");
    server.command(0, &["CREATE SCHEMA limits"]);
    for _ in 0..2 {
        assert_eq!(set_up_postgres(&url, PATIENCE).expect("made"), "\"limits\".\"tidegate\"");
    }
    assert!(limiter.check(POLICY, "alice").expect("a decision").allowed());
    assert!(postgres_ddl(&url).expect("the DDL").starts_with("CREATE TABLE IF NOT EXISTS \"limits\".\"tidegate\""));
    assert!(set_up_postgres("redis://localhost", PATIENCE).is_err());
}

#[test]
fn limiters_that_start_at_once_make_one_table() {
    let (server, url) = server();
    let barrier = Barrier::new(24);
    std::thread::scope(|scope| {
        for _ in 0..24 {
            scope.spawn(|| {
                let limiter = strict(&url);
                barrier.wait();
                assert!(limiter.check(POLICY, "alice").expect("a decision").allowed());
            });
        }
    });
    assert_eq!(used(&strict(&url), "alice"), 24);
    let tables = server.command(0, &["SELECT count(*) FROM pg_tables WHERE tablename = 'tidegate'"]);
    assert_eq!(tables[0], "1");
}

#[test]
fn prepared_statements_give_the_same_answers() {
    let (server, url) = server();
    let (prepared, whole) = (strict(&format!("{url}&prepare=yes")), strict(&url));
    for round in 1..=20 {
        for limiter in [&prepared, &whole] {
            assert!(limiter.check_all([(POLICY, "alice"), (POLICY, "bob")]).expect("a decision").allowed());
        }
        assert_eq!([used(&prepared, "alice"), used(&whole, "bob")], [2 * round, 2 * round]);
    }
    drop(server);
}

/// A session that has locked the rows of all keys.
struct RowLock(Child);

impl RowLock {
    fn of(server: &Servers) -> Self {
        let mut psql = Command::new("psql");
        psql.args(["-XqAt", server.url()]).stdin(Stdio::piped()).stdout(Stdio::null());
        let mut child = psql.spawn().expect("psql runs");
        let input = child.stdin.as_mut().expect("a pipe");
        writeln!(input, "BEGIN; SELECT 1 FROM tidegate FOR UPDATE;").expect("it reads");
        let locked = "SELECT count(*) FROM pg_stat_activity WHERE state = 'idle in transaction'";
        wait_until(PATIENCE, "the rows are locked", || server.command(0, &[locked])[0] == "1");
        Self(child)
    }
}

impl Drop for RowLock {
    fn drop(&mut self) {
        drop((self.0.kill(), self.0.wait()));
    }
}

#[test]
fn contention_is_no_outage_and_no_reason_for_limits_of_each_process() {
    let (server, url) = server();
    let limiter = builder(&url).timeout(TIMEOUT).build().expect("a limiter");
    let patient = strict(&url);
    patient.check(POLICY, "alice").expect("a decision");
    let lock = RowLock::of(&server);
    let ask = || {
        let error = limiter.check(POLICY, "alice").expect_err("its row is locked");
        assert_eq!(error.kind(), ErrorKind::StoreTimeout, "{error}");
        assert!(error.did_not_run() && error.message().starts_with("other processes"), "{error}");
    };
    (0..8).for_each(|_| ask());
    // Most of these wait for a call of their process that waits for the row, and have no time of their own behind it.
    std::thread::scope(|scope| {
        for _ in 0..40 {
            scope.spawn(ask);
            std::thread::sleep(Duration::from_micros(500));
        }
    });
    // Other keys are answered by the store meanwhile.
    assert_eq!(patient.check(POLICY, "bob").expect("a decision").source(), Source::Store);
    drop(lock);
    assert!(patient.check(POLICY, "alice").expect("a decision").allowed());
    assert_eq!(used(&patient, "alice"), 2);
}

#[test]
fn calls_end_in_time_while_the_server_is_stopped_or_gone_and_go_on_afterwards() {
    let (server, url) = server();
    strict(&url).check(POLICY, "warm").expect("a decision");
    let limiter = builder(&url).timeout(TIMEOUT).build().expect("a limiter");
    let ask = |during: &str| {
        let probe = LatenessProbe::start();
        let began = Instant::now();
        let decision: Decision = limiter.check(POLICY, "alice").expect("a decision of this process");
        let took = began.elapsed();
        let late = took.saturating_sub(TIMEOUT + Duration::from_millis(20));
        assert!(late <= probe.worst() * 2, "{during}: {took:?}");
        decision.source()
    };
    let recovers = |after: &str| {
        wait_until(PATIENCE, after, || ask(after) == Source::Store);
    };
    recovers("started");
    server.stop(0);
    (0..6).for_each(|_| assert_eq!(ask("stopped"), Source::Fallback));
    server.cont(0);
    recovers("continued");
    server.kill(0);
    (0..6).for_each(|_| assert_eq!(ask("killed"), Source::Fallback));
    server.start_again(0);
    recovers("restarted");
    server.command(0, &["SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'tidegate'"]);
    recovers("cut");
}

#[test]
fn a_server_that_refuses_to_write_is_an_error() {
    let (server, url) = server();
    let limiter = strict(&format!("{url}&options=-c%20default_transaction_read_only%3Don"));
    strict(&url).check(POLICY, "alice").expect("a decision");
    let error = limiter.check(POLICY, "alice").expect_err("it is read-only");
    assert_eq!(error.kind(), ErrorKind::StoreRejected);
    assert!(error.message().contains("read-only"), "{error}");
    assert!(limiter.peek(POLICY, "alice", 1).is_ok(), "a peek writes nothing");
    drop(server);
}

#[test]
fn denials_and_peeks_write_nothing_and_expired_rows_are_removed() {
    let (server, url) = server();
    let limiter = strict(&url);
    let writes = || {
        let row = server.command(0, &["SELECT version FROM tidegate"]);
        row[0].as_str().map(str::to_owned)
    };
    assert!(limiter.check("1/day", "alice").expect("a decision").allowed());
    let version = writes();
    assert!(!limiter.check("1/day", "alice").expect("a decision").allowed());
    limiter.peek("1/day", "alice", 1).expect("a peek");
    assert_eq!(writes(), version);
    // Each of these rows is of no meaning after a millisecond. A sweep comes with the swaps.
    for number in 0..1_500 {
        limiter.check("1/ms", &format!("key {number}")).expect("a decision");
    }
    wait_until(PATIENCE, "expired rows are removed", || {
        for number in 0..600 {
            limiter.check("1000000/day", &format!("other {}", number % 3)).expect("a decision");
        }
        let rows = server.command(0, &["SELECT count(*) FROM tidegate"]);
        rows[0].as_str().and_then(|rows| rows.parse::<u64>().ok()).expect("a count") < 500
    });
}

#[test]
fn overrides_are_listed_and_clear_all_removes_them_and_every_key_of_its_prefix() {
    let (server, url) = server();
    let limiter = |prefix: &str| {
        let builder = builder(&url).on_store_error(OnStoreError::Raise).prefix(prefix);
        builder.policy("login", "5/day").expect("a policy").build().expect("a limiter")
    };
    let (own, other) = (limiter("tg"), limiter("tgx"));
    for key in ["alice", "bob"] {
        own.set_override("login", key, Some(&KeyOverride::parse("9/day").expect("limits")), None).expect("set");
    }
    own.set_override("login", "bob", None, None).expect("removed");
    let listed = own.overrides("login").expect("a list");
    assert_eq!(listed.iter().map(|listed| &*listed.key).collect::<Vec<_>>(), ["alice"]);
    assert_eq!(own.check("login", "alice").expect("a decision").limit(), 9);
    other.check("login", "alice").expect("a decision");
    own.clear_all().expect("cleared");
    assert!(own.overrides("login").expect("a list").is_empty());
    assert_eq!(own.check("login", "alice").expect("a decision").remaining(), 4);
    assert_eq!(other.check("login", "alice").expect("a decision").remaining(), 3);
    drop(server);
}

#[test]
fn a_list_of_stores_has_no_postgres() {
    let two = [String::from("postgresql://one/d"), String::from("postgresql://two/d")];
    let error = Limiter::builder().stores(&two).build().expect_err("an error");
    assert_eq!(error.kind(), ErrorKind::ConfigInvalid);
    let shared: Arc<str> = "postgresql://u:hunter2@one/d?nonsense=1".into();
    let error = Limiter::builder().store(&*shared).build().expect_err("an error");
    assert!(!error.message().contains("hunter2"), "{error}");
}

#[test]
fn units_of_a_lease_go_back_unless_the_server_has_restarted() {
    let (server, url) = server();
    // Without this the crash would lose the charge itself.
    let url = format!("{url}&durability=sync");
    let clock = Arc::new(ManualClock::new(Duration::from_secs(1_704_067_200)));
    let leased = |key: &str| {
        let limiter = builder(&url).on_store_error(OnStoreError::Raise).clock(Arc::clone(&clock)).build();
        let limiter = limiter.expect("a limiter");
        let limits = Policy::parse("fixed-window 1000000/hour").expect("a notation").limits().to_vec();
        let lease = Some(Lease::percent(5.0).expect("a lease"));
        let policy = Policy::new(limits, Options { lease, ..Options::default() }).expect("a policy");
        let mut admitted = 0;
        while limiter.check(&policy, key).expect("a decision").source() != Source::Lease {
            admitted += 1;
        }
        (limiter, policy, admitted + 1)
    };
    let left = |policy: &Policy, key: &str| {
        let limiter = builder(&url).on_store_error(OnStoreError::Raise).clock(Arc::clone(&clock)).build();
        let limiter = limiter.expect("a limiter");
        wait_until(PATIENCE, "the server answers", || limiter.peek(policy, key, 1).is_ok());
        limiter.peek(policy, key, 1).expect("a peek").remaining()
    };
    let (limiter, policy, admitted) = leased("returned");
    assert!(left(&policy, "returned") < 1_000_000 - admitted, "units are leased");
    limiter.close();
    assert_eq!(left(&policy, "returned"), 1_000_000 - admitted);
    // The server recovers from the end of one of its processes, which keeps its start time.
    let (limiter, policy, _) = leased("lost");
    let before = left(&policy, "lost");
    let pid_of = |condition: &str| {
        let query = format!("SELECT pid FROM pg_stat_activity WHERE {condition} LIMIT 1");
        server.command(0, &[&query])[0].as_str().expect("a process").to_owned()
    };
    let (launcher, backend) = (pid_of("backend_type = 'autovacuum launcher'"), pid_of("application_name = 'tidegate'"));
    let killed = Command::new("kill").args(["-KILL", &launcher]).status().expect("kill runs");
    assert!(killed.success());
    // The server ends the processes of all connections before it recovers.
    let has_ended = || !std::path::Path::new("/proc").join(&backend).exists();
    wait_until(PATIENCE, "the server has ended its connections", has_ended);
    let recovered = || limiter.peek(&policy, "other", 1).is_ok();
    wait_until(PATIENCE, "the server has recovered", recovered);
    limiter.close();
    assert_eq!(left(&policy, "lost"), before);
}

#[test]
fn a_value_has_at_most_256_kilobytes() {
    let (server, url) = server();
    let error = builder(&url).policy("log", "sliding-log 20000/day").expect("a policy").build().expect_err("too large");
    assert_eq!(error.kind(), ErrorKind::PolicyInvalid);
    assert!(error.message().contains("sliding-window") && error.message().contains("256 kB"), "{error}");
    let limiter = strict(&url);
    assert!(limiter.check("sliding-log 10000/day", "alice").expect("a decision").allowed());
    assert_eq!(
        limiter.check("sliding-log 20000/day", "alice").expect_err("too large").kind(),
        ErrorKind::PolicyInvalid
    );
    // A journal keeps as many of the newest attempts as have room.
    let limits = Policy::parse("100/day").expect("a notation").limits().to_vec();
    let policy = Policy::new(limits, Options { journal: 100, ..Options::default() }).expect("a policy");
    for number in 0..10_u8 {
        let options = CheckOptions { meta: Some(vec![number; 60_000]), ..CheckOptions::default() };
        limiter.check_with(&policy, "alice", &options).expect("a decision");
    }
    let attempts = limiter.journal(&policy, "alice").expect("a journal");
    assert_eq!(attempts.len(), 4);
    assert_eq!(attempts[0].meta.as_ref().map(|meta| meta[0]), Some(9));
    drop(server);
}

#[test]
fn a_check_of_a_known_key_and_every_denial_takes_one_round_trip() {
    let server = Servers::start_with(Kind::Postgres, json!({"config": {"log_statement": "all"}}));
    let url = format!("{}?create=yes", server.url());
    let log = server.json().pointer("/servers/0/log").and_then(serde_json::Value::as_str).expect("a log").to_owned();
    let limiter = strict(&url);
    // A busy machine may bring a swap to the server too late, so that it is repeated.
    let trips = |wanted: usize, calls: &dyn Fn(&str)| {
        let count = || std::fs::read_to_string(&log).expect("a log").matches(" execute ").count();
        let seen: Vec<usize> = (0..9)
            .map(|attempt| {
                let before = count();
                calls(&format!("key {attempt}"));
                count() - before
            })
            .collect();
        assert!(seen.contains(&wanted) && seen.iter().all(|count| *count >= wanted), "{wanted} of {seen:?}");
    };
    limiter.check(POLICY, "warm").expect("a decision");
    let ask = |policy: &str, key: &str| drop(limiter.check(policy, key).expect("a decision"));
    trips(2, &|key| ask(POLICY, key));
    trips(10, &|_| (0..10).for_each(|_| ask(POLICY, "alice")));
    ask("2/day", "bob");
    ask("2/day", "bob");
    trips(10, &|_| (0..10).for_each(|_| ask("2/day", "bob")));
    let other = strict(&url);
    other.check(POLICY, "warm").expect("a decision");
    trips(5, &|_| (0..5).for_each(|_| drop(other.check("2/day", "bob").expect("a decision"))));
    trips(1, &|_| drop(limiter.check_all([(POLICY, "alice"), ("9999/day", "alice")]).expect("a decision")));
}
