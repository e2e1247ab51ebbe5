//! Faults of a real server: no call is late, nothing is counted twice, and calls go on afterwards.

use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::json;
use tidegate::host::set_up_postgres;
use tidegate::{ErrorKind, Limiter, OnStoreError, Source};
use tidegate_tests::lateness::LatenessProbe;
use tidegate_tests::servers::{Kind, Servers};
use tidegate_tests::wait::wait_until;

use super::{PATIENCE, POLICY, TIMEOUT, builder, strict, used};

/// A limiter whose calls may not be late, and the checks that the store has answered and admitted.
struct Caller {
    limiter: Limiter,
    counted: u64,
    /// The checks with an unknown outcome.
    unknown: u64,
}

impl Caller {
    fn of(url: &str) -> Self {
        let limiter = builder(url).timeout(TIMEOUT).on_store_error(OnStoreError::Raise).build().expect("a limiter");
        Self { limiter, counted: 0, unknown: 0 }
    }

    /// Makes one check. Returns the kind and the text of its error.
    fn ask(&mut self, during: &str) -> Result<(), (ErrorKind, String)> {
        let probe = LatenessProbe::start();
        let began = Instant::now();
        let result = self.limiter.check(POLICY, "alice");
        let took = began.elapsed();
        let late = took.saturating_sub(TIMEOUT + Duration::from_millis(20));
        assert!(late <= probe.worst() * 2, "{during}: {took:?}");
        match result {
            Ok(decision) => {
                assert_eq!(decision.source(), Source::Store);
                self.counted += 1;
                Ok(())
            }
            Err(error) => {
                self.unknown += u64::from(!error.did_not_run());
                Err((error.kind(), error.message().to_owned()))
            }
        }
    }

    fn recovers(&mut self, after: &str) {
        wait_until(PATIENCE, after, || self.ask(after).is_ok());
    }

    /// Every call fails, in the end with one of these. A call that meets the fault may end by its timeout on a busy machine.
    fn fails(&mut self, during: &str, kinds: &[ErrorKind]) {
        wait_until(PATIENCE, during, || {
            let (kind, message) = (0..6).map(|_| self.ask(during).expect_err(during)).last().expect("six calls");
            assert!(!message.contains("hunter2"), "{message}");
            kinds.contains(&kind)
        });
    }

    /// Everything that was answered is counted once, and nothing else.
    fn agrees_with(&self, url: &str) {
        let used = used(&strict(url), "alice");
        assert!((self.counted..=self.counted + self.unknown).contains(&used), "{used} of {}", self.counted);
    }
}

const FAILURES: &[ErrorKind] = &[ErrorKind::StoreRejected, ErrorKind::StoreTimeout, ErrorKind::StoreUnavailable];

#[test]
fn a_standby_is_promoted() {
    let servers = Servers::start(Kind::Standby);
    let url = format!("{}?create=yes", servers.url());
    let mut caller = Caller::of(&url);
    caller.recovers("started");
    (0..20).for_each(|_| caller.ask("healthy").expect("a decision"));
    let version = |server| servers.command(server, &["SELECT version FROM tidegate"]);
    wait_until(PATIENCE, "the standby has followed", || version(0) == version(1));
    servers.kill(0);
    caller.fails("no server writes", FAILURES);
    servers.command(1, &["SELECT pg_promote()"]);
    caller.recovers("promoted");
    (0..20).for_each(|_| caller.ask("promoted").expect("a decision"));
    caller.agrees_with(&url);
}

#[test]
fn connections_passwords_and_the_disk_run_out() {
    let is_root = Command::new("id").arg("-u").output().is_ok_and(|output| output.stdout == b"0\n");
    let mut options = json!({"password": "sEcret1"});
    if is_root {
        options["disk"] = json!("300k");
    }
    let server = Servers::start_with(Kind::Postgres, options);
    server.command(0, &["CREATE ROLE app LOGIN PASSWORD 'hunter2'", "GRANT CREATE ON SCHEMA public TO app"]);
    let url = server.url().replace("harness:sEcret1", "app:hunter2");
    set_up_postgres(&url, PATIENCE).expect("a table");
    let table = format!("{url}?connections=2");
    let mut caller = Caller::of(&table);
    caller.recovers("started");
    let cut = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'app'";

    // The server answers as it does when all its connections are taken: 53300.
    server.command(0, &["ALTER ROLE app CONNECTION LIMIT 0", cut]);
    caller.fails("no connection is left", &[ErrorKind::StoreUnavailable]);
    server.command(0, &["ALTER ROLE app CONNECTION LIMIT -1"]);
    caller.recovers("connections are free");

    server.command(0, &["ALTER ROLE app PASSWORD 'other'", cut]);
    caller.fails("the password is another one", &[ErrorKind::StoreRejected, ErrorKind::StoreUnavailable]);
    server.command(0, &["ALTER ROLE app PASSWORD 'hunter2'"]);
    caller.recovers("the password is back");
    caller.agrees_with(&table);

    if !is_root {
        println!("the disk was not filled: only root can mount one that is small");
        return;
    }
    let disk = server.json().pointer("/servers/0/disk").and_then(serde_json::Value::as_str).expect("a disk");
    server.command(0, &[&format!("CREATE TABLESPACE small LOCATION '{disk}'")]);
    server.command(0, &["ALTER TABLE tidegate SET TABLESPACE small"]);
    let flood = builder(&table).on_store_error(OnStoreError::Raise).prefix("flood").build().expect("a limiter");
    let mut number = 0;
    let error = loop {
        number += 1;
        match flood.check(POLICY, &format!("key {number}")) {
            Ok(_) => assert!(number < 20_000, "the disk has no end"),
            Err(error) => break error,
        }
    };
    assert_eq!(error.kind(), ErrorKind::StoreUnavailable, "{error}");
    assert!(error.did_not_run() && error.message().contains("53100"), "{error}");
    // A row that has room on its page is still written.
    drop(caller.ask("the disk is full"));
    server.command(0, &["ALTER TABLE tidegate SET TABLESPACE pg_default"]);
    caller.recovers("the disk has room");
    caller.agrees_with(&table);
}

#[test]
fn calls_through_a_pooler_count_exactly_and_go_on_after_its_restart() {
    let servers = Servers::start(Kind::PgBouncer);
    let url = format!("{}?create=yes", servers.url());
    let mut caller = Caller::of(&url);
    caller.recovers("started");
    servers.kill(1);
    caller.fails("the pooler is gone", FAILURES);
    servers.start_again(1);
    caller.recovers("the pooler is back");
    // Behind the pooler the connections of these share four of the server, and the names of their statements mean others there.
    let limiters: Vec<Limiter> = (0..8).map(|_| strict(&url)).collect();
    std::thread::scope(|scope| {
        for limiter in &limiters {
            scope.spawn(|| {
                for _ in 0..50 {
                    let decision = limiter.check_all([(POLICY, "alice"), (POLICY, "bob")]).expect("a decision");
                    assert!(decision.allowed() && limiter.check(POLICY, "bob").expect("a decision").allowed());
                }
            });
        }
    });
    assert_eq!(used(&limiters[0], "bob"), 800);
    caller.counted += 400;
    caller.agrees_with(&url);
}
