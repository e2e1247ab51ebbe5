//! `tidegate doctor`, on real servers.

mod support;

use std::io::{Read, Write};
use std::net::TcpListener;

use serde_json::{Value, json};
use tidegate_tests::reply_proxy::ReplyProxy;
use tidegate_tests::servers::{Kind, Servers};

use support::{golden, on, redis, run, without_numbers};

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
    assert_eq!(levels(&report, "permissions").iter().filter(|level| *level == "note").count(), 4, "{report:#}");
    assert_eq!(levels(&report, "releases"), ["note"], "it may not look at keys: {report:#}");
    for user in ["few", "told"] {
        let (code, report) = as_user(user);
        assert_eq!((code, advice(&report, "permissions")), (1, format!("ACL SETUSER {user} +evalsha +set +del")));
        // The advice is enough.
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
    // A permission that a policy of the file needs is a problem, not a note.
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

/// Each server has separate users, passwords and settings. A replica without them would refuse every check after a failover.
#[test]
fn replicas_are_examined_and_a_user_that_lacks_what_a_cluster_needs() {
    let cluster = Servers::start(Kind::Cluster);
    // A node hears of the replicas of others within moments.
    let knows_all = |server| {
        let slots = cluster.command(server, &["CLUSTER", "SLOTS"]);
        let shards = slots.as_array().expect("shards");
        shards.len() == 3 && shards.iter().all(|shard| shard.as_array().is_some_and(|shard| shard.len() == 4))
    };
    while !(0..6).all(knows_all) {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    let user = ["ACL", "SETUSER", "app", "on", ">pw", "~*", "+@all", "-cluster", "-asking"];
    (0..6).for_each(|server| drop(cluster.command(server, &user)));
    let url = cluster.url().replace("://", "://app:pw@");
    let (code, report) = doctor(&url);
    let line = advice(&report, "reachable");
    assert_eq!((code, line.as_str()), (2, "ACL SETUSER app +cluster|slots +asking"), "{report:#}");
    (0..6).for_each(|server| drop(cluster.command(server, &line.split(' ').collect::<Vec<_>>())));
    let (code, report) = doctor(&url);
    assert_eq!(code, 0, "{report:#}");
    let replicas: Vec<usize> = (0..6).filter(|server| cluster.command(*server, &["ROLE"])[0] == "slave").collect();
    assert_eq!(replicas.len(), 3);
    cluster.command(replicas[0], &["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"]);
    let (code, report) = doctor(&url);
    assert_eq!((code, levels(&report, "eviction")), (1, vec!["ok".to_owned(), "problem".to_owned()]), "{report:#}");
    cluster.command(replicas[0], &["CONFIG", "SET", "maxmemory-policy", "noeviction"]);
    replicas.iter().for_each(|server| drop(cluster.command(*server, &["ACL", "DELUSER", "app"])));
    let (code, report) = doctor(&url);
    assert_eq!((code, levels(&report, "replica")), (1, vec!["problem".to_owned(); 3]), "{report:#}");
    assert!(advice(&report, "replica").contains("ACLs and passwords are not replicated"), "{report:#}");
    // When the slot of a key moves, its calls would fail without ASKING.
    (0..6).for_each(|server| {
        drop(cluster.command(server, &["ACL", "SETUSER", "app", "on", ">pw", "~*", "+@all", "-asking"]))
    });
    let (code, report) = doctor(&url);
    assert_eq!((code, advice(&report, "permissions")), (1, "ACL SETUSER app +asking".to_owned()), "{report:#}");
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

/// The port of a server that does not understand its clients. It answers the first bytes with others and ends the
/// connection, or it stays silent, like a Redis that waits for the end of a line.
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
    const NO_TLS: &str = "begin the store URL with redis:// instead of rediss://";
    const WITH_TLS: &str = "begin the store URL with rediss:// instead of redis://";
    let redis = Servers::start_with(Kind::Single, json!({"tls": true}));
    let encrypted = redis.url_of("tls").split('?').next().expect("a URL");
    let with = |url: &str, scheme: &str| format!("{scheme}{}", &url[url.find(':').expect("a scheme")..]);
    let plain = |scheme, answer| format!("{scheme}://127.0.0.1:{}", deaf_server(answer));
    for (url, said, do_this) in [
        (encrypted.to_owned(), "signed by itself or by an unknown authority", "ssl_ca_certs"),
        (with(encrypted, "redis"), "speaks TLS", WITH_TLS),
        (plain("redis", Some(b"\x15\x03\x03\x00\x02\x02\x46")), "it speaks TLS there", WITH_TLS),
        (plain("redis", Some(b"")), "if the server speaks TLS", WITH_TLS),
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
        // The message has no text of a library, and no advice about something else.
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
fn two_releases_on_the_same_keys_are_told() {
    let redis = redis();
    let of_the_old =
        tidegate::Policy::parse("sliding-window 100/minute").expect("a policy").named("api").expect("a name");
    let old = tidegate::Limiter::builder()
        .store(redis.url())
        .timeout(std::time::Duration::from_secs(10))
        .build()
        .expect("a limiter");
    let tidegate = |arguments: &[&str]| on(redis.url(), arguments);
    let report = || tidegate(&["doctor", "--json"]).json();
    assert!(old.check_n(&of_the_old, "k", 30).expect("a decision").allowed());
    let pair = "sliding-log 10/minute; 100/hour";
    assert_eq!(tidegate(&["check", pair, "own"]).code, 0);
    assert_eq!(tidegate(&["override", pair, "own", "sliding-log 50/minute"]).code, 0);
    let own = tidegate(&["check", pair, "own"]);
    assert_eq!((own.code, own.error.contains("another release")), (0, false), "{}", own.error);
    assert_eq!(levels(&report(), "releases"), [""; 0], "one release alone, and a key that has fewer limits");
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
