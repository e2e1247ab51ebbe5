//! Programs compare error codes, so `tests/errors.json` lists them for every language.

use std::error::Error as _;
use std::io::{self, Write as _};
use std::net::TcpListener;
use std::time::Duration;

use serde_json::Value;
use tidegate::policy::TimeUnit;
use tidegate::{Algorithm, Error, ErrorKind, Limit, Limiter, OnStoreError, Options, Period, Policy};
use tidegate_tests::any_limiter::AnyLimiter;

#[test]
fn every_kind_is_in_the_table_and_nothing_else_is() {
    let table: Value = serde_json::from_str(include_str!("../../errors.json")).expect("the table is JSON");
    let rows = table.as_array().expect("the table is a list");
    assert_eq!(rows.len(), ErrorKind::ALL.len());
    for (row, kind) in rows.iter().zip(ErrorKind::ALL) {
        assert_eq!(row["code"], kind.code());
        assert_eq!(row["kind"], format!("{kind:?}"));
        // Python and Node have one class for all errors of the store, and one for all errors of policies.
        assert_eq!(row["python"] == "StoreError", kind.is_store(), "{row}");
        assert_eq!(row["python"] == "PolicyError", kind.code().starts_with("policy_"), "{row}");
        assert_eq!(row["python"], row["node"]);
    }
}

#[test]
fn the_codes_are_those_that_were_promised() {
    let promised = [
        "policy_invalid",
        "policy_unknown",
        "cost_invalid",
        "key_invalid",
        "config_invalid",
        "store_unavailable",
        "store_timeout",
        "store_rejected",
        "closed",
    ];
    let codes: Vec<&str> = ErrorKind::ALL.iter().map(|kind| kind.code()).collect();
    assert_eq!(codes, promised);
}

#[test]
fn mistakes_in_the_parts_of_a_policy_are_named() {
    let minute = Period::from_micros(60_000_000).expect("a period");
    let limit = |algorithm: Algorithm| Limit::new(algorithm, 5, minute).expect("a limit");
    let (window, bucket) = (|| limit(Algorithm::FixedWindow), || limit(Algorithm::TokenBucket));
    let of = |limits: Vec<Limit>, options: Options| Policy::new(limits, options);
    let mistakes = [
        (window().with_burst(6).err(), "fixed-window has no burst"),
        (window().with_initial(1).err(), "fixed-window has no initial"),
        (window().with_precision(10).err(), "fixed-window has no precision"),
        (bucket().with_initial(6).err(), "initial 6 is more than the bucket holds (5)"),
        (Limit::new(Algorithm::Gcra, 10_u64.pow(12) + 1, minute).err(), "count 1000000000001 is too large"),
        (bucket().with_burst(10_u64.pow(12) + 1).err(), "burst 1000000000001 is too large"),
        (of(Vec::new(), Options::default()).err(), "a policy has 0 limits"),
        (of(vec![window(); 17], Options::default()).err(), "a policy has 17 limits"),
        (of(vec![window()], Options { journal: 10_001, ..Options::default() }).err(), "journal 10001 is too long"),
        (
            Limiter::builder().policy("login", "5/s").and_then(|builder| builder.policy("login", "6/s")).err(),
            "two policies have the name \"login\"",
        ),
        // From the fields of a response, a client could not know which of the two limits is meant.
        (
            Limiter::builder()
                .policy("login", "5/s; 9/minute")
                .and_then(|builder| builder.policy("login-2", "6/s"))
                .err(),
            "the policy \"login-2\" has the name that responses give a limit of the policy \"login\"",
        ),
    ];
    for (error, expected) in mistakes {
        let error = error.unwrap_or_else(|| panic!("no error, but expected {expected}"));
        assert_eq!(error.kind(), ErrorKind::PolicyInvalid, "{error}");
        assert!(error.message().starts_with(expected), "{error}, but expected {expected}");
    }
    for (one, other) in [("login", "login-2"), ("login-0", "login"), ("login-02", "login"), ("login", "login-3")] {
        let two = if other == "login-2" { "5/s" } else { "5/s; 9/minute" };
        let (first, second) = if one == "login" { (two, "6/s") } else { ("6/s", two) };
        let both = Limiter::builder().policy(one, first).and_then(|builder| builder.policy(other, second));
        assert!(both.is_ok(), "no limit has the name of a policy: {both:?}");
    }
}

#[test]
fn a_policy_of_a_file_cannot_have_the_name_of_a_limit() {
    let parse = |text: &str| tidegate::PolicyFile::parse(text, tidegate::policy::Format::Yaml, Some("policies.yaml"));
    let text = "policies:\n  login-1: 5/s\n  login: 20/minute; 5/3s\n";
    let error = parse(text).expect_err("two limits of one name");
    assert_eq!(error.kind(), ErrorKind::PolicyInvalid);
    assert!(error.to_string().contains("policies.yaml:2:3"), "{error}");
    assert!(error.message().contains("give one of them another name"), "{error}");
    assert!(parse("policies:\n  login-1: 5/s\n  login: 20/minute\n").is_ok());
}

#[test]
fn the_name_of_a_file_acts_on_no_terminal_and_begins_no_line() {
    let name = format!("tidegate-errors-{}-\u{1b}[2J\nERROR.yaml", std::process::id());
    let path = std::env::temp_dir().join(&name);
    let missing = Limiter::from_file(&path).err();
    std::fs::write(&path, "policies: {login: 20/fortnight}").expect("a file");
    let wrong = Limiter::from_file(&path).err();
    std::fs::write(&path, "store: memory://\npolicies: {login: 5/minute}").expect("a file");
    let limiter = Limiter::from_file(&path).expect("a limiter");
    std::fs::write(&path, "store: redis://127.0.0.1:1\npolicies: {login: 5/minute}").expect("a file");
    let refused = limiter.reload().err();
    std::fs::remove_file(&path).expect("it is there");
    let text = "policies: {login: 20/fortnight}";
    let parsed = tidegate::PolicyFile::parse(text, tidegate::policy::Format::Yaml, Some(&name)).err();
    let messages = [missing, wrong, refused, parsed].map(|error| error.expect("an error").message().to_owned());
    let acts = |message: &&String| message.contains('\u{1b}') || !message.contains("\\u{1b}[2J\\nERROR.yaml");
    assert_eq!(messages.iter().filter(acts).collect::<Vec<_>>(), [""; 0]);
}

/// The error of a check on that store, by a blocking and by an async limiter.
fn errors_of(url: &str) -> [Error; 2] {
    [false, true].map(|is_async| {
        let builder = Limiter::builder().store(url).timeout(Duration::from_secs(5)).on_store_error(OnStoreError::Raise);
        let limiter = AnyLimiter::new(builder, is_async).expect("a limiter");
        limiter.check("5/s", "k", 1, None).expect_err("there is no store")
    })
}

fn io_kind(error: &Error) -> Option<io::ErrorKind> {
    error.source()?.downcast_ref::<io::Error>().map(io::Error::kind)
}

#[test]
fn the_source_of_an_error_is_the_one_of_the_system_below_it() {
    for error in errors_of("redis://127.0.0.1:1") {
        assert_eq!(io_kind(&error), Some(io::ErrorKind::ConnectionRefused), "{error}");
        let number = error.source().and_then(|source| source.downcast_ref::<io::Error>()?.raw_os_error());
        assert!(number.is_some(), "a program may ask for the number: {error}");
    }
    // The error of a resolver differs by system. A silent resolver is a timeout.
    for error in errors_of("redis://no-such-name.invalid:6379") {
        assert!(io_kind(&error).is_some(), "{error}");
    }
    // A server without TLS.
    let plain = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("rediss://localhost:{}", plain.local_addr().expect("an address").port());
    std::thread::spawn(move || {
        for stream in plain.incoming() {
            drop(stream.and_then(|mut stream| stream.write_all(b"-ERR no TLS here\r\n")));
        }
    });
    for error in errors_of(&url) {
        assert!(io_kind(&error).is_some(), "{error}");
    }
    let error = Limiter::from_file("no-such-file.yaml").expect_err("there is no file");
    assert_eq!(io_kind(&error), Some(io::ErrorKind::NotFound), "{error}");
}

#[test]
fn what_may_grow_breaks_no_program_then() {
    // The type of an array would contain its length.
    let (_, _): (&[ErrorKind], &[TimeUnit]) = (ErrorKind::ALL, TimeUnit::ALL);
    for (source, item) in [
        (include_str!("../../../core/src/error/mod.rs"), "enum ErrorKind"),
        (include_str!("../../../core/src/error/mod.rs"), "struct SourceLocation"),
        (include_str!("../../../core/src/http/problem.rs"), "struct Refusal"),
        (include_str!("../../../core/src/limiter/hold.rs"), "enum HoldAnswer"),
        (include_str!("../../../core/src/algorithm/period.rs"), "enum TimeUnit"),
    ] {
        assert!(source.contains(&format!("#[non_exhaustive]\npub {item} {{")), "{item}");
    }
}
