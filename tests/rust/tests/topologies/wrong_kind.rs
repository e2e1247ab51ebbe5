//! A server of another kind than a URL, a sentinel or a cluster claims.

use tidegate::ErrorKind;
use tidegate_tests::servers::{Kind, Servers, is_redis_6};

use super::{POLICY, both, until};

#[test]
fn urls_that_name_the_wrong_kind_say_what_was_found() {
    let (single, cluster, sentinel) =
        (Servers::start(Kind::Single), Servers::start(Kind::Cluster), Servers::start(Kind::Sentinel));
    let wrong = [
        (format!("redis://127.0.0.1:{}", cluster.port(1)), "a node of a Redis Cluster", "redis+cluster://"),
        (format!("redis://127.0.0.1:{}", sentinel.port(3)), "a sentinel", "redis+sentinel://"),
        (format!("redis+cluster://127.0.0.1:{}", single.port(0)), "a server that is a primary", "redis://"),
        (format!("redis+cluster://127.0.0.1:{}", sentinel.port(4)), "a sentinel", "redis+sentinel://"),
        (format!("redis+sentinel://127.0.0.1:{}/tidegate", single.port(0)), "a server that is a primary", "a sentinel"),
        (format!("redis+sentinel://127.0.0.1:{}/tidegate", cluster.port(0)), "a node of a Redis Cluster", "a sentinel"),
    ];
    for (url, found, advice) in wrong {
        for limiter in both(&url) {
            let error = limiter.check(POLICY, "k", 1, None).expect_err(&url);
            assert_eq!(error.kind(), ErrorKind::ConfigInvalid, "{url}: {error}");
            assert!(error.message().contains(found) && error.message().contains(advice), "{url}: {error}");
        }
    }
}

#[test]
fn a_database_that_the_server_does_not_have_is_named() {
    let single = Servers::start(Kind::Single);
    for limiter in both(&format!("redis://127.0.0.1:{}/99", single.port(0))) {
        let error = limiter.check(POLICY, "k", 1, None).expect_err("16 databases");
        assert!(
            error.message().contains("the server does not have the database at the end of the store URL"),
            "{error}"
        );
    }
}

#[test]
fn the_error_says_which_kind_of_server_was_expected() {
    let (single, cluster, sentinel) =
        (Servers::start(Kind::Single), Servers::start(Kind::Cluster), Servers::start(Kind::Sentinel));
    let watched = [
        ("replica", sentinel.port(1), "a server that is a replica", "the primary was expected"),
        ("node", cluster.port(0), "a node of a Redis Cluster", "a server that sentinels watch was expected"),
        ("watcher", sentinel.port(4), "a sentinel", "a server that sentinels watch was expected"),
    ];
    for (name, port, found, expected) in watched {
        sentinel.command(3, &["SENTINEL", "MONITOR", name, "127.0.0.1", &port.to_string(), "2"]);
        for limiter in both(&format!("redis+sentinel://127.0.0.1:{}/{name}", sentinel.port(3))) {
            let error = limiter.check(POLICY, "k", 1, None).expect_err(name);
            assert_eq!(error.kind(), ErrorKind::StoreUnavailable, "{name}: {error}");
            let said = error.message();
            assert!(said.contains(&format!("answers as {found}")) && said.contains(expected), "{name}: {error}");
            assert!(said.contains(&port.to_string()), "{name}: the error names the server: {error}");
        }
    }
    if is_redis_6() {
        return;
    }
    // The first node announces the address of another server as its own.
    let (bus, wrong) = (cluster.port(0) + 10_000, single.port(0));
    cluster.command(0, &["CONFIG", "SET", "cluster-announce-bus-port", &bus.to_string()]);
    cluster.command(0, &["CONFIG", "SET", "cluster-announce-port", &wrong.to_string()]);
    until("all nodes believe it", || {
        (0..3).all(|node| cluster.command(node, &["CLUSTER", "SLOTS"]).to_string().contains(&wrong.to_string()))
    });
    for limiter in both(cluster.url()) {
        let answers: Vec<_> = (0..50).map(|key| limiter.check(POLICY, &format!("k{key}"), 1, None)).collect();
        let errors: Vec<_> = answers.iter().filter_map(|answer| answer.as_ref().err()).collect();
        assert!((5..45).contains(&errors.len()), "only its own keys are missed: {} of 50", errors.len());
        for error in errors {
            let said = error.message();
            assert_eq!(error.kind(), ErrorKind::ConfigInvalid, "{error}");
            assert!(said.contains("answers as a server that is a primary"), "{error}");
            assert!(said.contains("a node of a cluster was expected") && said.contains(&wrong.to_string()), "{error}");
        }
    }
}
