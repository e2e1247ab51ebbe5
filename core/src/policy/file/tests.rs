use proptest::prelude::*;

use super::super::{Algorithm, Limit, OnStoreError, Period, Policy, Unit};
use super::*;
use crate::error::ErrorKind;

fn environment(name: &str) -> Option<String> {
    match name {
        "REDIS_URL" => Some("redis://u:hunter2@host:6379/0".to_owned()),
        "COUNT" => Some("7".to_owned()),
        "YES" => Some("true".to_owned()),
        "WORD" => Some("minuet".to_owned()),
        "EMPTY" => Some(String::new()),
        _ => None,
    }
}

fn read(text: &str, format: Format) -> Result<PolicyFile> {
    PolicyFile::parse_with(text, format, Some("t"), &environment)
}

fn yaml(text: &str) -> PolicyFile {
    read(text, Format::Yaml).unwrap_or_else(|error| panic!("{text}\n{error}"))
}

/// The error's message without its place, after a look at the place.
fn fails(text: &str, format: Format, line: usize, column: usize) -> String {
    let error = read(text, format).expect_err(text);
    assert_eq!(error.kind(), ErrorKind::PolicyInvalid, "{text}\n{error}");
    let place = error.location().expect("a place");
    assert_eq!((place.line, place.column), (line, column), "{text}\n{error}");
    assert_eq!(place.file.as_deref(), Some("t"));
    error.message().strip_prefix(&format!("t:{line}:{column}: ")).expect("the place").to_owned()
}

const CONTRACT: &str = "\
store: ${REDIS_URL:-memory://}        # environment, with a default
policies:
  auth.createToken: 20/minute; 5/3s
  api:
    limits:
      - gcra 100/s burst 200
      - {algorithm: calendar-window, count: 100000, period: 1 day}
      - {algorithm: sliding-window, count: 600, period: 10m, precision: 60}
      - {limit: 600, period: 600}     # seconds; the shape of older files
    on_store_error: local             # raise | open | closed | local
    shadow: false
    block_for: 10m                    # once denied, the key stays denied this long
    count_denied: false
    journal: 100                      # remember the newest 100 attempts with their metadata
";

const CONTRACT_TOML: &str = r#"
store = "${REDIS_URL:-memory://}"
[policies]
"auth.createToken" = "20/minute; 5/3s"
[policies.api]
on_store_error = "local"
shadow = false
block_for = "10m"
count_denied = false
journal = 100
limits = [
  "gcra 100/s burst 200",
  {algorithm = "calendar-window", count = 100000, period = "1 day"},
  {algorithm = "sliding-window", count = 600, period = "10m", precision = 60},
  {limit = 600, period = 600},
]
"#;

const CONTRACT_JSON: &str = r#"{
  "store": "${REDIS_URL:-memory:\/\/}",
  "policies": {
    "auth.createToken": "20/minute; 5/3s",
    "api": {
      "limits": ["gcra 100/s burst 200", {"algorithm": "calendar-window", "count": 100000, "period": "1 day"},
        {"algorithm": "sliding-window", "count": 600, "period": "10m", "precision": 60}, {"limit": 600, "period": 600.0}],
      "on_store_error": "local", "shadow": false, "block_for": 600, "count_denied": false, "journal": 100
    }
  }
}"#;

#[test]
fn the_three_formats_say_the_same() {
    let file = yaml(CONTRACT);
    assert_eq!(file.store(), Some(&["redis://u:hunter2@host:6379/0".to_owned()][..]));
    let names: Vec<_> = file.policies().iter().map(Policy::name).collect();
    assert_eq!(names, ["auth.createToken", "api"]);
    assert_eq!(file.policies()[0].limits(), Policy::parse("20/minute; 5/3s").unwrap().limits());
    let api = file.get("api").unwrap();
    let ten_minutes = Period::new(10, Unit::Minute).unwrap();
    let window = Limit::new(Algorithm::SlidingWindow, 600, ten_minutes).unwrap();
    assert_eq!(api.limits()[2], window.clone().with_precision(60).unwrap());
    assert_eq!(api.limits()[3], window);
    assert_eq!(api.options().on_store_error, Some(OnStoreError::Local));
    assert_eq!(api.options().block_for, Some(ten_minutes));
    assert_eq!(api.options().journal, 100);
    assert_eq!(file.place("api").unwrap().to_string(), "t:4:3");
    assert_eq!(file.limit_place(1, 1).unwrap().to_string(), "t:7:9");
    for (text, format) in [(CONTRACT_TOML, Format::Toml), (CONTRACT_JSON, Format::Json), (CONTRACT_JSON, Format::Yaml)]
    {
        let other = read(text, format).unwrap();
        assert_eq!((other.store(), other.policies()), (file.store(), file.policies()), "{}", format.name());
    }
}

#[test]
fn a_policy_may_be_a_list() {
    let file = yaml(
        "policies:\n  a: [5/s, {limit: 600, period: 600}, '1/day; concurrency 3']\n  b: {limits: {count: 0, period: 0.5}}\n",
    );
    assert_eq!(file.policies()[0].to_string(), "5/s; 600/10 minutes; 1/day; concurrency 3 ttl 1 minute");
    assert_eq!(file.policies()[1].to_string(), "0/500ms");
    assert_eq!(file.store(), None);
    assert!(yaml("policies: {}").policies().is_empty());
    assert_eq!(yaml("store: [memory://, 'redis://b']\npolicies: {}").store().unwrap().len(), 2);
    assert_eq!(yaml("policies: {404: 5/s, true: 5/s, null: 5/s}").policies().len(), 3);
    let full = "policies: {a: [{algorithm: TOKEN_BUCKET, count: 5, period: 1 s, burst: 9, initial: 0}, {algorithm: concurrency, count: 2, ttl: 1.5}]}";
    assert_eq!(yaml(full).policies()[0].limits()[0].initial(), Some(0));
    assert_eq!(yaml(full).policies()[0].limits()[1].period().micros(), 1_500_000);
}

#[test]
fn errors_have_a_place() {
    for (text, line, column, words) in [
        ("", 1, 1, "the file is empty"),
        ("# nothing\n", 1, 1, "the file is empty"),
        ("~", 1, 1, "the file is empty"),
        ("[]", 1, 1, "is a map with `policies`"),
        ("store: memory://", 1, 1, "no `policies`"),
        ("policies:", 1, 9, "must be a map"),
        ("polices: {}", 1, 1, "unknown name `polices`; did you mean `policies`?\na policy file has policies, store"),
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
        ("policies: {a: {limits: 5/s, block_for: [1]}}", 1, 40, "not a list"),
        ("policies: {a: {limits: 5/s, lease: 5%}}", 1, 29, "not available yet: remove `lease`"),
        ("policies: {a: [{count: 5}]}", 1, 16, "no `period`"),
        ("policies: {a: [{period: 5}]}", 1, 16, "no `count`"),
        ("policies: {a: [{count: 5, limit: 5, period: 5}]}", 1, 27, "mean the same"),
        ("policies: {a: [{count: 1.5, period: 5}]}", 1, 24, "whole number"),
        ("policies: {a: [{count: '5', period: 5}]}", 1, 24, "not the text `5`"),
        ("policies: {a: [{count: 9999999999999999999999999999999999999999999, period: 5}]}", 1, 24, "whole number"),
        ("policies: {a: [{algorithm: gcar, count: 5, period: 5}]}", 1, 28, "did you mean `gcra`?"),
        ("policies: {a: [{count: 5, period: 5, burst: 6}]}", 1, 45, "burst means nothing to sliding-window"),
        ("policies: {a: [{count: 5, period: 5, precision: 0}]}", 1, 49, "precision 0 is out of range"),
        ("policies: {a: [{count: 5, period: 5, ttl: 6}]}", 1, 38, "no ttl"),
        ("policies: {a: [{algorithm: concurrency, count: 5, period: 5}]}", 1, 51, "no period"),
        (
            "policies: {a: [{algorithm: token-bucket, count: 5, period: 5, initial: 6}]}",
            1,
            72,
            "more than the bucket holds",
        ),
        ("policies: {a: *b}", 1, 15, "this is no YAML"),
        ("policies: &a {a: *a}", 1, 18, "inside of what it repeats"),
        ("policies: {a: !secret 5/s}", 1, 15, "unknown tag"),
        ("policies: {a: !!int five}", 1, 15, "does not fit"),
        ("policies: {}\n---\npolicies: {}", 2, 1, "second YAML document"),
        ("policies: {[1]: 5/s}", 1, 12, "a name must be a text"),
        ("policies:\n\ta: 5/s", 2, 2, "this is no YAML"),
        ("policies: {a: '${MISSING}/s'}", 1, 16, "MISSING is not set"),
        ("policies: {a: 'é ${MISSING}/s'}", 1, 18, "MISSING is not set"),
        ("policies: {a: '${COUNT'}", 1, 16, "no `}`"),
        ("policies: {a: '${COUNT-5}'}", 1, 16, "name of an environment variable"),
        ("policies: {a: '${COUNT}/${WORD}'}", 1, 15, "unknown unit"),
    ] {
        let message = fails(text, Format::Yaml, line, column);
        assert!(message.contains(words), "{text}\n{message}");
    }
}

#[test]
fn errors_have_a_place_in_toml_and_json() {
    for (text, line, column, words) in [
        ("", 1, 1, "no `policies`"),
        ("[policies]\na = 20/minute", 2, 7, "a text stands in quotes"),
        ("[policies]\na = \"20/minuet\"", 2, 9, "unknown unit"),
        ("[policies]\na = '''20/minuet'''", 2, 11, "unknown unit"),
        ("[policies]\na = \"5/s\"\na = \"5/s\"", 3, 1, "stands in line 2"),
        ("[policies]\n[policies]", 2, 1, "twice"),
        ("[policies]\nauth.login = \"5/s\"", 2, 6, "stands in quotes"),
        ("[policies.a]\nlimits = [\"5/s\"]\njournal = 'x'", 3, 12, "whole number"),
    ] {
        let message = fails(text, Format::Toml, line, column);
        assert!(message.contains(words), "{text}\n{message}");
    }
    for (text, line, column, words) in [
        ("", 1, 1, "this is no JSON"),
        ("policies: {}", 1, 1, "this is no JSON"),
        ("{\n  'policies': {}}", 2, 3, "this is no JSON"),
        ("{\"é\": \"é\" 5}", 1, 11, "this is no JSON"),
        ("{\"policies\": {\"a\": \"5/s\",\n \"a\": \"6/s\"}}", 2, 2, "stands in line 1"),
        ("{\"policies\":\n {\"a\" : \"é5/s\"}}", 2, 10, "unexpected `é`"),
        ("{\"policies\": {\"a\": \"\\ud83d\\ude00\"}}", 1, 20, "unexpected `😀`"),
        ("{\"policies\": {\"a\": null}}", 1, 20, "not nothing"),
        ("{\"policies\": {\"a\": [{\"count\": 1e3, \"period\": 1}]}}", 1, 31, "whole number"),
        ("{\"policies\": {}} x", 1, 18, "this is no JSON"),
    ] {
        let message = fails(text, Format::Json, line, column);
        assert!(message.contains(words), "{text}\n{message}");
    }
}

#[test]
fn the_environment_holds_numbers_and_booleans_too() {
    let text = "policies: {a: {limits: ['${COUNT}/s', {count: '${COUNT}', period: '${P:-1.5}'}], shadow: '${YES}', journal: '${EMPTY:-3}'}}";
    let policy = &yaml(text).policies()[0].clone();
    assert_eq!(policy.to_string(), "7/s; 7/1500ms");
    assert_eq!((policy.options().shadow, policy.options().journal), (true, 3));
    let text = "policies:\n  a:\n    limits: 5/s\n    journal: ${COUNT}\n    block_for: ${B:-10m}\n";
    assert_eq!(yaml(text).policies()[0].options().journal, 7);
    assert_eq!(yaml("store: redis://$${x}${EMPTY}@h\npolicies: {}").store().unwrap(), ["redis://${x}@h"]);
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
fn aliases_repeat_and_bombs_do_not_explode() {
    let file = yaml("policies:\n  a: &x {limits: [&l 5/s], journal: 3}\n  b: *x\n  c: [*l, 6/m]\n");
    assert_eq!(file.policies()[0].options(), file.policies()[1].options());
    assert_eq!(file.policies()[2].to_string(), "5/s; 6/minute");
    let mut bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for level in 1..30 {
        let alias = format!("*a{}, ", level - 1);
        bomb += &format!("a{level}: &a{level} [{}]\n", alias.repeat(10).trim_end_matches(", "));
    }
    assert!(read(&bomb, Format::Yaml).unwrap_err().message().contains("values"));
    let deep = (1..200).fold("a0: &a0 []\n".to_owned(), |text, n| text + &format!("a{n}: &a{n} [*a{}]\n", n - 1));
    assert!(read(&deep, Format::Yaml).unwrap_err().message().contains("deeper"));
}

#[test]
fn huge_files_are_refused_or_read_and_never_panic() {
    const SIZE: usize = 1 << 18;
    for format in Format::ALL {
        for piece in [
            "[",
            "{",
            "{a: ",
            "- ",
            "? ",
            "a: ",
            "\"",
            "'",
            "[[a]]\n",
            "a.",
            "a=1\n",
            "[a.b]\n",
            "&a ",
            "!!a ",
            "9",
            "\\",
            "\u{1F600}",
            "{\"a\":",
            "x\n",
            "\r",
            "|\n",
            "# ",
        ] {
            let _ = read(&piece.repeat(SIZE / piece.len()), format);
        }
        assert!(read(&" ".repeat(LARGEST + 1), format).unwrap_err().message().contains("larger"));
    }
    let many: String = (0..20_000).map(|n| format!("\"p{n}\":\"5/s\",")).collect();
    let many = format!("{{\"policies\":{{{}}}}}", many.trim_end_matches(','));
    for format in [Format::Json, Format::Yaml] {
        assert_eq!(read(&many, format).unwrap().policies().len(), 20_000);
    }
}

#[test]
fn reads_a_file_by_its_extension() {
    let folder = std::env::temp_dir().join(format!("tidegate-policy-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    for (name, text) in [("a.YML", CONTRACT), ("a.toml", CONTRACT_TOML), ("a.json", CONTRACT_JSON)] {
        let path = folder.join(name);
        std::fs::write(&path, format!("\u{feff}{text}")).unwrap();
        assert_eq!(PolicyFile::read(&path).map(|file| file.policies().len()), Ok(2), "{name}");
    }
    let path = folder.join("bad.yaml");
    std::fs::write(&path, b"policies:\n  a: \xff").unwrap();
    let error = PolicyFile::read(&path).unwrap_err();
    assert_eq!(error.location().map(|place| (place.line, place.column)), Some((2, 6)));
    for name in ["missing.yaml", "a.txt", "a"] {
        let error = PolicyFile::read(folder.join(name)).unwrap_err();
        assert!(error.message().contains(name), "{error}");
    }
    std::fs::remove_dir_all(&folder).unwrap();
}

fn pieces() -> impl Strategy<Value = String> {
    let pieces = vec![
        "policies",
        ":",
        ": ",
        "\n",
        "\n  ",
        "\n    - ",
        "{",
        "}",
        "[",
        "]",
        ",",
        "\"",
        "'",
        "5/s",
        "limits",
        "count",
        "period",
        "600",
        "&a ",
        "*a",
        "!!str ",
        "|",
        ">",
        "#",
        "---",
        "...",
        "${",
        "}",
        "X:-",
        "=",
        "[[",
        "]]",
        "a.b",
        "store",
        "\\u00e9",
        "é",
        "\u{0}",
        "\t",
        "? ",
        "- ",
        "null",
        "-1",
        "1e400",
        "0x",
        "\r\n",
        "%TAG ! x",
        "%YAML 1.2",
        "<<",
        "'''",
        "\"\"\"",
        "\u{feff}",
    ];
    proptest::collection::vec(prop::sample::select(pieces), 0..40).prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn no_text_panics(text in pieces(), anything in "\\PC{0,60}|[\\x00-\\x7f]{0,60}") {
        for format in Format::ALL {
            for text in [&text, &anything] {
                let _ = read(text, format);
            }
        }
    }

    #[test]
    fn no_damaged_file_panics(at in 0_usize..900, take in 0_usize..40, put in pieces()) {
        for (text, format) in [(CONTRACT, Format::Yaml), (CONTRACT_TOML, Format::Toml), (CONTRACT_JSON, Format::Json)] {
            let mut text: Vec<char> = text.chars().collect();
            let from = at.min(text.len());
            let to = (from + take).min(text.len());
            text.splice(from..to, put.chars());
            let _ = read(&text.iter().collect::<String>(), format);
        }
    }
}
