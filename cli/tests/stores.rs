//! The verbs that work on a store, on real servers.

mod support;

use serde_json::{Value, json};
use tidegate_tests::shared_file::SharedFile;

use support::{Scratch, command, golden, on, ran, redis, run, without_numbers};

#[test]
fn one_key_by_hand() {
    one_key(redis().url());
}

#[test]
fn one_key_of_a_file_by_hand() {
    let shared = SharedFile::new();
    let url = shared.url("max_bytes=1MB");
    let missing = run(&["doctor", "--store", &url]);
    assert_eq!(missing.code, 2, "{}", missing.out);
    assert!(missing.out.contains("does not exist:") && missing.out.contains("the first process"), "{}", missing.out);
    let nowhere = format!("file://{}/none/limits", shared.path().display());
    let folder = run(&["doctor", "--json", "--store", &nowhere]);
    assert_eq!(folder.code, 2, "{}", folder.out);
    assert!(folder.out.contains("its folder does not exist: make it first, with mkdir -p /"), "{}", folder.out);
    let size = run(&["size", "--rate", "1", "--keys", "1", "5/s", "--store", &url]);
    assert_eq!(size.code, 2, "{}", size.out);
    assert!(size.error.contains("file:// has no servers") && size.error.contains("memory://"), "{}", size.error);
    one_key(&url);
    let whole = run(&["doctor", "--store", &url, "--json"]);
    assert_eq!(whole.code, 0, "{}", whole.out);
    assert_eq!(whole.json()["stores"][0]["findings"][0]["message"], "every part of it is whole; it has 2 keys");
}

fn one_key(url: &str) {
    let tidegate = |arguments: &[&str]| on(url, arguments);
    for (left, meta) in [(4, "alice"), (3, "alice"), (2, "bob"), (1, "alice"), (0, "mallory")] {
        let ran = tidegate(&["check", "login", "10.0.0.7", "--meta", meta, "--json"]);
        assert_eq!((ran.code, ran.error.as_str()), (0, ""), "{}", ran.out);
        assert_eq!(ran.json()["limits"][1]["remaining"], left);
    }
    let denied = tidegate(&["check", "login", "10.0.0.7", "--meta", "mallory\u{1b}[31m", "--json"]);
    assert_eq!(denied.code, 1);
    assert!(denied.json()["retry_after"].as_f64() > Some(0.0));
    assert_eq!(denied.json()["limits"][1]["exceeded"], true);
    golden("check-on-redis", &without_numbers(&tidegate(&["peek", "login", "10.0.0.7"]).out));

    let inspected = tidegate(&["inspect", "login", "10.0.0.7"]);
    assert_eq!((inspected.code, inspected.error.as_str()), (0, ""));
    golden("inspect", &without_numbers(&inspected.out));
    assert!(!inspected.out.contains('\u{1b}'), "metadata must not control the terminal");
    let json = tidegate(&["inspect", "login", "10.0.0.7", "--json"]).json();
    let callers: Vec<(&str, u64, u64)> = json["callers"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|caller| {
            let number = |name: &str| caller[name].as_u64().expect(name);
            (caller["meta"].as_str().expect("a text"), number("attempts"), number("denied"))
        })
        .collect();
    assert_eq!(callers, [("alice", 3, 0), ("mallory\\u{1b}[31m", 1, 1), ("mallory", 1, 0), ("bob", 1, 0)]);
    let journal = tidegate(&["journal", "login", "10.0.0.7", "--last", "3"]);
    golden("journal", &without_numbers(&journal.out));
    assert_eq!(tidegate(&["journal", "login", "10.0.0.7", "--json"]).out.lines().count(), 6);

    let refund = tidegate(&["refund", "login", "10.0.0.7", "2"]);
    golden("refund", &without_numbers(&refund.out));
    let peek = |policy: &str, key: &str| tidegate(&["peek", policy, key, "--json"]);
    assert_eq!(peek("login", "10.0.0.7").json()["limits"][1]["remaining"], 2);
    let charge = tidegate(&["charge", "login", "10.0.0.7", "--cost", "7", "--json"]);
    assert_eq!((charge.code, &charge.json()["limits"][1]["over"]), (0, &json!(5)));
    golden("clear", &tidegate(&["clear", "login", "10.0.0.7"]).out);
    assert_eq!(peek("login", "10.0.0.7").json()["limits"][0]["remaining"], 20);

    golden("block", &tidegate(&["block", "login", "10.0.0.7", "10m"]).out);
    let left = tidegate(&["inspect", "login", "10.0.0.7", "--json"]).json()["blocked_for"].as_f64();
    assert!(left > Some(500.0) && left <= Some(600.0), "{left:?}");
    for (verb, code) in [("inspect", 0), ("peek", 1), ("check", 1)] {
        let blocked = tidegate(&[verb, "login", "10.0.0.7"]);
        assert_eq!(blocked.code, code);
        let says = |text: &str| blocked.out.matches(text).count();
        assert_eq!((says("blocked until 20"), says("admitted again in")), (1, 0), "{verb}: {}", blocked.out);
        let json = tidegate(&[verb, "login", "10.0.0.7", "--json"]).json();
        let decision = json.get("decision").unwrap_or(&json);
        let left = decision["blocked_for"].as_f64();
        assert!(left > Some(500.0) && left <= Some(600.0), "{verb}: {json:#}");
        // The limits are as if unused, but the key is blocked.
        assert_eq!(
            (&decision["next_after"], &decision["reset_after"]),
            (&left.into(), &left.into()),
            "{verb}: {json:#}"
        );
        assert_eq!(decision["limits"][1]["reset_after"], 0.0, "{verb}: {json:#}");
    }
    golden("unblock", &tidegate(&["unblock", "login", "10.0.0.7"]).out);
    assert_eq!(peek("login", "10.0.0.7").code, 0);
    assert_eq!(tidegate(&["block", "login", "k", "--for", "30", "--json"]).json()["blocked_for"], 30.0);
    assert_eq!(tidegate(&["block", "login", "k"]).code, 2, "without a time");
    assert_eq!(tidegate(&["journal", "api", "k"]).code, 2, "it keeps no journal");
}

#[test]
fn why_a_customer_is_limited_and_what_if() {
    let (redis, scratch) = (redis(), Scratch::new("why"));
    let tidegate = |arguments: &[&str]| on(redis.url(), arguments);
    assert_eq!(tidegate(&["check", "api", "alice"]).code, 0);
    assert_eq!(tidegate(&["check", "login", "alice", "--cost", "3", "--meta", "import"]).code, 0);
    assert_eq!(tidegate(&["charge", "login", "alice", "2"]).code, 0);
    assert_eq!(tidegate(&["check", "login", "alice", "--cost", "4"]).code, 1);
    // Policies that refuse come first, then those that were used.
    let all = tidegate(&["inspect", "--key", "alice"]);
    assert_eq!((all.code, all.error.as_str()), (0, ""));
    let heads: Vec<&str> = all.out.lines().filter_map(|line| line.strip_suffix("  \"alice\"")).collect();
    assert_eq!(heads, ["login", "api", "reports", "exports"], "{}", all.out);
    let all = tidegate(&["inspect", "--key", "alice", "--json"]).json();
    assert_eq!((&all["key"], &all["policies"][0]["policy"]), (&json!("alice"), &json!("login")), "{all:#}");
    assert_eq!(run(&["inspect", "--key", "alice", "--store", redis.url()]).code, 2, "without a file");

    let journal = tidegate(&["journal", "login", "alice", "--json"]);
    let attempts: Vec<Value> =
        journal.out.lines().map(|line| serde_json::from_str(line).expect("a line of JSON")).collect();
    let said = |field: &str| -> Vec<Value> { attempts.iter().map(|attempt| attempt[field].clone()).collect() };
    assert_eq!(said("cost"), [3, 2, 4], "the charge is an attempt, and the oldest comes first");
    assert_eq!(said("allowed"), [true, true, false]);
    assert_eq!(said("meta"), [json!("import"), Value::Null, Value::Null]);
    assert_eq!((said("policy"), said("key")), (vec![json!("login"); 3], vec![json!("alice"); 3]));
    let trace = scratch.file("alice.jsonl");
    std::fs::write(&trace, &journal.out).expect("a trace");
    let what_if = ["simulate", "login", "twice=40/hour; 10/minute", "--policies", "tidegate.yaml", "--trace", &trace];
    let what_if = run(&[&what_if[..], &["--json"]].concat());
    assert_eq!((what_if.code, what_if.error.as_str()), (0, ""), "{}", what_if.out);
    let policies = &what_if.json()["policies"];
    let of = |index: usize| ["policy", "units_asked", "units_admitted"].map(|name| policies[index][name].clone());
    assert_eq!(of(0), [json!("login"), json!(9), json!(5)]);
    assert_eq!(of(1), [json!("twice"), json!(9), json!(9)]);

    // The usage in the store, under a changed file.
    let changed = scratch.file("changed.yaml");
    std::fs::write(&changed, "policies: {login: 40/hour; 10/minute}\n").expect("a file");
    let peek = ["peek", "login", "alice", "--cost", "4", "--store", redis.url(), "--policies"];
    let left = |file: &str| run(&[&peek[..], &[file, "--json"]].concat()).json()["remaining"].clone();
    assert_eq!([left("tidegate.yaml"), left(&changed)], [0, 5]);
}

#[test]
fn the_store_of_the_environment_and_of_the_file() {
    let (redis, other) = (redis(), redis());
    let check = ["check", "fixed-window 1/minute", "alice"];
    let by_environment = || ran(command(&check).env("TIDEGATE_STORE", redis.url())).code;
    assert_eq!([by_environment(), by_environment()], [0, 1]);
    let file = std::env::temp_dir().join(format!("tidegate-cli-{}.yaml", std::process::id()));
    std::fs::write(&file, "store: ${TIDEGATE_TEST_STORE}\npolicies: {login: fixed-window 1/minute}\n").expect("a file");
    let path = file.to_str().expect("a path");
    let by_file = |extra: &[&str]| {
        let arguments = [&["check", "login", "alice", "--policies", path][..], extra].concat();
        ran(command(&arguments).env("TIDEGATE_TEST_STORE", other.url())).code
    };
    assert_eq!([by_file(&[]), by_file(&[])], [0, 1]);
    assert_eq!(by_file(&["--store", redis.url()]), 0, "--store is stronger");
    std::fs::remove_file(&file).expect("removed");
    // Shards: several stores, by repeating the option or with blanks between.
    let shards = format!("{} {}", redis.url(), other.url());
    let on_shards = || ran(command(&["check", "fixed-window 1/hour", "alice"]).env("TIDEGATE_STORE", &shards)).code;
    assert_eq!([on_shards(), on_shards()], [0, 1]);
    let twice = run(&["peek", "fixed-window 1/hour", "alice", "--store", redis.url(), "--store", other.url()]);
    assert_eq!(twice.code, 1);
}

#[test]
fn the_command_and_a_limiter_share_usage() {
    let redis = redis();
    let limiter = tidegate::Limiter::builder()
        .store(redis.url())
        .timeout(std::time::Duration::from_secs(10))
        .build()
        .expect("a limiter");
    limiter.charge("fixed-window 5/minute", "alice", 4).expect("a charge");
    let check = |cost| run(&["check", "fixed-window 5/minute", "alice", "--cost", cost, "--store", redis.url()]).code;
    assert_eq!([check("2"), check("1"), check("1")], [1, 0, 1]);
    // The command asks the store, even if a policy leases or falls back.
    redis.kill(0);
    let failed = run(&["check", "5/minute", "alice", "--store", redis.url()]);
    assert_eq!(failed.code, 2);
    assert!(failed.error.contains("store_unavailable"), "{}", failed.error);
}

#[test]
fn measurements_on_a_store_leave_nothing_behind() {
    let redis = redis();
    let bench = run(&["bench", "--seconds", "0.3", "--store", redis.url(), "--json"]);
    assert_eq!(bench.code, 0, "{}", bench.error);
    assert!(bench.json()["checks"].as_u64() > Some(100), "{}", bench.out);
    let size =
        run(&["size", "--rate", "1M/s", "--keys", "50M", "gcra 100/s burst 200", "--store", redis.url(), "--json"]);
    assert_eq!(size.code, 0, "{}", size.error);
    let json = size.json();
    assert_eq!(json["measured"], true);
    assert!(json["costs"].as_str().expect("a text").contains("measured now"), "{json}");
    // The stated bytes are those of this server: 72 by MEMORY USAGE, and the part of its tables.
    assert_eq!(json["key_bytes"]["least"], 136.0);
    let (alone, folded) = (&json["alone"]["micros_per_check"], &json["folded"]["micros_per_check"]);
    assert!(folded.as_f64() < alone.as_f64(), "{json}");
    // The keys of the ping live for a second.
    std::thread::sleep(std::time::Duration::from_millis(2_100));
    assert_eq!(redis.command(0, &["DBSIZE"]), 0);
}

#[test]
fn a_secret_of_a_file_names_the_keys() {
    let (redis, file) = (redis(), std::env::temp_dir().join(format!("tidegate-secret-{}", std::process::id())));
    std::fs::write(&file, "SECRET-of-the-test-0123456789\n").expect("a file");
    let file = file.to_str().expect("a path");
    let code = |more: &[&str]| run(&[&["check", "1/hour", "k", "--store", redis.url()], more].concat()).code;
    assert_eq!([code(&["--key-secret-file", file]), code(&["--key-secret-file", file]), code(&[])], [0, 1, 0]);
    std::fs::write(file, "SECRET").expect("a file");
    for path in [file, "/none"] {
        let failed = run(&["check", "1/hour", "k", "--store", redis.url(), "--key-secret-file", path]);
        let said = format!("{}{}", failed.out, failed.error);
        assert!(failed.code == 2 && said.contains("secret") && !said.contains("SECRET"), "{said}");
    }
    std::fs::remove_file(file).expect("a file");
}

#[test]
fn the_stated_bytes_of_a_key_are_those_of_redis() {
    let redis = redis();
    let store = redis.url();
    for (policy, checks) in
        [("gcra 100/s burst 200", 1), ("fixed-window 1000/hour", 1), ("sliding-window 20/minute", 1)]
    {
        let explained = run(&["explain", policy, "--json"]).json();
        redis.command(0, &["FLUSHALL"]);
        for _ in 0..checks {
            assert_eq!(run(&["check", policy, "k", "--store", store]).code, 0);
        }
        let names = tidegate::host::redis_key(&"tg".into(), &policy.parse().expect("a policy"), "k");
        let mut connection = tidegate::host::StoreServers::of(store, std::time::Duration::from_secs(5))
            .ok()
            .flatten()
            .and_then(|servers| servers.connect(&servers.shards().ok()?[0].primary).ok())
            .expect("a connection");
        let bytes = |words: &[&[u8]], connection: &mut tidegate::host::ServerConnection| match connection.ask(words) {
            Ok(redis::Value::Int(bytes)) => bytes,
            other => panic!("{other:?}"),
        };
        let value = bytes(&[b"STRLEN", &names], &mut connection);
        assert_eq!(explained["redis"]["value_bytes"]["least"], value, "{policy}");
        let usage = bytes(&[b"MEMORY", b"USAGE", &names], &mut connection);
        assert_eq!(explained["redis"]["key_bytes"]["least"], usage, "{policy}");
    }
}

/// Asserts that neither a terminal, nor a service that keeps the log of a run, obeys anything in this text.
#[cfg(unix)]
#[track_caller]
fn acts_on_nothing(what: &[&str], text: &str) {
    let acts = |c: char| (c.is_control() && c != '\n') || c == '\u{202e}';
    assert!(!text.contains(acts) && !text.contains("##["), "{what:?}: {text:?}");
    let command = text.lines().find(|line| line.trim_start().starts_with("::"));
    assert_eq!(command, None, "{what:?}");
}

#[cfg(unix)]
#[test]
fn names_of_files_act_on_nothing() {
    const NAME: &str = "::error::a\n ::error::b\u{1b}[31m\u{9b}2J\u{7f}\u{202e}##[error]c";
    let (shared, scratch) = (SharedFile::new(), Scratch::new("names"));
    let url = shared.url("max_bytes=1MB");
    let file = scratch.file("names.json");
    let policy = json!({"limits": ["9/hour", "9/hour"], "journal": 5, "priorities": {"batch": "30%"}});
    std::fs::write(&file, json!({"policies": {NAME: policy, "wide": "1/s"}}).to_string()).expect("a file");
    let trace = scratch.file(&format!("{NAME}.csv").replace('/', ""));
    std::fs::write(&trace, format!("1,{}\n2,k\n", "k\u{1b}[2J")).expect("a trace");
    let verbs: [&[&str]; 19] = [
        &["explain", NAME],
        &["check", NAME, "k"],
        &["check", NAME, "k", "--cost", "12"],
        &["check", NAME, "k", "--priority", "none"],
        &["peek", NAME, "k"],
        &["charge", NAME, "k"],
        &["refund", NAME, "k"],
        &["block", NAME, "k", "1m"],
        &["inspect", NAME, "k"],
        &["inspect", "--key", "k"],
        &["unblock", NAME, "k"],
        &["override", NAME, "k", "9/hour"],
        &["overrides", NAME],
        &["journal", NAME, "k"],
        &["clear", NAME, "k"],
        &["bench", NAME, "--seconds", "0.1"],
        &["top", "--readings", "1"],
        &["simulate", NAME, "wide", "--trace", &trace],
        &["simulate", NAME, "--pattern", "steady", "--calls", "10"],
    ];
    for verb in verbs {
        for json in [&[][..], &["--json"]] {
            let on = ["--policies", &file, "--store", &url];
            let on = if verb[0] == "explain" { &on[..2] } else { &on[..] };
            let ran = run(&[verb, on, json].concat());
            acts_on_nothing(verb, &ran.out);
            acts_on_nothing(verb, &ran.error);
            assert!(ran.code < 2 || verb.contains(&"none"), "{verb:?}: {}", ran.error);
        }
    }
    let size = ["size", "--rate", "1", "--keys", "1", NAME, "--policies", &file];
    for command in [&size[..], &["lint", &file], &["lint", &file, "--json"], &["lint", &trace]] {
        let ran = run(command);
        acts_on_nothing(command, &format!("{}{}", ran.out, ran.error));
    }
    let github = run(&["lint", &file, "--format", "github"]).out;
    assert!(github.lines().count() >= 1 && github.lines().all(|line| line.starts_with("::warning file=")), "{github}");
    acts_on_nothing(&["lint"], &github.replace("::warning file=", ""));
}
