//! The verbs that work on a store, on real servers.

mod support;

use std::io::{Read, Write};
use std::net::TcpListener;

use serde_json::{Value, json};
use tidegate_tests::reply_proxy::ReplyProxy;
use tidegate_tests::servers::{Kind, Servers};
use tidegate_tests::shared_file::SharedFile;

use support::{Ran, Scratch, command, golden, ran, run, without_numbers};

/// Runs the command on a store with the policy file.
fn on(url: &str, arguments: &[&str]) -> Ran {
    run(&[arguments, &["--store", url, "--policies", "tidegate.yaml"]].concat())
}

fn redis() -> Servers {
    Servers::start(Kind::Single)
}

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
    assert!(missing.out.contains("does not exist"), "{}", missing.out);
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
        // The limits are as if unused, the key is not.
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
    // Those that refuse come first, then those that were used.
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

    // The store's own usage under a changed file.
    let changed = scratch.file("changed.yaml");
    std::fs::write(&changed, "policies: {login: 40/hour; 10/minute}\n").expect("a file");
    let peek = ["peek", "login", "alice", "--cost", "4", "--store", redis.url(), "--policies"];
    let left = |file: &str| run(&[&peek[..], &[file, "--json"]].concat()).json()["remaining"].clone();
    assert_eq!([left("tidegate.yaml"), left(&changed)], [0, 5]);
}

#[test]
fn two_releases_on_the_same_keys_are_told() {
    let redis = redis();
    let of_the_old =
        tidegate::Policy::parse("sliding-window 100/minute").expect("a policy").named("api").expect("a name");
    let old = tidegate::Limiter::builder().store(redis.url()).build().expect("a limiter");
    let tidegate = |arguments: &[&str]| on(redis.url(), arguments);
    let report = || tidegate(&["doctor", "--json"]).json();
    assert!(old.check_n(&of_the_old, "k", 30).expect("a decision").allowed());
    assert_eq!(levels(&report(), "releases"), [""; 0], "one release alone");
    assert_eq!(tidegate(&["check", "api", "k"]).code, 0);
    let inspected = tidegate(&["inspect", "api", "k"]);
    assert!(
        inspected.out.contains("Another release counts this key too, by sliding-window per minute"),
        "{}",
        inspected.out
    );
    let others = &tidegate(&["inspect", "api", "k", "--json"]).json()["other_limits"];
    assert_eq!(others, &json!(["sliding-window per minute"]));
    let report = report();
    assert_eq!(levels(&report, "releases"), ["note"], "{report:#}");
    assert!(
        report.to_string().contains("keys are counted by two releases: gcra per s beside sliding-window per minute"),
        "{report:#}"
    );
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
    let limiter = tidegate::Limiter::builder().store(redis.url()).build().expect("a limiter");
    limiter.charge("fixed-window 5/minute", "alice", 4).expect("a charge");
    let check = |cost| run(&["check", "fixed-window 5/minute", "alice", "--cost", cost, "--store", redis.url()]).code;
    assert_eq!([check("2"), check("1"), check("1")], [1, 0, 1]);
    // A policy that leases or falls back asks the store all the same.
    redis.kill(0);
    let failed = run(&["check", "5/minute", "alice", "--store", redis.url()]);
    assert_eq!(failed.code, 2);
    assert!(failed.error.contains("store_unavailable"), "{}", failed.error);
}

/// The findings of a check of the doctor: their levels.
fn levels(report: &Value, check: &str) -> Vec<String> {
    let stores = report["stores"].as_array().expect("stores");
    let findings = stores.iter().flat_map(|store| store["findings"].as_array().expect("findings"));
    let level = |finding: &Value| finding["level"].as_str().expect("a level").to_owned();
    findings.filter(|finding| finding["check"] == check).map(level).collect()
}

fn advice(report: &Value, check: &str) -> String {
    let findings = report["stores"][0]["findings"].as_array().expect("findings");
    let with = findings.iter().find(|finding| finding["check"] == check && finding["advice"].is_string());
    with.and_then(|finding| finding["advice"].as_str()).unwrap_or_default().to_owned()
}

fn doctor(url: &str) -> (i32, Value) {
    let ran = run(&["doctor", "--json", "--store", url]);
    (ran.code, ran.json())
}

#[test]
fn a_healthy_server() {
    let redis = Servers::start_with(Kind::Single, json!({"config": {"maxmemory": "100mb", "appendonly": "yes"}}));
    let shown = run(&["doctor", "--store", redis.url()]);
    assert_eq!((shown.code, shown.error.as_str()), (0, ""), "{}", shown.out);
    let port = redis.url().rsplit(':').next().expect("a port").trim_end_matches("/0");
    let masked = without_numbers(&shown.out.replace(port, "PORT"));
    golden("doctor", &masked.replace("Valkey", "Redis"));
    let (_, report) = doctor(redis.url());
    for check in ["reachable", "version", "eviction", "permissions", "clock", "round trip", "a check"] {
        assert_eq!(levels(&report, check), ["ok"], "{check}: {report:#}");
    }
    assert!(redis.command(0, &["DBSIZE"]).as_u64() <= Some(1), "nothing is left but a ping's key");
}

#[test]
fn a_server_that_forgets() {
    let redis =
        Servers::start_with(Kind::Single, json!({"config": {"maxmemory": "100mb", "maxmemory-policy": "allkeys-lru"}}));
    let (code, report) = doctor(redis.url());
    assert_eq!((code, levels(&report, "eviction")), (1, vec!["problem".to_owned()]));
    assert!(advice(&report, "eviction").contains("noeviction"));
}

#[test]
fn a_server_that_is_full() {
    let redis = redis();
    redis.command(0, &["CONFIG", "SET", "maxmemory", "1"]);
    let (code, report) = doctor(redis.url());
    assert_eq!(code, 1);
    assert_eq!(levels(&report, "memory"), ["problem"]);
    assert_eq!(levels(&report, "a check"), ["problem"]);
}

#[test]
fn a_replica_in_the_place_of_a_primary() {
    let servers = Servers::start(Kind::Replica);
    let (code, report) = doctor(servers.url_of("replicas/0"));
    assert_eq!((code, levels(&report, "topology")), (1, vec!["problem".to_owned()]));
    assert!(advice(&report, "topology").contains("name 127.0.0.1:"), "{report:#}");
    let (code, report) = doctor(servers.url());
    assert_eq!((code, levels(&report, "replication")), (0, vec!["ok".to_owned()]), "{report:#}");
}

#[test]
fn an_old_server() {
    let redis = redis();
    let info = redis.command(0, &["INFO", "server"]).as_str().expect("text").to_owned();
    let line = ["valkey_version:", "redis_version:"]
        .into_iter()
        .find_map(|name| info.lines().find(|line| line.starts_with(name)));
    let major = line.and_then(|line| line.get(..=line.find(':')? + 1)).expect("a version");
    let old = format!("{}5", &major[..major.len() - 1]);
    let proxy = ReplyProxy::to(redis.port(0), major.to_owned(), old);
    let (code, report) = doctor(&format!("redis://127.0.0.1:{}", proxy.port()));
    assert_eq!((code, levels(&report, "version")), (1, vec!["problem".to_owned()]), "{report:#}");
    assert!(advice(&report, "version").contains("6.2 or newer"), "{report:#}");
}

#[test]
fn a_user_that_may_not_do_enough() {
    let least = "-@all +evalsha +eval +get +set +del +time +ping";
    let users = json!({
        "least": format!("on >secret ~tg* {least}"),
        "few": "on >secret ~tg* -@all +ping +get +eval +time",
        "elsewhere": format!("on >secret ~other* {least}"),
        "told": "on >secret ~tg* -@all +ping +get +eval +time +acl",
        "all": "on >secret ~* +@all",
    });
    let redis = Servers::start_with(Kind::Single, json!({"users": users}));
    let as_user = |user: &str| doctor(&redis.url().replace("redis://", &format!("redis://{user}:secret@")));
    let (code, report) = as_user("least");
    assert_eq!(code, 0, "{report:#}");
    assert_eq!(levels(&report, "permissions").iter().filter(|level| *level == "note").count(), 3, "{report:#}");
    for user in ["few", "told"] {
        let (code, report) = as_user(user);
        assert_eq!((code, advice(&report, "permissions")), (1, format!("ACL SETUSER {user} +evalsha +set +del")));
        // What it says to do is enough.
        let line = advice(&report, "permissions");
        redis.command(0, &line.split(' ').collect::<Vec<_>>());
        assert_eq!(as_user(user).0, 0, "{user}");
    }
    let (code, report) = as_user("elsewhere");
    assert_eq!((code, advice(&report, "permissions")), (1, "ACL SETUSER elsewhere ~tg*".to_owned()), "{report:#}");
    let (code, report) = as_user("all");
    assert_eq!((code, levels(&report, "permissions")), (0, vec!["ok".to_owned()]));
    let wrong = run(&["doctor", "--json", "--store", &redis.url().replace("redis://", "redis://least:wrong@")]);
    assert_eq!(wrong.code, 2);
    assert!(!format!("{}{}", wrong.out, wrong.error).contains("wrong@"), "{}", wrong.out);
    // What a policy of the file needs is a problem, not a note.
    let url = redis.url().replace("redis://", "redis://least:secret@");
    let with_file = on(&url, &["doctor", "--json"]);
    assert_eq!(with_file.code, 1, "the policy `login` has a journal");
    assert!(advice(&with_file.json(), "permissions").contains("+lpush"), "{}", with_file.out);
}

#[test]
fn sentinels_and_clusters() {
    let sentinel = Servers::start(Kind::Sentinel);
    let (code, report) = doctor(sentinel.url());
    assert_eq!((code, &report["stores"][0]["kind"]), (0, &json!("sentinel")), "{report:#}");
    let cluster = Servers::start(Kind::Cluster);
    let (code, report) = doctor(cluster.url());
    assert_eq!((code, &report["stores"][0]["kind"]), (0, &json!("cluster")), "{report:#}");
    let reachable = report["stores"][0]["findings"][0]["message"].as_str().expect("a message");
    assert_eq!(reachable, "a cluster of 3 primaries and 3 replicas");
    // A cluster behind the URL of one server.
    let one = cluster.url().split(',').next().expect("a node").replace("redis+cluster://", "redis://");
    let wrong = run(&["doctor", "--store", &one]);
    assert_eq!(wrong.code, 2);
    assert!(wrong.out.contains("redis+cluster://"), "{}", wrong.out);
    for store in [sentinel.url(), cluster.url()] {
        let codes = [(); 2].map(|()| run(&["check", "fixed-window 1/minute", "k", "--store", store]).code);
        assert_eq!(codes, [0, 1], "{store}");
    }
}

#[test]
fn an_encrypted_server_and_a_socket() {
    let redis = Servers::start_with(Kind::Single, json!({"tls": true}));
    let encrypted = redis.url_of("tls").split('?').next().expect("a URL");
    let trusted = format!("{encrypted}?ssl_ca_certs={}", redis.json()["tls"]["ca"].as_str().expect("a file"));
    for url in [&trusted, redis.url_of("unix")] {
        let (code, report) = doctor(url);
        assert_eq!(code, 0, "{url}: {report:#}");
    }
}

/// The port of a server that does not know what it is told: it answers the first bytes with others and ends the connection, or
/// stays silent as a Redis does that waits for the end of a line.
fn deaf_server(answer: Option<&'static [u8]>) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("its address").port();
    std::thread::spawn(move || {
        let mut silent = Vec::new();
        for mut connection in listener.incoming().map_while(Result::ok) {
            let Some(answer) = answer else {
                silent.push(connection);
                continue;
            };
            let _ = connection.read(&mut [0; 4_096]).and_then(|_| connection.write_all(answer));
        }
    });
    port
}

#[test]
fn one_side_alone_speaks_tls_or_trusts() {
    const NO_TLS: &str = "begin the store URL with redis:// in the place of rediss://";
    const WITH_TLS: &str = "begin the store URL with rediss:// in the place of redis://";
    let redis = Servers::start_with(Kind::Single, json!({"tls": true}));
    let encrypted = redis.url_of("tls").split('?').next().expect("a URL");
    let with = |url: &str, scheme: &str| format!("{scheme}{}", &url[url.find(':').expect("a scheme")..]);
    let plain = |scheme, answer| format!("{scheme}://127.0.0.1:{}", deaf_server(answer));
    for (url, said, do_this) in [
        (encrypted.to_owned(), "signed by itself or by an unknown authority", "ssl_ca_certs"),
        (with(encrypted, "redis"), "speaks TLS", WITH_TLS),
        (plain("redis", Some(b"\x15\x03\x03\x00\x02\x02\x46")), "it speaks TLS there", WITH_TLS),
        (plain("redis", Some(b"")), "where it speaks TLS", WITH_TLS),
        (with(redis.url_of("tcp"), "rediss"), "speak", NO_TLS),
        (plain("rediss", Some(b"-ERR unknown command\r\n")), "it does not speak TLS there", NO_TLS),
        (plain("rediss", Some(b"")), "instead of speaking TLS", NO_TLS),
        (plain("rediss", None), "did not answer within", NO_TLS),
    ] {
        let (code, report) = doctor(&url);
        let findings = report["stores"][0]["findings"].as_array().expect("findings");
        let reachable = findings.iter().find(|finding| finding["check"] == "reachable").expect("a finding");
        let message = reachable["message"].as_str().expect("a message");
        assert_eq!((code, &reachable["level"]), (2, &json!("problem")), "{report:#}");
        assert!(message.contains(said) && message.contains(do_this), "{url}: {message}");
        // It has no text of a library, and no advice about something else.
        let is_raw = |text: &str| message.contains(text);
        assert!(!["Error", "(os error", "invalid peer", "{"].into_iter().any(is_raw), "{message}");
        assert_eq!(reachable["advice"], Value::Null, "{report:#}");
        let check = run(&["check", "5/minute", "k", "--store", &url]);
        let is_told = [do_this, "did not answer within"].into_iter().any(|text| check.error.contains(text));
        assert!(check.code == 2 && is_told, "{url}: {}", check.error);
    }
}

#[test]
fn a_server_that_is_gone() {
    let redis = redis();
    let url = redis.url().to_owned();
    drop(redis);
    let (code, report) = doctor(&url);
    assert_eq!((code, &report["stores"][0]["asked"]), (2, &json!(false)));
    assert_eq!(levels(&report, "reachable"), ["problem"]);
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
    // The stated bytes are those of this server: 72 as MEMORY USAGE counts, and what its tables take.
    assert_eq!(json["key_bytes"]["least"], 136.0);
    let (alone, folded) = (&json["alone"]["micros_per_check"], &json["folded"]["micros_per_check"]);
    assert!(folded.as_f64() < alone.as_f64(), "{json}");
    // The ping's keys live for a second.
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
