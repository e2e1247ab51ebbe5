//! Every kind of connection, and every kind of refusal: clear errors with their codes, and no password in any.

use std::time::{Duration, Instant};

use serde_json::json;
use tidegate::{Builder, Error, ErrorKind, Limiter, OnStoreError};
use tidegate_tests::servers::{Kind, Servers};

const SECRET: &str = "hunter2";
/// The commands that the user of an application needs, as in docs/production/redis.md.
const LEAST: &str = "on >hunter2 ~tg* -@all +evalsha +eval +get +set +del +time +ping";

/// With `Raise`, a failure of the store is an error.
fn builder(url: &str) -> Builder {
    Limiter::builder().store(url).timeout(Duration::from_secs(5)).on_store_error(OnStoreError::Raise)
}

fn limiter(url: &str) -> Result<Limiter, Error> {
    builder(url).build()
}

/// Checks by a blocking and by an asynchronous limiter.
fn check(url: &str) -> Result<u64, Error> {
    let blocking = limiter(url)?;
    let remaining = blocking.check("5/minute", "k")?.remaining();
    blocking.ping()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let limiter = builder(url).build_async()?;
        limiter.ping().await?;
        assert_eq!(limiter.check("5/minute", "k").await?.remaining(), remaining - 1);
        Ok(remaining)
    })
}

fn refused(url: &str, kind: ErrorKind) -> Error {
    let error = check(url).expect_err(url);
    assert_eq!(error.kind(), kind, "{error}");
    let shown = format!("{error} {error:?} {:?}", error.message());
    assert!(!shown.contains(SECRET), "{shown}");
    error
}

#[test]
fn tcp_unix_databases_and_both_protocols() {
    let redis = Servers::start(Kind::Single);
    let tcp = redis.url_of("tcp").trim_end_matches("/0").to_owned();
    let unix = redis.url_of("unix").to_owned();
    assert_eq!(check(&tcp), Ok(4));
    assert_eq!(check(&format!("{tcp}/0?protocol=3")), Ok(2), "the same database, whatever the protocol");
    assert_eq!(check(&format!("{}/3", tcp.replace("redis://", "valkey://"))), Ok(4), "another database");
    let path = unix.split_once("://").map_or("", |(_, path)| path).split('?').next().unwrap_or_default();
    assert_eq!(check(&format!("redis+unix://{path}?db=5")), Ok(4), "the socket, and yet another database");
    assert_eq!(check(&format!("redis+unix://{path}?db=3&protocol=3")), Ok(2), "the database seen before by tcp");
}

#[test]
fn users_and_passwords() {
    let redis = Servers::start_with(
        Kind::Single,
        json!({"password": SECRET, "users": {"app": LEAST, "blind": "on >hunter2 ~tg* -@all +ping"}}),
    );
    let address = format!("127.0.0.1:{}", redis.port(0));
    assert_eq!(check(&format!("redis://:{SECRET}@{address}/0")), Ok(4));
    assert_eq!(check(&format!("redis://app:{SECRET}@{address}/0")), Ok(2), "the least set of commands is enough");
    let error = refused(&format!("redis://{address}/0"), ErrorKind::StoreRejected);
    assert!(error.message().contains("NOAUTH"), "{error}");
    refused(&format!("redis://:{SECRET}x@{address}/0"), ErrorKind::StoreRejected);
    let error = refused(&format!("redis://blind:{SECRET}@{address}/0"), ErrorKind::StoreRejected);
    assert!(error.message().contains("NOPERM"), "{error}");
}

#[test]
fn tls_with_and_without_client_certificates() {
    for client_certs in [false, true] {
        let redis = Servers::start_with(Kind::Single, json!({"tls": true, "client_certs": client_certs}));
        let tls = |name: &str| {
            redis.json().pointer(&format!("/tls/{name}")).and_then(|path| path.as_str()).expect("a file").to_owned()
        };
        let url = redis.url_of("tls").split('?').next().expect("a URL").to_owned();
        let trusted = format!("{url}?ssl_ca_certs={}", tls("ca"));
        let shown = format!("{trusted}&ssl_certfile={}&ssl_keyfile={}", tls("client_cert"), tls("client_key"));
        assert_eq!(check(&shown), Ok(4));
        if client_certs {
            refused(&trusted, ErrorKind::StoreUnavailable);
        } else {
            assert_eq!(check(&trusted), Ok(2));
        }
        refused(&url, ErrorKind::StoreUnavailable);
    }
}

#[test]
fn a_server_that_is_not_there_or_silent_is_an_error_in_time() {
    let redis = Servers::start(Kind::Single);
    redis.stop(0);
    let silent = builder(redis.url()).timeout(Duration::from_secs(2)).build().expect("a limiter");
    let start = Instant::now();
    let error = silent.check("5/minute", "k").expect_err("it is silent");
    // This proves nothing about speed: without its deadline the call would never return.
    assert!(start.elapsed() < Duration::from_secs(20));
    assert_eq!(error.kind(), ErrorKind::StoreTimeout, "{error}");
    redis.kill(0);
    let url = format!("redis://user:{SECRET}@127.0.0.1:{}/0", redis.port(0));
    refused(&url, ErrorKind::StoreUnavailable);
}

#[test]
fn invalid_urls() {
    // Each error names the mistake and the correct form.
    let wrong = [
        ("", "this one has no scheme"),
        ("localhost", "this one has no scheme"),
        ("http://user:hunter2@localhost", "a store URL begins with memory://"),
        ("hunter2://localhost", "this one begins with something else"),
        (
            "redis://user:hunter2@localhost:port/0",
            "invalid port number; write it as in redis://user:password@host:6379/0",
        ),
        ("redis://user:hunter2@localhost/zero", "names no database of Redis: give its number"),
        ("redis://user:hunter2@localhost/0?tls=yes", "has no such option: it has protocol"),
        ("redis://user:hunter2@localhost/0?protocol=4", "protocol names no protocol of Redis: give 2 or 3"),
        ("redis://user:hunter2@localhost/0?protocol=2&protocol=3", "gives \"protocol\" twice"),
        (
            "rediss://user:hunter2@localhost/0?ssl_ca_certs=/no/such/file",
            "the file that ssl_ca_certs names cannot be read",
        ),
        ("rediss://user:hunter2@localhost/0?ssl_certfile=/dev/null", "needs both ssl_certfile and ssl_keyfile"),
        ("redis+unix://", "needs a path, as in redis+unix:///"),
        ("redis+sentinel://user:hunter2@localhost:26379", "names the primary after the sentinels, as in"),
        ("redis+sentinel://user:hunter2@localhost:26379/primary/zero", "names no database of Redis: give its number"),
        ("redis+sentinel://user:hunter2@a,,b/primary/0", "with commas between them, as in"),
        ("redis+cluster://user:hunter2@localhost:7000/1", "names one: leave it out"),
        (
            "redis+cluster://user:hunter2@localhost:7000?read_from=anybody",
            "read_from is unknown: give primary or replica",
        ),
        (
            "redis+cluster://user:hunter2@localhost:7000?ssl_ca_certs=/dev/null",
            "with TLS only: begin the store URL with rediss",
        ),
        ("memory://?max_keys=0", "max_keys is not a number of keys: give a whole number"),
        ("memory://?max_keys=many", "max_keys is not a number of keys: give a whole number"),
        ("memory://host", "takes nothing but options, as in"),
        ("memory://?keys=3", "has no such option: it has max_keys"),
    ];
    for (url, words) in wrong {
        let error = refused(url, ErrorKind::ConfigInvalid);
        assert!(error.message().contains(words), "{url}: {error}");
    }
    for prefix in ["", "a{b", "}", &"x".repeat(200)] {
        let error = Limiter::builder().prefix(prefix).build().expect_err("a prefix that cannot be");
        assert_eq!(error.kind(), ErrorKind::ConfigInvalid, "{error}");
    }
}

#[test]
fn keys_costs_and_metadata() {
    let redis = Servers::start(Kind::Single);
    for url in ["memory://", redis.url()] {
        let limiter = limiter(url).expect("a limiter");
        let odd = ["", " ", "a b", "{a}", "{", "}", "}{", "line\nbreak", "nul\0", "ключ", "🗝", &"k".repeat(10_000)];
        for key in odd {
            assert_eq!(
                limiter.check("2/minute", key).expect("a decision").remaining(),
                1,
                "{key:?} is a key of its own"
            );
        }
        let kind = |result: Result<tidegate::Decision, Error>| result.expect_err("it is refused").kind();
        assert_eq!(kind(limiter.check("2/minute", &"k".repeat(70_000))), ErrorKind::KeyInvalid);
        for cost in [0, 1 << 53, u64::MAX] {
            assert_eq!(kind(limiter.check_n("2/minute", "cost", cost)), ErrorKind::CostInvalid);
            assert_eq!(kind(limiter.charge("2/minute", "cost", cost)), ErrorKind::CostInvalid);
        }
        let never = limiter.check_n("2/minute", "cost", (1 << 53) - 1).expect("a decision");
        assert!(!never.allowed() && never.retry_after().is_none());
        let options = tidegate::CheckOptions { meta: Some(vec![b'm'; 1 << 20]), ..Default::default() };
        assert_eq!(kind(limiter.check_with("2/minute", "meta", &options)), ErrorKind::ConfigInvalid);
        assert_eq!(limiter.peek("2/minute", "meta", 1).expect("a peek").remaining(), 2, "nothing was charged");
        assert_eq!(kind(limiter.check("login", "k")), ErrorKind::PolicyUnknown);
        assert_eq!(kind(limiter.check("5/fortnight", "k")), ErrorKind::PolicyInvalid);
        assert_eq!(kind(limiter.check_all(Vec::<(&str, &str, u64)>::new())), ErrorKind::ConfigInvalid);
        limiter.close();
        assert_eq!(kind(limiter.check("2/minute", "k")), ErrorKind::Closed);
    }
}
