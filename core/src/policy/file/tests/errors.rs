//! Errors in a file have its line and column.

use super::*;
use crate::error::ErrorKind;

/// Returns the message of the error without its location, and checks the location.
pub(super) fn fails(text: &str, format: Format, line: usize, column: usize) -> String {
    let error = read(text, format).expect_err(text);
    assert_eq!(error.kind(), ErrorKind::PolicyInvalid, "{text}\n{error}");
    let location = error.location().expect("a location");
    assert_eq!((location.line, location.column), (line, column), "{text}\n{error}");
    assert_eq!(location.file.as_deref(), Some("t"));
    error.message().strip_prefix(&format!("t:{line}:{column}: ")).expect("the location").to_owned()
}

#[test]
fn errors_have_a_location() {
    for (text, line, column, words) in [
        ("", 1, 1, "the file is empty"),
        ("# nothing\n", 1, 1, "the file is empty"),
        ("~", 1, 1, "the file is empty"),
        ("[]", 1, 1, "is a map with `policies`"),
        ("store: memory://", 1, 1, "no `policies`"),
        ("policies:", 1, 9, "must be a map"),
        (
            "polices: {}",
            1,
            1,
            "unknown name `polices`; did you mean `policies`?\na policy file has policies, limits, store, prefix",
        ),
        // YAML makes this of `u:SE:CRET: /x@h`, a URL without a scheme.
        ("u:SE:CRET: /x@h", 1, 1, "unknown name `…:…` (not shown: it may be a part of a URL)\n"),
        ("policies: {}\nstore: 5", 2, 8, "`store` must be a URL"),
        ("policies: {}\nstore: []", 2, 8, "`store` must be a URL"),
        ("policies: {}\nstore: ''", 2, 8, "`store` must be a URL"),
        ("policies: {a: 5/s, a: 6/s}", 1, 20, "`a` is here twice: it stands in line 1"),
        ("policies:\n  a: 20/minuet\n", 2, 9, "did you mean `minute`?"),
        ("policies:\n  a: '20/minuet'\n", 2, 10, "unknown unit"),
        ("policies:\n  a: |\n    20/minuet\n", 3, 5, "unknown unit"),
        ("policies:\n  a: \"20\\u002fminuet\"\n", 2, 6, "unknown unit"),
        ("policies: {a: 20}", 1, 15, "must be notation, a list of limits or a map with `limits`, not the number 20"),
        ("policies: {a: }", 1, 13, "not nothing"),
        ("policies: {a: []}", 1, 15, "the list is empty"),
        ("policies: {a: [5]}", 1, 16, "a limit must be notation"),
        ("policies: {a: {}}", 1, 12, "the policy `a` has no `limits`"),
        ("policies: {'': 5/s}", 1, 12, "name has 0 bytes"),
        ("policies: {a: {count: 5, period: 1}}", 1, 16, "under `limits`"),
        ("policies: {a: {limits: 5/s, journl: 5}}", 1, 29, "did you mean `journal`?"),
        ("policies: {a: {limits: 5/s, journal: 10001}}", 1, 38, "from 0 to 10000, not the number 10001"),
        ("policies: {a: {limits: 5/s, journal: -1}}", 1, 38, "whole number"),
        ("policies: {a: {limits: 5/s, journal: true}}", 1, 38, "not `true`"),
        ("policies: {a: {limits: 5/s, shadow: yes}}", 1, 37, "true or false, not the text `yes`"),
        ("policies: {a: {limits: 5/s, on_store_error: opne}}", 1, 45, "did you mean `open`?"),
        ("policies: {a: {limits: 5/s, block_for: 10 minuets}}", 1, 43, "did you mean `minutes`?"),
        ("policies: {a: {limits: 5/s, block_for: 0}}", 1, 40, "a number of seconds from 0.001"),
        ("policies: {a: {limits: 5/s, block_for: .nan}}", 1, 40, "a number of seconds"),
        (
            "policies: {a: {limits: [{algorithm: calendar-window, count: 5, period: 1 month, from: day 32}]}}",
            1,
            91,
            "there is no such day of a month",
        ),
        (
            "policies: {a: {limits: [{algorithm: calendar-window, count: 5, period: 1 month, from: 15}]}}",
            1,
            87,
            "`from` must be a text, as in `from: day 15 at 06:00`, not the number 15",
        ),
        (
            "policies: {a: {limits: [{algorithm: calendar-window, count: 5, period: 1 week, from: day 15}]}}",
            1,
            86,
            "a week begins on a weekday: write one, as in `from monday at 06:00`",
        ),
        (
            "policies: {a: {limits: [{algorithm: calendar-window, count: 5, period: 1 day, in: Europe/Berlim}]}}",
            1,
            83,
            "there is no time zone \"Europe/Berlim\": give an IANA name, such as Europe/Berlin",
        ),
        (
            "policies: {a: {limits: [{algorithm: calendar-window, count: 5, period: 2 days, in: Europe/Berlin}]}}",
            1,
            84,
            "`in` needs a period of one day, week, month or year, not 2 days",
        ),
        (
            "policies: {a: {limits: [{count: 5, period: 1 day, in: Europe/Berlin}]}}",
            1,
            55,
            "sliding-window has no calendar: write `calendar-window` before the count for windows that have `in`",
        ),
        ("policies: {a: {limits: 5/s, block_for: [1, [2]]}}", 1, 44, "not a list"),
        ("policies: {a: {limits: 5/s, lease: 5 percent}}", 1, 36, "a number of units, or a part such as `5%`"),
        ("policies: {a: {limits: 5/s, lease: 0}}", 1, 36, "a number of units, or a part such as `5%`"),
        ("policies: {a: {limits: leaky-bucket 5/s, lease: 5%}}", 1, 12, "the store has to give each unit"),
        ("policies: {a: [{count: 5}]}", 1, 16, "no `period`"),
        ("policies: {a: [{period: 5}]}", 1, 16, "no `count`"),
        ("policies: {a: [{count: 5, limit: 5, period: 5}]}", 1, 27, "mean the same"),
        ("policies: {a: [{count: 1.5, period: 5}]}", 1, 24, "whole number"),
        ("policies: {a: [{count: '5', period: 5}]}", 1, 24, "not the text `5`"),
        ("policies: {a: [{count: 9999999999999999999999999999999999999999999, period: 5}]}", 1, 24, "whole number"),
        ("policies: {a: [{algorithm: gcar, count: 5, period: 5}]}", 1, 28, "did you mean `gcra`?"),
        ("policies: {a: [{count: 5, period: 5, burst: 6}]}", 1, 45, "sliding-window has no burst"),
        ("policies: {a: [{count: 5, period: 5, precision: 0}]}", 1, 49, "precision 0 is out of range"),
        ("policies: {a: [{count: 5, period: 5, ttl: 6}]}", 1, 38, "no ttl"),
        ("policies: {a: [{algorithm: concurrency, count: 5, period: 5}]}", 1, 51, "no period"),
        (
            "policies: {a: [{algorithm: token-bucket, count: 5, period: 5, initial: 6}]}",
            1,
            72,
            "more than the bucket holds",
        ),
        ("policies: {a: *b}", 1, 15, "this is not YAML"),
        ("policies: &a {a: *a}", 1, 18, "stands inside its own value"),
        ("policies: {a: !secret 5/s}", 1, 15, "unknown tag"),
        ("policies: {a: !!int five}", 1, 15, "does not fit"),
        ("policies: {}\n---\npolicies: {}", 2, 1, "second YAML document"),
        ("policies: {[1]: 5/s}", 1, 12, "a name must be a text"),
        ("policies:\n\ta: 5/s", 2, 2, "this is not YAML"),
        ("policies: {a: '${MISSING}/s'}", 1, 16, "MISSING is not set"),
        ("policies: {a: 'é ${MISSING}/s'}", 1, 18, "MISSING is not set"),
        ("policies: {a: '${COUNT'}", 1, 16, "no `}`"),
        ("policies: {a: '${COUNT-5}'}", 1, 16, "name of an environment variable"),
        ("policies: {a: '${COUNT}/${WORD}'}", 1, 15, "wrong at its character 3"),
    ] {
        let message = fails(text, Format::Yaml, line, column);
        assert!(message.contains(words), "{text}\n{message}");
    }
}

#[test]
fn errors_have_a_location_in_toml_and_json() {
    for (text, line, column, words) in [
        ("", 1, 1, "no `policies`"),
        ("[policies]\na = 20/minute", 2, 7, "write text in quotes"),
        ("[policies]\na = \"20/minuet\"", 2, 9, "unknown unit"),
        ("[policies]\na = '''20/minuet'''", 2, 11, "unknown unit"),
        ("[policies]\na = \"5/s\"\na = \"5/s\"", 3, 1, "stands in line 2"),
        ("[policies]\n[policies]", 2, 1, "twice"),
        ("[policies]\nauth.login = \"5/s\"", 2, 6, "write a name with a dot in quotes"),
        ("[policies.a]\nlimits = [\"5/s\"]\njournal = 'x'", 3, 12, "whole number"),
    ] {
        let message = fails(text, Format::Toml, line, column);
        assert!(message.contains(words), "{text}\n{message}");
    }
    for (text, line, column, words) in [
        ("", 1, 1, "this is not JSON"),
        ("policies: {}", 1, 1, "this is not JSON"),
        ("{\n  'policies': {}}", 2, 3, "this is not JSON"),
        ("{\"é\": \"é\" 5}", 1, 11, "this is not JSON"),
        ("{\"policies\": {\"a\": \"5/s\",\n \"a\": \"6/s\"}}", 2, 2, "stands in line 1"),
        ("{\"policies\":\n {\"a\" : \"é5/s\"}}", 2, 10, "unexpected `é`"),
        ("{\"policies\": {\"a\": \"\\ud83d\\ude00\"}}", 1, 20, "unexpected `😀`"),
        ("{\"policies\": {\"a\": null}}", 1, 20, "not nothing"),
        ("{\"policies\": {\"a\": [{\"count\": 1e3, \"period\": 1}]}}", 1, 31, "whole number"),
        ("{\"policies\": {}} x", 1, 18, "this is not JSON"),
    ] {
        let message = fails(text, Format::Json, line, column);
        assert!(message.contains(words), "{text}\n{message}");
    }
}

#[test]
fn no_error_repeats_a_password() {
    for text in [
        "policies: {a: '${REDIS_URL}'}",
        "policies: {a: {limits: 5/s, journal: '${REDIS_URL}', shadow: true}}",
        "policies: {a: {limits: 5/s, shadow: 'redis://:hunter2@h'}}",
        "policies: {a: {limits: 5/s, block_for: 'redis://:hunter2@h'}}",
        "policies: {a: {limits: 5/s, on_store_error: 'redis://:hunter2@h'}}",
        "policies: {}\nstore: {a: 'redis://:hunter2@h'}",
        "redis://:hunter2@h",
        "redis://:hunter2@h: 5",
    ] {
        let error = read(text, Format::Yaml).expect_err(text);
        assert!(!error.message().contains("hunter2"), "{error}");
    }
}

#[test]
fn the_value_of_a_variable_does_not_stand_in_the_error_of_its_notation() {
    let lookup = |_: &str| Some("hunter2-is-a-secret".to_owned());
    let text = "policies: {login: \"${LIMIT}\"}";
    let error = PolicyFile::parse_with(text, Format::Yaml, Some("t"), &lookup).expect_err("no notation");
    assert!(!error.message().contains("hunter2") && error.message().contains("wrong at its character 1"), "{error}");
}
