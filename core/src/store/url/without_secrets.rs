//! How a store is shown in errors, logs and descriptions.

/// A store's URL without user, password and options.
pub(crate) fn without_secrets(url: &str) -> String {
    let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
    let rest = rest.split(['?', '#']).next().unwrap_or_default();
    let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let hosts = authority.rsplit('@').next().unwrap_or_default();
    format!("{scheme}://{hosts}{path}")
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
            ("rediss://h:1/0?ssl_ca_certs=/a@b.pem", "rediss://h:1/0"),
            ("redis+cluster://u:hunter2@h1:7000,h2:7001", "redis+cluster://h1:7000,h2:7001"),
            ("redis+sentinel://h1:1,h2/name/0?sentinel_password=hunter2@x", "redis+sentinel://h1:1,h2/name/0"),
            ("redis+unix://:hunter2@/run/redis.sock?db=1", "redis+unix:///run/redis.sock"),
        ] {
            assert_eq!(without_secrets(url), expected);
        }
    }
}
