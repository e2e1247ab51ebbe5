//! Redis gives the same answers as memory, decision by decision, and nothing is left on the server.

use std::fs;

use serde_json::json;
use tidegate_tests::servers::{Kind, Servers};

use crate::running::{Scratch, command, done, ran};

const POLICIES: [&str; 7] = [
    "fixed-window 20/minute; concurrency 5 ttl 2s",
    "20/minute; 5/3s",
    "gcra 20/minute burst 5",
    "leaky-bucket 20/minute",
    "sliding-counter 20/minute",
    "sliding-log 20/minute; calendar-window 500/day",
    "token-bucket 1/s burst 7",
];

#[cfg(unix)]
#[test]
fn says_that_the_store_is_a_file() {
    let shared = tidegate_tests::shared_file::SharedFile::new();
    let arguments = ["5/s", "--trace", "access.log", "--store", &shared.url("max_bytes=1MB")];
    assert_eq!(done(&[&arguments[..], &["--json"]].concat()).json()["store"], "file");
    assert!(done(&arguments).out.contains("replayed on a file"));
}

#[test]
fn gives_the_answers_of_memory() {
    let (servers, scratch) = (Servers::start(Kind::Single), Scratch::new("redis"));
    let (on_redis, in_memory) = (scratch.file("redis.csv"), scratch.file("memory.csv"));
    let retries = ["--pattern", "retry-storm", "--rate", "4/s", "--duration", "2m", "--retry", "backoff"];
    let attack = ["--pattern", "boundary", "--keys", "3", "--window", "1m", "--rate", "3/s", "--duration", "4m"];
    let backlog = ["--pattern", "outgoing", "--rate", "20/minute", "--duration", "2m", "--keys", "2"];
    let trace = ["--trace", "access.log"];
    for traffic in [&retries[..], &attack, &backlog, &trace] {
        let mut arguments = POLICIES.to_vec();
        arguments.extend(traffic);
        arguments.push("--json");
        let memory = done(&[&arguments[..], &["--decisions", &in_memory]].concat()).json();
        let redis = done(&[&arguments[..], &["--decisions", &on_redis, "--store", servers.url()]].concat()).json();
        assert_eq!((&memory["store"], &redis["store"]), (&json!("memory"), &json!("redis")));
        assert_eq!(memory["policies"], redis["policies"], "{traffic:?}");
        // Redis is read in smaller parts, so lines of different policies may alternate in another order.
        let sorted = |path: &str| {
            let text = fs::read_to_string(path).expect("decisions");
            let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
            lines.sort_by(|a, b| a.split(',').next().cmp(&b.split(',').next()));
            lines
        };
        assert_eq!(sorted(&in_memory), sorted(&on_redis), "{traffic:?}");
        assert_eq!(servers.command(0, &["DBSIZE"]), json!(0), "keys are left");
    }
    assert!(servers.calls(0, "evalsha") > 1_000, "Redis was asked");
}

#[test]
fn that_is_slower_than_the_traffic_says_so() {
    let servers = Servers::start(Kind::Single);
    let dense =
        ["5/s", "--pattern", "steady", "--rate", "2M/s", "--duration", "20ms", "--json", "--store", servers.url()];
    let report = done(&dense).json();
    let note = report["notes"][0].as_str().expect("a note");
    assert!(note.contains("more than the traffic's own time"), "{note}");
}

#[test]
fn that_fails_ends_the_simulation() {
    let servers = Servers::start(Kind::Single);
    servers.command(0, &["CONFIG", "SET", "maxmemory", "1"]);
    let ran = ran(&mut command(&["5/s", "--pattern", "steady", "--store", servers.url()]));
    assert_eq!((ran.code, ran.out.as_str()), (2, ""), "{}", ran.error);
    assert!(ran.error.contains("OOM") || ran.error.contains("memory"), "{}", ran.error);
}

#[test]
fn of_the_environment_is_not_used() {
    let mut command = command(&["5/s", "--pattern", "steady", "--json"]);
    let ran = ran(command.env("TIDEGATE_STORE", "redis://127.0.0.1:1"));
    assert_eq!(ran.json()["store"], "memory", "{}", ran.error);
}
