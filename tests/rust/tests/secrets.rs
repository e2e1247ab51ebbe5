//! No piece of a secret in a store URL appears in a message, whatever characters the secret has, escaped or not: not in
//! errors, log lines, descriptions or Debug.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use proptest::prelude::*;
use tidegate::host::{self, KeyNames};
use tidegate::policy::Format;
use tidegate::{Builder, Limiter, OnStoreError, Policy, PolicyFile, StoreChange};
use tidegate_tests::servers::{Kind, Servers};

/// The places of a secret in a URL, also those of a mistake. No server listens on port 1.
const PLACES: &[&str] = &[
    "redis://user:{}@127.0.0.1:1/0",
    "redis://:{}@127.0.0.1:1/0",
    "redis://{}:password@127.0.0.1:1/0",
    "rediss://:{}@127.0.0.1:1?protocol=3",
    "valkey://u:{}@127.0.0.1:1/zero",
    "redis://u:{}@127.0.0.1:port/0",
    "redis://u:{}@127.0.0.1:1/0?protocol=4",
    "redis://u:{}@127.0.0.1:1/0?protocol=3&protocol=2",
    "redis://u:{}@127.0.0.1:1/0?ssl_ca_certs=/none",
    "redis+unix://:{}@/nonexistent/redis.sock?db=1",
    "redis+sentinel://u:{}@127.0.0.1:1,127.0.0.1:2/mymaster/0?sentinel_password=x",
    "redis+sentinel://127.0.0.1:1/mymaster?sentinel_username=s&sentinel_password={}",
    "redis+sentinel://127.0.0.1:1/mymaster?sentinel_password={}&read_from=replica",
    "rediss+sentinel://127.0.0.1:1/mymaster?ssl_ca_certs=/none;sentinel_password={}",
    "redis+sentinel://127.0.0.1:1/mymaster;sentinel_password={}",
    "redis+sentinel://127.0.0.1:1/mymaster&sentinel_password={}/0",
    "redis+cluster://:{}@127.0.0.1:1,127.0.0.1:2",
    "redis+cluster://:{}@127.0.0.1:1/7",
    "redis+cluster://127.0.0.1:1?read_from={}",
    "memory://u:{}@host?max_keys=10",
    "memory://?max_keys={}",
    "memory://?max_bytes={}",
    "memory://?password={}",
    "redis://127.0.0.1:1/0?password={}",
    "redis://127.0.0.1:1/0&password={}",
    "redis://127.0.0.1:1/0;password={}",
    "redis://127.0.0.1:1/0#{}",
    "redis+unix:///nonexistent/redis.sock&password={}",
    "https://u:{}@127.0.0.1:1/0",
    "redis:/u:{}@127.0.0.1:1/0",
    "u:{}@127.0.0.1:1/0",
    ":{}@127.0.0.1:1",
    "{}://127.0.0.1:1/0",
    "{}://u:p@127.0.0.1:1/0",
    "{}redis://127.0.0.1:1/0",
    "redis{}://127.0.0.1:1/0",
    "redis+{}://127.0.0.1:1/0",
    "valkey+{}://127.0.0.1:1/0",
    "{}+cluster://127.0.0.1:1/0",
    "{}://127.0.0.1:1/0?password=x",
    "unix://:{}@/nonexistent/redis.sock",
    "redis://127.0.0.1:1/{}",
    "redis://127.0.0.1:1:{}/0",
    "redis://u:{}@127.0.0.1:1/0,redis://u:{}@127.0.0.1:2/0",
];

/// No message has a piece of four characters with one of these, so such a piece can only come from the secret.
const MARKS: &str = "QXZJVKWY";
const OTHERS: &str = "89/?#@:&%=+ ,;[]{}$\\\"'<>|^`~!*().-_\té😀";

fn secret() -> impl Strategy<Value = String> {
    let symbols: Vec<char> = MARKS.chars().chain(OTHERS.chars()).collect();
    prop::collection::vec(prop::sample::select(symbols), 4..24).prop_map(String::from_iter)
}

fn encoded(secret: &str) -> String {
    secret.bytes().map(|byte| format!("%{byte:02X}")).collect()
}

/// The pieces of a secret that no message may have, also as `Debug` writes them.
fn pieces(secret: &str) -> Vec<String> {
    let characters: Vec<char> = secret.chars().collect();
    let windows = characters.windows(4).filter(|piece| piece.iter().any(|one| MARKS.contains(*one)));
    windows.map(String::from_iter).flat_map(|piece| [piece.escape_debug().to_string(), piece]).collect()
}

/// The messages that a program may see of a limiter with these stores.
fn messages(make: impl FnOnce() -> tidegate::Result<Builder>) -> Vec<String> {
    let seen: Arc<Mutex<Vec<String>>> = Arc::default();
    let noted = Arc::clone(&seen);
    let builder = match make() {
        Ok(builder) => builder,
        Err(error) => return vec![format!("{error} {error:?}")],
    };
    let builder = builder
        .timeout(Duration::from_millis(20))
        .on_store_error(OnStoreError::Raise)
        .on_change(Arc::new(move |change: &StoreChange| noted.lock().expect("a lock").push(format!("{change:?}"))));
    let mut messages = vec![format!("{builder:?}")];
    match builder.build() {
        Err(error) => messages.push(format!("{error} {error:?}")),
        Ok(limiter) => {
            messages.push(format!("{} {limiter:?} {:?}", limiter.described(), limiter.to_async()));
            for _ in 0..2 {
                let answers = [limiter.check("5/s", "k").map(drop), limiter.ping()];
                messages.extend(answers.map(|answer| format!("{answer:?}")));
            }
            limiter.close();
        }
    }
    messages.append(&mut seen.lock().expect("a lock"));
    messages
}

fn of_file(text: &str, format: Format, environment: &str) -> Vec<String> {
    let file = PolicyFile::parse_with(text, format, Some("policies"), &|name| {
        (name == "STORE").then(|| environment.to_owned())
    });
    vec![file.map_or_else(|error| format!("{error} {error:?}"), |file| format!("{file:?}"))]
}

/// A text in the quotes of JSON, which TOML and YAML read too.
fn quoted(text: &str) -> String {
    serde_json::to_string(text).expect("a text")
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, max_shrink_iters: 400, ..ProptestConfig::default() })]

    #[test]
    fn no_piece_of_a_secret_is_shown(secret in secret(), place in prop::sample::select(PLACES), escape in any::<bool>()) {
        // The text behind an @ is a host, which is no secret.
        let has_host = matches!(place, "redis://127.0.0.1:1/{}" | "redis://127.0.0.1:1:{}/0");
        prop_assume!(escape || !has_host || !secret.contains('@'));
        let url = place.replace("{}", &if escape { encoded(&secret) } else { secret.clone() });
        let (one, other) = (url.clone(), "redis://127.0.0.1:1/9".to_owned());
        let quoted = quoted(&url);
        let mut seen = messages(|| Ok(Limiter::builder().store(&one)));
        seen.extend(messages(|| Ok(Limiter::builder().stores([&one, &other]))));
        seen.extend(messages(|| Ok(Limiter::builder().stores([&one, &one]))));
        seen.extend(messages(|| Ok(Limiter::builder().rollout(&one, &other, 50.0))));
        seen.extend(messages(|| Ok(Limiter::builder().rollout(&other, &one, 50.0))));
        // `is_cut`: in the place of a scheme, a colon and a blank end a name of YAML, which then is no part of a URL.
        // `misplaced`: in the place of something else, a URL can be recognized.
        let ends_name = |(scheme, _): (&str, &str)| [": ", ":\t"].iter().any(|end| scheme.contains(end));
        let is_cut = url.split_once("://").is_some_and(ends_name);
        let misplaced = url.contains("://") || url.split_once(':').is_some_and(|(_, rest)| rest.contains('@'));
        if url.contains("://") {
            seen.extend(messages(|| Builder::from_file(&one)));
            seen.extend(messages(|| Builder::from_file(format!("{one}.yaml"))));
        }
        if misplaced {
            seen.extend(messages(|| Limiter::builder().policy("p", &one)));
            let limiter = Limiter::builder().build().expect("a limiter");
            seen.push(format!("{:?}", limiter.check(one.as_str(), "k").map(drop)));
        }
        for (text, format) in [
            (format!("store: {quoted}\npolicies: {{}}\n"), Format::Yaml),
            (format!("store: {url}\npolicies: {{}}\n"), Format::Yaml),
            (format!("store: [{quoted}, 5]\npolicies: {{}}\n"), Format::Yaml),
            (format!("store:\n  {url}: 1\npolicies: {{}}\n"), Format::Yaml),
            (format!("store: {{{quoted}: 1, {quoted}: 2}}\npolicies: {{}}\n"), Format::Yaml),
            (format!("{url}\n"), Format::Yaml),
            (format!("policies: {{{quoted}: 5}}\n"), Format::Yaml),
            (format!("policies: {{{quoted}: {{}}}}\n"), Format::Yaml),
            (format!("policies: {{p: {quoted}}}\n"), Format::Yaml),
            (format!("policies: {{p: {{limits: 5/s, on_store_error: {quoted}}}}}\n"), Format::Yaml),
            (format!("policies: {{p: {{limits: 5/s, {quoted}: 1}}}}\n"), Format::Yaml),
            (format!("store = {quoted}\n[policies]\n"), Format::Toml),
            (format!("store = {url}\n[policies]\n"), Format::Toml),
            (format!("store = '{url}'\n[policies]\n"), Format::Toml),
            (format!("{{\"store\": {quoted}, \"policies\": {{}}}}"), Format::Json),
            (format!("{{\"store\": \"{url}\", \"policies\": {{}}}}"), Format::Json),
            (format!("{{\"store\": {url}, \"policies\": {{}}}}"), Format::Json),
            ("store: ${STORE}\npolicies: {}\n".to_owned(), Format::Yaml),
            ("store: {a: ${STORE}}\npolicies: {}\n".to_owned(), Format::Yaml),
            ("policies: {p: \"${STORE}\"}\n".to_owned(), Format::Yaml),
            ("policies: {p: {limits: 5/s, journal: \"${STORE}\"}}\n".to_owned(), Format::Yaml),
        ] {
            if is_cut && text.lines().any(|line| line.trim_start().starts_with(&url)) {
                continue;
            }
            if misplaced || text.starts_with("store") || text.contains("\"store\"") || text.contains("STORE") {
                seen.extend(of_file(&text, format, &url));
            }
        }
        for (secret, message) in pieces(&secret).iter().flat_map(|piece| seen.iter().map(move |message| (piece, message))) {
            prop_assert!(!message.contains(secret.as_str()), "{} is in {}", secret, message);
        }
    }
}

#[test]
fn a_limiter_says_what_it_is() {
    let builder =
        Limiter::builder().policy("login", "5/minute").expect("a policy").store("redis://u:SECRET@127.0.0.1:1/0");
    let limiter = builder.build().expect("a limiter");
    let said = "{ stores: \"redis://127.0.0.1:1/0\", policies: 1, closed: false, .. }";
    assert_eq!(format!("{limiter:?} {:?}", limiter.to_async()), format!("Limiter {said} AsyncLimiter {said}"));
    let layer = tidegate::http::tower::RateLimitLayer::builder(&limiter.to_async());
    assert!(format!("{layer:?}").contains(said), "{layer:?}");
}

#[test]
fn what_may_be_a_part_of_a_password_is_to_be_escaped() {
    for url in [
        "redis://user:12/SECRET@h:1/0",
        "redis://user:12?SECRET@h:1/0",
        "redis://user:12#SECRET@h:1/0",
        "redis://user:p@12/SECRET@h:1/0",
        "redis+sentinel://user:12/SECRET@h1:26379/0",
        "redis+sentinel://user:12/SECRET@h1:26379/mymaster/0",
        "redis+sentinel://h/m?sentinel_password=a&SECRET",
        "redis+sentinel://h/m?sentinel_password=a#SECRET",
        "redis+cluster://:12/SECRET@h1:1,h2:2",
        "redis+unix://:12/SECRET@/run/redis.sock",
    ] {
        let error = Limiter::builder().store(url).build().map(drop).expect_err(url);
        assert_eq!(error.code(), "config_invalid", "{url}: {error}");
        let shown = format!("{error} {error:?}");
        assert!(!shown.contains("SECRET") && !shown.contains("12"), "{url}: {shown}");
        assert!(shown.contains("percent-encode") && shown.contains("%2F"), "{url}: {shown}");
    }
}

#[test]
fn a_password_with_every_character_can_be_escaped() {
    for url in [
        "redis://user:%2F%3F%23%40%26%25@127.0.0.1:1/0",
        "redis+sentinel://:p%2F@127.0.0.1:1/mymaster/0?sentinel_password=%26%2F%3F%23@x".replace("@x", "%40").as_str(),
        "redis+unix:///run/@/redis.sock",
        "rediss+sentinel://u:p@127.0.0.1:1/m?sentinel_password=a@b",
    ] {
        let made = Limiter::builder().store(url).build().map(drop);
        assert!(made.is_ok(), "{url}: {made:?}");
    }
}

/// A key easily loses its line breaks on the way through an environment variable.
#[test]
fn no_byte_of_a_key_in_a_damaged_file_is_shown() {
    let path = std::env::temp_dir().join(format!("tidegate-key-{}.pem", std::process::id()));
    let url = format!("rediss://127.0.0.1:1/0?ssl_certfile={0}&ssl_keyfile={0}", path.display());
    for text in [
        "-----BEGIN PRIVATE KEY-----SECRET-----END PRIVATE KEY-----",
        "-----BEGIN PRIVATE KEY-----SECRET",
        "-----BEGIN PRIVATE KEY-----\nSECRET",
        "-----BEGIN PRIVATE KEY-----\nSECRET*\n-----END PRIVATE KEY-----",
        "SECRET",
    ] {
        std::fs::write(&path, text).expect("a file");
        let error = Limiter::builder().store(&url).build().map(drop).expect_err(text);
        let shown = format!("{error} {error:?}");
        let as_numbers = "SECRET".bytes().map(|byte| byte.to_string()).collect::<Vec<_>>().join(", ");
        assert!(shown.contains("the file of ssl_keyfile cannot be used"), "{text}: {shown}");
        assert!(!shown.contains("SECRET") && !shown.contains(&as_numbers), "{text}: {shown}");
    }
    std::fs::remove_file(path).expect("a file");
}

#[test]
fn a_long_key_is_shown_shortened() {
    let limiter = Limiter::builder().build().expect("a limiter");
    let key = "é".repeat(30_000);
    let decision = limiter.check("5/s", &key).expect("an answer");
    assert_eq!(decision.key(), key);
    let hold = limiter.hold("concurrency 5", &key, 1).expect("an answer").held().expect("room");
    for shown in [format!("{decision:?}"), format!("{hold:?}"), format!("{:#?}", decision)] {
        assert!(shown.contains(&"é".repeat(64)) && !shown.contains(&"é".repeat(65)), "{}", shown.len());
        assert!(shown.contains("(30000 characters)"), "{shown}");
    }
    let short = limiter.check("5/s", "alice").expect("an answer");
    assert!(format!("{short:?}").contains("key: \"alice\""));
    let error = limiter.check("5/s", &"k".repeat(70_000)).expect_err("it is too long");
    assert!(error.message().len() < 100, "{error}");
}

/// Without the secret, anybody can compute the name of a guessed key, and find in a copy of the data if it was used.
#[test]
fn names_of_keys_cannot_be_computed_without_the_secret() {
    const SECRET: &str = "SECRET-of-the-test-0123456789";
    let redis = Servers::start(Kind::Single);
    let limiter = |secret: Option<&str>| {
        let builder = Limiter::builder().store(redis.url()).timeout(Duration::from_secs(10));
        secret.map_or_else(|| builder.clone(), |secret| builder.clone().key_secret(secret)).build().expect("a limiter")
    };
    let (one, same) = (limiter(Some(SECRET)), limiter(Some(SECRET)));
    let (other, none) = (limiter(Some("another secret of the test")), limiter(None));
    let policy = Policy::parse("5/hour").expect("a policy");
    let left = |limiter: &Limiter| limiter.peek(&policy, "203.0.113.7", 1).expect("a peek").remaining();
    let decision = one.check(&policy, "203.0.113.7").expect("a check");
    assert_eq!([left(&one), left(&same), left(&other), left(&none)], [4, 4, 5, 5]);
    let keys: Vec<Vec<u8>> = redis::cmd("KEYS").arg("*").query(&mut redis.connection(0)).expect("the keys");
    assert_eq!(
        keys,
        [host::redis_key(&KeyNames::new("tg", Some(SECRET.as_bytes())).expect("names"), &policy, "203.0.113.7")]
    );
    assert_ne!(keys, [host::redis_key(&"tg".into(), &policy, "203.0.113.7")], "what anybody can compute");
    // The key has another name there, so units would go back to a key that the decision did not charge.
    for limiter in [&other, &none] {
        let error = limiter.settle(&decision, 0).expect_err("the names of its keys are others");
        assert_eq!(error.code(), "config_invalid", "{error}");
    }
    same.settle(&decision, 0).expect("the same store and names");
    assert_eq!(left(&one), 5);
    one.clear_all().expect("the prefix says which keys are ours");
    let shown = format!("{:?}", Limiter::builder().key_secret(SECRET));
    assert!(!shown.contains("SECRET"), "{shown}");
    for url in ["memory://", redis.url()] {
        let short = Limiter::builder().store(url).key_secret("SECRET").build().map(drop).expect_err("too short");
        assert_eq!(short.code(), "config_invalid", "{url}");
        assert!(short.message().contains("6 bytes") && !short.message().contains("SECRET"), "{short}");
    }
}
