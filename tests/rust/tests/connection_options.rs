//! Options of a store URL for the start of a connection: passwords that change, names, certificates.

use std::fs;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::json;
use tidegate::{Error, ErrorKind, Limiter, OnStoreError};
use tidegate_tests::any_limiter::AnyLimiter;
use tidegate_tests::servers::{Kind, Servers};
use tidegate_tests::wait::wait_until;

const FIRST: &str = "hunter2-first";
const SECOND: &str = "hunter2-second";

/// A file of this test that is removed at its end.
struct Secret(PathBuf);

impl Secret {
    fn new(name: &str, text: &str) -> Self {
        let secret = Self(std::env::temp_dir().join(format!("tidegate-{}-{name}", std::process::id())));
        secret.write(text);
        secret
    }

    fn write(&self, text: &str) {
        fs::write(&self.0, text).expect("a file");
    }

    fn shown(&self) -> String {
        self.0.display().to_string()
    }
}

impl Drop for Secret {
    fn drop(&mut self) {
        drop(fs::remove_file(&self.0));
    }
}

fn limiter(url: &str, tasks: bool) -> Result<AnyLimiter, Error> {
    let builder = Limiter::builder().store(url).timeout(Duration::from_secs(5)).on_store_error(OnStoreError::Raise);
    AnyLimiter::new(builder, tasks)
}

fn check(limiter: &AnyLimiter) -> Result<bool, Error> {
    limiter.check("1000/hour", "k", 1, None).map(|decision| decision.allowed())
}

/// Ends every connection of the limiters.
fn disconnect(servers: &Servers, server: usize) {
    servers.command(server, &["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
}

fn no_secret(error: &Error) {
    let shown = format!("{error} {error:?}");
    assert!(!shown.contains("hunter2"), "{shown}");
}

#[test]
fn a_password_is_read_anew_at_each_connection() {
    let options = json!({"password": "unused", "users": {"app": format!("on >{FIRST} ~* +@all")}});
    let servers = Servers::start_with(Kind::Single, options);
    for tasks in [false, true] {
        servers.command(0, &["ACL", "SETUSER", "app", "resetpass", &format!(">{FIRST}")]);
        let secret = Secret::new(&format!("rotated-{tasks}"), &format!("{FIRST}\n"));
        let url = format!("redis://app@127.0.0.1:{}/0?password_file={}", servers.port(0), secret.shown());
        let limiter = limiter(&url, tasks).expect("a limiter");
        assert_eq!(check(&limiter), Ok(true));
        // The password is rotated while the limiter runs: first on the server, and later in the file.
        servers.command(0, &["ACL", "SETUSER", "app", "resetpass", &format!(">{SECOND}")]);
        disconnect(&servers, 0);
        wait_until(Duration::from_secs(20), "the old password is refused", || {
            check(&limiter).is_err_and(|error| {
                no_secret(&error);
                error.kind() == ErrorKind::StoreRejected
                    && error.message().contains("the file that password_file names")
            })
        });
        secret.write(&format!("{SECOND}\r\n"));
        wait_until(Duration::from_secs(20), "the new password is used", || check(&limiter) == Ok(true));
        // A missing file is an error that gives this reason, and the limiter notices when the file is back.
        drop(secret);
        disconnect(&servers, 0);
        wait_until(Duration::from_secs(20), "the missing file is an error", || {
            check(&limiter).is_err_and(|error| {
                no_secret(&error);
                error.kind() == ErrorKind::StoreUnavailable
                    && error.message().contains("the file that password_file names cannot be read")
            })
        });
        let secret = Secret::new(&format!("rotated-{tasks}"), SECOND);
        wait_until(Duration::from_secs(20), "the file is back", || check(&limiter) == Ok(true));
        drop(secret);
    }
}

#[test]
fn a_file_without_a_password_is_an_error_at_the_start() {
    let folder = Secret(std::env::temp_dir());
    for (name, text, words) in [
        ("missing", None, "cannot be read"),
        ("empty", Some("\r\n\n".to_owned()), "is empty: it must hold the password"),
        ("large", Some("hunter2".repeat(10_000)), "is larger than 64 KiB"),
    ] {
        let secret = Secret::new(name, text.as_deref().unwrap_or_default());
        if text.is_none() {
            fs::remove_file(&secret.0).expect("it was there");
        }
        for url in [
            format!("redis://app@h/0?password_file={}", secret.shown()),
            format!("rediss://app@h/0?password_file={}", secret.shown()),
            format!("redis+unix:///run/s?password_file={}", secret.shown()),
            format!("redis+cluster://h:1,h:2?password_file={}", secret.shown()),
            format!("redis+sentinel://h:1/name/0?sentinel_password_file={}", secret.shown()),
        ] {
            let Err(error) = limiter(&url, false) else { panic!("{url}") };
            assert_eq!(error.kind(), ErrorKind::ConfigInvalid, "{error}");
            assert!(error.message().contains(words) && error.message().contains("password_file names"), "{error}");
            no_secret(&error);
        }
    }
    let binary = Secret::new("binary", "");
    fs::write(&binary.0, b"hunter2\xff").expect("a file");
    for (url, words) in [
        (format!("redis://h/0?password_file={}", binary.shown()), "is not UTF-8"),
        (format!("redis://h/0?password_file={}", folder.shown()), "is not a regular file"),
        (format!("redis://u:hunter2@h/0?password_file={}", binary.shown()), "has a password and password_file"),
        (
            format!("redis+sentinel://h/n/0?sentinel_password=hunter2&sentinel_password_file={}", binary.shown()),
            "has sentinel_password and sentinel_password_file",
        ),
        ("redis://h/0?client_name=two%20words".to_owned(), "client_name cannot be used"),
        ("redis://h/0?client_name=".to_owned(), "client_name cannot be used"),
        ("rediss://h/0?ssl_cert_reqs=optional".to_owned(), "ssl_cert_reqs is unknown: give required or none"),
        ("redis://h/0?ssl_cert_reqs=none".to_owned(), "has no such option"),
        ("redis+cluster://h?ssl_cert_reqs=none".to_owned(), "with TLS only"),
    ] {
        let Err(error) = limiter(&url, false) else { panic!("{url}") };
        assert_eq!(error.kind(), ErrorKind::ConfigInvalid, "{error}");
        assert!(error.message().contains(words), "{url}: {error}");
        no_secret(&error);
    }
    // This is the folder of all temporary files, which must not be removed.
    std::mem::forget(folder);
}

#[test]
fn sentinels_and_clusters_read_the_file_too() {
    for kind in [Kind::Sentinel, Kind::Cluster] {
        let servers = Servers::start_with(kind, json!({"users": {"app": format!("on >{FIRST} ~* +@all")}}));
        let secret = Secret::new(&format!("{kind:?}"), FIRST);
        let url = servers.url().replace("://", "://app@");
        let limiter = limiter(&format!("{url}?password_file={}", secret.shown()), false).expect("a limiter");
        assert_eq!(check(&limiter), Ok(true));
    }
    // Sentinels with a separate password.
    let servers = Servers::start(Kind::Sentinel);
    let secret = Secret::new("sentinels", &format!("{FIRST}\n"));
    for sentinel in 3..6 {
        servers.command(sentinel, &["ACL", "SETUSER", "watcher", "on", &format!(">{FIRST}"), "allchannels", "+@all"]);
        servers.command(sentinel, &["ACL", "SETUSER", "default", "off"]);
    }
    let file = format!("sentinel_username=watcher&sentinel_password_file={}", secret.shown());
    let error = limiter(servers.url(), false).expect("a limiter").ping().expect_err("they ask for a password");
    assert!(error.message().starts_with("the sentinel 127.0.0.1:"), "{error}");
    assert!(error.message().ends_with("as sentinel_username and sentinel_password of the store URL"), "{error}");
    let limiter = limiter(&format!("{}?{file}", servers.url()), false).expect("a limiter");
    assert_eq!(check(&limiter), Ok(true));
}

#[test]
fn a_client_has_a_name_where_its_user_may() {
    let least = format!("on >{FIRST} ~tg* -@all +evalsha +eval +get +set +del +time +ping");
    let users = json!({"app": least, "named": format!("{least} +client|setname")});
    let servers = Servers::start_with(Kind::Single, json!({"users": users}));
    for tasks in [false, true] {
        for user in ["app", "named"] {
            let url = format!("redis://{user}:{FIRST}@127.0.0.1:{}/0?client_name=shop-1.web", servers.port(0));
            let limiter = limiter(&url, tasks).expect("a limiter");
            assert_eq!(check(&limiter), Ok(true), "{user} is served");
            let list = servers.command(0, &["CLIENT", "LIST"]);
            let named = list.as_str().expect("text").contains(" name=shop-1.web ");
            assert_eq!(named, user == "named", "{list}");
        }
        wait_until(Duration::from_secs(20), "the limiters are gone", || {
            !servers.command(0, &["CLIENT", "LIST"]).as_str().expect("text").contains("shop-1.web")
        });
    }
}

#[test]
fn tls_without_verification_warns_once() {
    let servers = Servers::start_with(Kind::Single, json!({"tls": true}));
    let url = servers.url_of("tls").split('?').next().expect("a URL").to_owned();
    for (option, served) in
        [("ssl_cert_reqs=none", true), ("ssl_cert_reqs=none&protocol=3", true), ("ssl_cert_reqs=required", false)]
    {
        let warnings = Arc::new(Mutex::new(Vec::new()));
        let heard = Arc::clone(&warnings);
        let builder = Limiter::builder()
            .store(format!("{url}?{option}"))
            .timeout(Duration::from_secs(5))
            .on_store_error(OnStoreError::Raise)
            .on_warning(Arc::new(move |warning| heard.lock().expect("no panic").push(warning.to_owned())));
        let limiter = AnyLimiter::new(builder, served && option.contains("protocol")).expect("a limiter");
        if served {
            assert_eq!(check(&limiter), Ok(true));
            disconnect(&servers, 0);
            wait_until(Duration::from_secs(20), "it connects again", || check(&limiter).is_ok());
            let warnings = warnings.lock().expect("no panic");
            assert_eq!(warnings.len(), 1, "{warnings:?}");
            assert!(warnings[0].contains("ssl_cert_reqs=none") && warnings[0].contains("127.0.0.1"), "{warnings:?}");
        } else {
            let error = check(&limiter).expect_err("no authority that it knows has signed the certificate");
            assert_eq!(error.kind(), ErrorKind::StoreUnavailable, "{error}");
            assert!(warnings.lock().expect("no panic").is_empty());
        }
    }
}
