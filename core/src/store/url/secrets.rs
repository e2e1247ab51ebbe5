//! Keeps the secrets of a store URL out of errors, logs and descriptions.

use crate::error::{Error, Result, visible};

/// The advice about such characters. It shows no part of the URL, because each may be a part of a password.
pub(super) const ADVICE: &str = "percent-encode special characters in a user, a password or a name (/ is %2F, ? is %3F, # \
                                 is %23, & is %26, @ is %40, % is %25); options follow a ? and have a & between them";

/// Begins the name of a store of the application in messages. No URL of a user has it.
pub(crate) const APPLICATION_SCHEME: &str = "application";

/// The schemes of stores. Valkey may stand in the place of Redis.
const SCHEMES: [&str; 13] = [
    "memory",
    "file",
    "postgresql",
    "postgres",
    "redis",
    "rediss",
    "redis+unix",
    "unix",
    "redis+sentinel",
    "rediss+sentinel",
    "redis+cluster",
    "rediss+cluster",
    APPLICATION_SCHEME,
];

/// The scheme of a store's URL. Another text in its place may be a secret.
pub(super) fn scheme(url: &str) -> Option<&str> {
    let (scheme, _) = url.split_once("://")?;
    let rest = scheme.strip_prefix("valkey");
    let is_one = |known: &&str| rest.map_or(*known == scheme, |rest| known.strip_prefix("redis") == Some(rest));
    SCHEMES.iter().any(is_one).then_some(scheme)
}

/// Refuses a URL with characters that were meant for a user or a password and are read as the end of them.
///
/// # Errors
/// `config_invalid`, without any part of the URL.
pub(super) fn refuse_unescaped(text: &str) -> Result<()> {
    let rest = text.split_once("://").map_or(text, |(_, rest)| rest);
    let (authority, tail) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
    let (path, query) = tail.split_once('?').unwrap_or((tail, ""));
    let wrong = if tail.contains('#') {
        "#"
    } else if path.contains('@') && !authority.is_empty() || query.contains('@') && !authority.contains('@') {
        // The @ ends a user or a password, which began before.
        "/, ? or @"
    } else if path.contains(['&', ';', '=']) {
        "&, ; or ="
    } else {
        return Ok(());
    };
    Err(Error::config(format!("the store URL has a {wrong} where it cannot be: {ADVICE}")))
}

/// A store's URL without user, password and options. If it has another scheme, or characters where they cannot be,
/// nothing of it is shown: the text that looks like its host may be a part of a password.
pub(crate) fn without_secrets(url: &str) -> String {
    let Some(scheme) = scheme(url).filter(|_| refuse_unescaped(url).is_ok()) else {
        return "a store URL that cannot be read".to_owned();
    };
    let rest = &url[scheme.len() + "://".len()..];
    let rest = rest.split(['?', '#']).next().unwrap_or_default();
    let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let hosts = authority.rsplit('@').next().unwrap_or_default();
    visible(&format!("{scheme}://{hosts}{path}")).into_owned()
}

#[cfg(test)]
mod tests {
    use super::without_secrets;

    #[test]
    fn a_store_is_shown_without_its_secrets() {
        for (url, expected) in [
            ("redis://localhost", "redis://localhost"),
            ("redis://user:hunter2@localhost:6379/0?protocol=3", "redis://localhost:6379/0"),
            ("redis://:hun@ter2@localhost/1", "redis://localhost/1"),
            ("rediss://h:1/0?ssl_ca_certs=/a%40b.pem", "rediss://h:1/0"),
            ("redis+cluster://u:hunter2@h1:7000,h2:7001", "redis+cluster://h1:7000,h2:7001"),
            ("redis+sentinel://h1:1,h2/name/0?sentinel_password=hunter2%40x", "redis+sentinel://h1:1,h2/name/0"),
            ("redis+unix://:hunter2@/run/redis.sock?db=1", "redis+unix:///run/redis.sock"),
            ("valkeys+cluster://u:hunter2@h", "valkeys+cluster://h"),
            ("redis://a\u{1b}[2J\nb/0", "redis://a\\u{1b}[2J\\nb/0"),
        ] {
            assert_eq!(without_secrets(url), expected);
        }
        for url in [
            "redis://user:12/hunter2@h:1/0",
            "redis://u:12#hunter2@h",
            "u:hunter2@h",
            "u:hunter2@x://h",
            "redis:/u:hunter2@h",
            "hunter2://localhost",
            "hunter2+redis://localhost",
            "redis+hunter2://u:p@localhost",
            "valkeyhunter2://localhost",
            "valkeyredis://localhost",
        ] {
            assert_eq!(without_secrets(url), "a store URL that cannot be read", "{url}");
        }
    }
}
