//! The time of a million calls. Run it with
//! `cargo test --release -p tidegate-cli --test simulate -- --ignored --nocapture`.

use std::fmt::Write as _;
use std::fs;
use std::time::Instant;

use serde_json::json;

use crate::running::{Scratch, done};

const POLICIES: [&str; 4] =
    ["fixed-window 600/minute", "600/minute; 50/s", "gcra 10/s burst 60", "leaky-bucket 10/s burst 60"];

#[track_caller]
fn measured(what: &str, traffic: &[&str]) {
    let mut arguments = POLICIES.to_vec();
    arguments.extend(traffic);
    arguments.push("--json");
    let started = Instant::now();
    let report = done(&arguments).json();
    let took = started.elapsed();
    assert_eq!(report["traffic"]["calls"], json!(1_000_000));
    println!("1,000,000 calls of {what} through 4 policies: {:.2} s", took.as_secs_f64());
    assert!(took.as_secs() < 5, "{took:?}");
}

#[test]
#[ignore = "measures time, so it needs a release build and a quiet machine"]
fn a_million_calls() {
    measured(
        "a pattern with 1,000 keys",
        &["--pattern", "steady", "--rate", "20k/s", "--duration", "50s", "--keys", "1000"],
    );
    let scratch = Scratch::new("speed");
    let (mut log, mut lines) = (String::new(), String::new());
    for call in 0..1_000_000_u64 {
        let (second, client) = (call / 5_000, call * 7_919 % 997);
        let (minute, second) = (second / 60, second % 60);
        // Writing to a string cannot fail.
        let _ = writeln!(
            log,
            "10.0.{}.{} - - [10/Oct/2026:13:{minute:02}:{second:02} +0000] \"GET / HTTP/1.1\" 200 17",
            client / 256,
            client % 256
        );
        let _ = writeln!(
            lines,
            "{{\"time\": {}.{:06}, \"client\": \"c{client}\"}}",
            1_700_000_000 + call / 5_000,
            call % 5_000 * 200
        );
    }
    let (access_log, json_lines) = (scratch.file("access.log"), scratch.file("calls.jsonl"));
    fs::write(&access_log, log).expect("a log");
    fs::write(&json_lines, lines).expect("a trace");
    measured("an access log with 997 keys", &["--trace", &access_log]);
    measured("JSON lines with 997 keys", &["--trace", &json_lines]);
}
