//! PostgreSQL as the store, with real servers: the table, faults, and processes that contend.

use std::io::Write;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use tidegate::host::{postgres_ddl, set_up_postgres};
use tidegate::{Builder, Decision, ErrorKind, KeyOverride, Limiter, OnStoreError, Source};
use tidegate_tests::lateness::LatenessProbe;
use tidegate_tests::servers::{Kind, Servers};
use tidegate_tests::wait::wait_until;

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
    for _ in 0..8 {
        let error = limiter.check(POLICY, "alice").expect_err("its row is locked");
        assert_eq!(error.kind(), ErrorKind::StoreTimeout, "{error}");
        assert!(error.did_not_run(), "{error}");
    }
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
