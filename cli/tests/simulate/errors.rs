//! Error messages: the mistake, its place, and the remedy.

use std::fs;

use serde_json::Value;

use crate::running::{Scratch, command, ran};

/// The run fails with exit code 2, and its error has all of these texts.
#[track_caller]
fn fails(arguments: &[&str], said: &[&str]) {
    let ran = ran(&mut command(arguments));
    assert_eq!((ran.code, ran.out.as_str()), (2, ""), "{arguments:?}: {}", ran.error);
    for said in said {
        assert!(ran.error.contains(said), "{arguments:?} does not say {said:?}: {}", ran.error);
    }
}

#[test]
fn of_arguments() {
    fails(&["5/s"], &["--pattern <NAME>|--trace <FILE>"]);
    fails(&["5/s", "--pattern", "wavy"], &["steady", "retry-storm", "boundary"]);
    fails(&["5/parsec", "--pattern", "steady"], &["5/parsec"]);
    fails(&["login", "--pattern", "steady"], &["no policy file was given", "--policies FILE", "policy_unknown"]);
    fails(&["5/s", "5 per second", "--pattern", "steady"], &["given twice"]);
    fails(&["login2", "--policies", "policies.yaml", "--pattern", "steady"], &["login2"]);
    fails(
        &["logni", "--policies", "policies.yaml", "--pattern", "steady"],
        &["\"logni\"", "\"login\", \"trial\"", "did you mean `login`?"],
    );
    fails(&["5/s", "--policies", "absent.yaml", "--pattern", "steady"], &["absent.yaml", "cannot be read"]);
    fails(&["5/s", "--pattern", "steady", "--rate", "fast"], &["\"fast\" is not a rate", "20/s"]);
    fails(&["5/s", "--pattern", "steady", "--duration", "long"], &["\"long\" is not a length of time", "90s"]);
    fails(
        &["5/s", "--pattern", "steady", "--rate", "1M/s", "--duration", "1 day"],
        &["86400000000 calls", "lower --rate"],
    );
    fails(&["5/s", "--pattern", "steady", "--keys", "0"], &["1..=1000000"]);
    fails(&["5/s", "--pattern", "bursts", "--rate", "1/day"], &["no calls", "raise --rate"]);
    fails(&["5/s", "--pattern", "steady", "--key-field", "user"], &["--key-field", "--pattern"]);
}

#[test]
fn of_outputs() {
    fails(&["5/s", "--pattern", "steady", "--out", "plot.gif"], &["plot.gif", "must end in .svg or .html"]);
    fails(&["5/s", "--pattern", "steady", "--out", "plot.PNG"], &["plot.PNG", "write a .svg, and convert it"]);
    fails(&["5/s", "--pattern", "steady", "--out", "absent/plot.svg"], &["there is no folder absent"]);
    fails(&["5/s", "--pattern", "steady", "--decisions", "absent/d.csv"], &["absent/d.csv cannot be written"]);
}

#[test]
fn of_traces() {
    fails(&["5/s", "--trace", "absent.log"], &["absent.log cannot be read", "standard input"]);
    fails(&["5/s", "--trace", "."], &["cannot be read"]);
    fails(&["5/s", "--trace", "bad.csv"], &["bad.csv:2", "\"no time\" is not a time", "RFC 3339", "--skip-bad-lines"]);
    fails(&["5/s", "--trace", "calls.jsonl", "--key-field", "who"], &["calls.jsonl:1", "no field \"who\""]);
    fails(&["5/s", "--trace", "access.log", "--key-field", "who"], &["--key-field who", "address, user, method"]);
    fails(&["5/s", "--trace", "access.log", "--only-key", "::9"], &["no call has the key \"::9\"", "2 other keys"]);
    fails(&["5/s", "--trace", "columns.csv", "--key-field", "who"], &["second column"]);
    fails(&["5/s", "--trace", "columns.csv", "--format", "access-log"], &["columns.csv:1", "a line of an access log"]);
    fails(&["5/s", "--trace", "columns.csv", "--format", "json-lines"], &["columns.csv:1", "is not JSON"]);
}

#[test]
fn of_traces_that_are_no_traffic() {
    let scratch = Scratch::new("errors");
    let trace = scratch.file("trace.csv");
    let with = |text: &[u8], said: &[&str]| {
        fs::write(&trace, text).expect("a trace");
        fails(&["5/s", "--trace", &trace], said);
    };
    with(b"", &["there are no calls in it"]);
    with(b"# nothing\n\n", &["there are no calls in it"]);
    with(b"1\n5\n3.5\n", &["trace.csv:3", "1.5 s earlier", "--sort"]);
    with(b"1,a,0\n", &["trace.csv:1", "the cost \"0\"", "2^53 - 1"]);
    with(b"\x1f\x8b\x08\x00", &["compressed", "gzip -dc"]);
    with(&vec![b'1'; 2 << 20], &["longer than 1024 KiB"]);
    with(format!("1,{}\n", "k".repeat(70_000)).as_bytes(), &["the key has 70000 bytes"]);
    with(b"{\"when\": 1, \"key\": \"a\"}\n", &["--time-field", "\"when\""]);
}

#[test]
fn as_json_and_without_passwords() {
    let ran = ran(&mut command(&["5/s", "--pattern", "steady", "--store", "redis://u:hunter2@127.0.0.1:1", "--json"]));
    assert_eq!((ran.code, ran.out.as_str()), (2, ""));
    let error: Value = serde_json::from_str(&ran.error).expect("JSON");
    assert_eq!(error["error"]["code"], "store_unavailable", "{error}");
    assert!(!ran.error.contains("hunter2"), "{}", ran.error);
}
