//! The error for a program that uses a feature which its build of the crate does not have.

use crate::error::Error;

/// `config_invalid`, for something that needs a feature of the crate.
pub(crate) fn error(what: &str, feature: &str) -> Error {
    Error::config(format!(
        "{what} needs the feature `{feature}` of the crate tidegate, and this program was built without it: add \
         \"{feature}\" to the features of tidegate in Cargo.toml"
    ))
}

#[cfg(test)]
mod tests {
    use crate::{ErrorKind, Limiter};

    #[cfg(not(all(feature = "redis", feature = "tls")))]
    fn refused(url: &str, feature: &str) {
        let error = Limiter::builder().store(url).build().expect_err(url);
        assert_eq!(error.kind(), ErrorKind::ConfigInvalid, "{url}");
        let text = error.to_string();
        assert!(text.contains(&format!("needs the feature `{feature}` of the crate tidegate")), "{url}: {text}");
        assert!(!text.contains("hunter2"), "{url}: {text}");
    }

    #[cfg(not(feature = "redis"))]
    #[test]
    fn a_server_needs_redis() {
        for scheme in ["redis", "rediss", "valkey", "redis+unix", "unix", "redis+sentinel", "valkeys+cluster"] {
            refused(&format!("{scheme}://user:hunter2@localhost:6379/0"), "redis");
        }
        let list = Limiter::builder().stores(["redis://a", "redis://b"]).build().expect_err("servers");
        assert!(list.to_string().contains("`redis`"), "{list}");
        let unknown = Limiter::builder().store("postgres://localhost").build().expect_err("no store");
        assert!(unknown.to_string().contains("a store URL begins with memory://"), "{unknown}");
    }

    #[cfg(all(feature = "redis", not(feature = "tls")))]
    #[test]
    fn encryption_needs_tls() {
        for scheme in ["rediss", "valkeys", "rediss+sentinel", "rediss+cluster"] {
            refused(&format!("{scheme}://user:hunter2@localhost:6379/0"), "tls");
        }
        let plain = Limiter::builder().store("redis://localhost:6379/0").build();
        plain.expect("a server without encryption");
    }

    #[cfg(not(feature = "files"))]
    #[test]
    fn a_policy_file_needs_files() {
        let error = Limiter::from_file("tidegate.yaml").expect_err("a file");
        assert_eq!(error.kind(), ErrorKind::ConfigInvalid);
        assert!(error.to_string().contains("a policy file needs the feature `files`"), "{error}");
    }

    #[test]
    fn memory_needs_none() {
        let limiter = Limiter::builder().store("memory://?max_keys=10&max_bytes=1MB").build().expect("memory");
        assert!(limiter.check("1/minute", "alice").expect("a decision").allowed());
        assert!(!limiter.check("1/minute", "alice").expect("a decision").allowed());
    }
}
