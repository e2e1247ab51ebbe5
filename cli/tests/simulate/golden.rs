//! The output of every pattern and of every format of traces.

use std::fs;

use serde_json::json;

use crate::running::{Scratch, command, done, folder, golden, ran};

#[track_caller]
fn table(name: &str, arguments: &[&str]) {
    golden(&format!("simulate/{name}"), &done(arguments).out);
}

const POLICIES: [&str; 4] =
    ["fixed-window 20/minute", "20/minute; 5/3s", "gcra 20/minute burst 5", "leaky-bucket 20/minute"];

fn with(more: &[&'static str]) -> Vec<&'static str> {
    POLICIES.iter().chain(more).copied().collect()
}

#[test]
fn steady() {
    table("steady", &with(&["--pattern", "steady"]));
}

#[test]
fn bursts() {
    table("bursts", &with(&["--pattern", "bursts", "--keys", "3", "--window", "20s", "--duration", "2m"]));
}

#[test]
fn boundary() {
    table("boundary", &with(&["--pattern", "boundary"]));
}

#[test]
fn retry_storm() {
    table("retry-storm", &with(&["--pattern", "retry-storm", "--rate", "20/s", "--duration", "90s"]));
    let backoff = ["--pattern", "retry-storm", "--rate", "20/s", "--duration", "90s", "--retry", "backoff"];
    table("retry-storm-backoff", &with(&backoff));
}

#[test]
fn outgoing() {
    table("outgoing", &with(&["--pattern", "outgoing"]));
}

#[test]
fn daily() {
    table(
        "daily",
        &["100/hour", "calendar-window 500/day", "--pattern", "daily", "--rate", "100/minute", "--keys", "5"],
    );
}

#[test]
fn traces_of_timestamps() {
    table("timestamps", &["2/s", "gcra 2/s", "--trace", "timestamps.txt"]);
    table("columns", &["3/s", "leaky-bucket 3/s", "--trace", "columns.csv"]);
    table("named-columns", &["3/s", "--trace", "named-columns.csv"]);
}

#[test]
fn access_logs() {
    table("access-log", &["2/10s", "fixed-window 2/10s", "--trace", "access.log"]);
    table("access-log-of-one-key", &["2/10s", "--trace", "access.log", "--only-key", "2001:db8::7"]);
    table("access-log-by-path", &["2/10s", "--trace", "access.log", "--key-field", "path"]);
    let by_user = done(&["2/10s", "--trace", "access.log", "--key-field", "user", "--json"]).json();
    assert!(by_user["notes"].to_string().contains("calls name no caller"), "{by_user}");
}

#[test]
fn json_lines() {
    table("json-lines", &["2/s", "--trace", "calls.jsonl"]);
    let nested = [
        "2/s",
        "--trace",
        "calls.jsonl",
        "--time-field",
        "sent.at",
        "--key-field",
        "http.client.ip",
        "--cost-field",
        "units",
    ];
    table("json-lines-nested", &nested);
}

#[test]
fn a_shadow_policy_and_names() {
    table(
        "policy-file",
        &["login", "trial", "--policies", "policies.yaml", "--pattern", "steady", "--rate", "5/s", "--keys", "2"],
    );
}

#[test]
fn json() {
    let mut value =
        done(&["20/minute; 5/3s", "leaky-bucket 20/minute", "--pattern", "boundary", "--keys", "2", "--json"]).json();
    golden("simulate/boundary.json", &format!("{value:#}\n"));
    value = done(&["2/s", "--trace", "calls.jsonl", "--json"]).json();
    golden("simulate/json-lines.json", &format!("{value:#}\n"));
}

#[test]
fn standard_input_and_sorting() {
    let scratch = Scratch::new("sorted");
    let unsorted = scratch.file("unsorted.csv");
    fs::write(&unsorted, "time,key\n3,a\n1,a\n2,b\n1,b\n").expect("a trace");
    let sorted = done(&["fixed-window 1/2s", "--trace", &unsorted, "--sort", "--json"]).json();
    assert_eq!(sorted["policies"][0]["admitted"], json!(3));
    let mut piped = command(&["1/2s", "--trace", "-", "--json"]);
    piped.stdin(fs::File::open(folder("simulate/traces/timestamps.txt")).expect("a trace"));
    let piped = ran(&mut piped).json();
    let empty = ran(&mut command(&["1/2s", "--trace", "-"]));
    assert!(empty.error.contains("standard input: there are no calls in it"), "{}", empty.error);
    assert_eq!(piped["traffic"]["file"], json!("standard input"));
    assert_eq!(piped["traffic"]["calls"], json!(9));
}

#[test]
fn the_command_that_is_shown_makes_the_simulation_again() {
    let storm = ["5/s", "--pattern", "retry-storm", "--rate", "20/s", "--duration", "3s", "--retries", "2"];
    let short = ["5/s", "--pattern", "steady", "--calls", "500"];
    assert_eq!(done(&[&short[..], &["--json"]].concat()).json()["traffic"]["calls"], json!(500));
    let trace = ["5/s", "--trace", "columns.csv", "--format", "timestamps", "--retry", "backoff"];
    let backlog = ["5/s", "--pattern", "outgoing", "--rate", "9/s", "--duration", "3s", "--retries", "2"];
    for arguments in [&storm[..], &trace, &backlog, &short] {
        let first = done(&[arguments, &["--json"]].concat()).json();
        let shown =
            first["command"].as_str().and_then(|shown| shown.strip_prefix("tidegate simulate ")).expect("a command");
        let again = done(&shown.split(' ').chain(["--json"]).collect::<Vec<_>>()).json();
        assert_eq!(first, again, "{shown}");
        assert!(
            ["--retries 2", "--format timestamps", "--calls 500"].iter().any(|said| shown.contains(said)),
            "{shown}"
        );
    }
}

#[test]
fn bad_lines_are_counted() {
    let skipped = done(&["2/s", "--trace", "bad.csv", "--skip-bad-lines", "--json"]).json();
    assert_eq!(skipped["traffic"]["skipped_lines"], json!(2));
    assert_eq!(skipped["traffic"]["calls"], json!(2));
    let note = skipped["notes"][0].as_str().expect("a note");
    assert!(note.contains("2 lines were skipped") && note.contains("bad.csv:2"), "{note}");
}

#[test]
fn the_seed_is_all_that_differs() {
    let run = |seed: &str| {
        done(&["5/s", "--pattern", "retry-storm", "--rate", "40/s", "--retry", "backoff", "--seed", seed]).out
    };
    assert_eq!(run("7"), run("7"));
    assert_ne!(run("7"), run("8"));
}
