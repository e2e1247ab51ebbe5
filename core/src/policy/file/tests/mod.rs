mod errors;
mod older_shape;
mod robustness;
mod stores;

use super::super::{Algorithm, Limit, OnStoreError, Period, Policy, TimeUnit};
use super::*;

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
    let ten_minutes = Period::new(10, TimeUnit::Minute).unwrap();
    let window = Limit::new(Algorithm::SlidingWindow, 600, ten_minutes).unwrap();
    assert_eq!(api.limits()[2], window.clone().with_precision(60).unwrap());
    assert_eq!(api.limits()[3], window);
    assert_eq!(api.options().on_store_error, Some(OnStoreError::Local));
    assert_eq!(api.options().block_for, Some(ten_minutes.into()));
    assert_eq!(api.options().journal, 100);
    assert_eq!(file.location("api").unwrap().to_string(), "t:4:3");
    assert_eq!(file.limit_location(1, 1).unwrap().to_string(), "t:7:9");
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
    assert_eq!(error.location().map(|location| (location.line, location.column)), Some((2, 6)));
    for name in ["missing.yaml", "a.txt", "a"] {
        let error = PolicyFile::read(folder.join(name)).unwrap_err();
        assert!(error.message().contains(name), "{error}");
    }
    std::fs::remove_dir_all(&folder).unwrap();
}
