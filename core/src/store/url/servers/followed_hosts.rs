//! The hosts that servers may name: a sentinel that names the primary, a node of a cluster that names other nodes.

use std::net::IpAddr;

use ipnet::IpNet;

use crate::error::{Error, Result};

/// The value of `follow`: hosts and networks.
#[derive(Clone)]
pub(crate) struct FollowedHosts(Vec<Followed>);

#[derive(Clone)]
enum Followed {
    Network(IpNet),
    Host(String),
    /// Every host with a name that ends in this dot and domain.
    Below(String),
}

impl FollowedHosts {
    /// Reads the value of `follow`: hosts, networks and domains with commas between them.
    ///
    /// # Errors
    /// `config_invalid` for an entry that is no host and no network. It is not shown: a part of a password may follow it.
    pub(super) fn parse(text: &str) -> Result<Self> {
        let entries = text.split(',').enumerate().map(|(index, entry)| {
            Followed::parse(entry.trim()).ok_or_else(|| {
                Error::config(format!(
                    "entry {} of follow is neither a host nor a network: list them with commas, as in \
                     follow=10.0.0.0/8,redis-1.internal,*.cache.internal",
                    index + 1
                ))
            })
        });
        entries.collect::<Result<_>>().map(Self)
    }

    pub(crate) fn contains(&self, host: &str) -> bool {
        let address = host.parse::<IpAddr>().map(|address| address.to_canonical()).ok();
        self.0.iter().any(|followed| match (followed, address) {
            (Followed::Network(network), Some(address)) => network.contains(&address),
            (Followed::Host(name), None) => name.eq_ignore_ascii_case(host),
            (Followed::Below(end), None) => {
                let begins = host.len().checked_sub(end.len());
                begins.is_some_and(|at| at > 0 && host.is_char_boundary(at) && host[at..].eq_ignore_ascii_case(end))
            }
            _ => false,
        })
    }
}

impl Followed {
    fn parse(entry: &str) -> Option<Self> {
        if let Ok(network) = entry.parse::<IpNet>() {
            return Some(Self::Network(network.trunc()));
        }
        if let Ok(address) = entry.parse::<IpAddr>() {
            return Some(Self::Network(address.to_canonical().into()));
        }
        let is_name = |name: &str| {
            !name.is_empty()
                && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-_".contains(&byte))
                && name.bytes().any(|byte| byte.is_ascii_alphabetic())
        };
        match entry.strip_prefix("*.") {
            Some(domain) => is_name(domain).then(|| Self::Below(format!(".{domain}"))),
            None => is_name(entry).then(|| Self::Host(entry.to_owned())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_hold_addresses_and_names_are_compared_as_names() {
        let hosts =
            FollowedHosts::parse("10.0.0.7/8, fd00::/8,192.0.2.1,Redis-1.internal,*.cache.internal").expect("a list");
        for host in ["10.9.9.9", "::ffff:10.1.1.1", "fd00::1", "192.0.2.1", "redis-1.INTERNAL", "a.cache.internal"] {
            assert!(hosts.contains(host), "{host}");
        }
        for host in [
            "11.0.0.1",
            "192.0.2.2",
            "redis-1.internal.evil.org",
            "cache.internal",
            ".cache.internal",
            "evilcache.internal",
            "",
        ] {
            assert!(!hosts.contains(host), "{host}");
        }
        for text in ["", "10.0.0.0/33", "a,,b", "10.0.0.256", "a b", "*", "*.", "a:6379", "s3cret&x"] {
            let error = FollowedHosts::parse(text).map(|_| ()).expect_err(text);
            assert!(!error.message().contains("s3cret"), "{error}");
        }
    }
}
