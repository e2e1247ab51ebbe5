//! Faults of a server.

use std::time::Duration;

use serde_json::json;
use tidegate::{ErrorKind, Limiter, OnStoreError, Source};
use tidegate_tests::servers::{Kind, Servers, is_redis_6};

use super::{CHOICES, Fault, POLICY, fault, survive};

/// A connection of the test itself, which stays usable when the harness gets no new one.
fn connection(servers: &Servers) -> redis::Connection {
    let client = redis::Client::open(servers.url()).expect("a URL");
    client.get_connection().expect("a connection")
}

fn send(connection: &mut redis::Connection, words: &[&str]) {
    let _: redis::Value = redis::cmd(words[0]).arg(&words[1..]).query(connection).expect("an answer");
}

#[test]
fn killed_and_started_again_empty() {
    let servers = Servers::start(Kind::Single);
    let fault = fault("killed", &servers, 1.0, || servers.kill(0), || servers.start_again(0));
    survive(Fault { loses_data: true, ..fault });
}

#[test]
fn stopped_for_three_seconds() {
    let servers = Servers::start(Kind::Single);
    survive(fault("stopped", &servers, 3.0, || servers.stop(0), || servers.cont(0)));
}

#[test]
fn paused() {
    let servers = Servers::start(Kind::Single);
    let pause = || drop(servers.command(0, &["CLIENT", "PAUSE", "1500", "WRITE"]));
    survive(fault("paused", &servers, 1.6, pause, || {}));
}

#[test]
fn out_of_memory() {
    let servers = Servers::start(Kind::Single);
    let most = |bytes: &str| drop(servers.command(0, &["CONFIG", "SET", "maxmemory", bytes]));
    survive(fault("out of memory", &servers, 0.7, || most("1"), || most("0")));
}

#[test]
fn loading() {
    let mut config = json!({"key-load-delay": "1500", "rdbcompression": "no"});
    if !is_redis_6() {
        config["enable-debug-command"] = json!("yes");
        config["loading-process-events-interval-bytes"] = json!("1024");
    }
    let servers = Servers::start_with(Kind::Single, json!({"config": config}));
    // Redis 6 answers after each 2 MiB of loading, and has no option for that.
    let _ = servers.command(0, &["DEBUG", "POPULATE", "1000", "key", "20000"]);
    let reloading = std::cell::RefCell::new(None);
    let mut other = Some(connection(&servers));
    let begin = || {
        let mut connection = other.take().expect("begun once");
        let reload = move || send(&mut connection, &["DEBUG", "RELOAD"]);
        *reloading.borrow_mut() = Some(std::thread::spawn(reload));
    };
    // A busy machine loads for longer.
    let end = || reloading.take().expect("begun").join().expect("no panic");
    survive(fault("loading", &servers, 1.0, begin, end));
}

#[test]
fn demoted_and_promoted() {
    let servers = Servers::start(Kind::Single);
    let follow = |host: &str, port: &str| drop(servers.command(0, &["REPLICAOF", host, port]));
    survive(fault("demoted", &servers, 0.7, || follow("127.0.0.1", "1"), || follow("NO", "ONE")));
}

#[test]
fn busy_with_a_long_script() {
    let servers = Servers::start_with(Kind::Single, json!({"config": {"lua-time-limit": "50"}}));
    let (mut runs, mut ends) = (Some(connection(&servers)), connection(&servers));
    let begin = || {
        let mut connection = runs.take().expect("begun once");
        std::thread::spawn(move || {
            // The kill below ends it with an error.
            let _: redis::RedisResult<()> = redis::cmd("EVAL").arg("while true do end").arg(0).query(&mut connection);
        });
    };
    survive(fault("busy", &servers, 1.0, begin, || send(&mut ends, &["SCRIPT", "KILL"])));
}

#[test]
fn the_password_is_changed() {
    let servers = Servers::start_with(Kind::Single, json!({"password": "right"}));
    let password = |word: &str| {
        let _ = servers.command(0, &["ACL", "SETUSER", "default", "resetpass", &format!(">{word}")]);
        let _ = servers.command(0, &["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
    };
    survive(fault("another password", &servers, 0.7, || password("other"), || password("right")));
}

#[test]
fn scripts_are_forbidden() {
    let servers = Servers::start(Kind::Single);
    let rule = |rule: &str| drop(servers.command(0, &["ACL", "SETUSER", "default", rule]));
    survive(fault("no scripts", &servers, 0.7, || rule("-@scripting"), || rule("+@scripting")));
}

#[test]
fn no_more_connections() {
    let servers = Servers::start(Kind::Single);
    let other = std::cell::RefCell::new(connection(&servers));
    let begin = || {
        let mut other = other.borrow_mut();
        send(&mut other, &["CONFIG", "SET", "maxclients", "1"]);
        send(&mut other, &["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
    };
    let end = || send(&mut other.borrow_mut(), &["CONFIG", "SET", "maxclients", "1000"]);
    survive(fault("no more connections", &servers, 0.7, begin, end));
}

#[test]
fn an_expired_certificate() {
    let servers = Servers::start_with(Kind::Single, json!({"tls": "expired"}));
    for choice in CHOICES {
        let limiter =
            Limiter::builder().store(servers.url_of("tls")).timeout(Duration::from_secs(5)).on_store_error(choice);
        let limiter = limiter.build().expect("a limiter");
        for _ in 0..6 {
            match limiter.check(POLICY, "key") {
                Ok(decision) => {
                    assert_eq!(
                        (decision.source(), decision.allowed()),
                        (Source::Fallback, choice != OnStoreError::Closed)
                    );
                }
                Err(error) => {
                    assert_eq!((choice, error.kind()), (OnStoreError::Raise, ErrorKind::StoreUnavailable), "{error}");
                    assert!(error.to_string().to_lowercase().contains("certificate"), "{error}");
                }
            }
        }
    }
}
