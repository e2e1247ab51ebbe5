//! The networks among the keys of overrides. A key that is an address has the override of the longest network around it.

use std::net::IpAddr;

use ipnet::IpNet;

use crate::error::{Error, Result};

/// The networks, in the order of their first addresses. One that contains another comes before it.
#[derive(Debug, PartialEq, Eq, Default)]
pub(super) struct Networks(Vec<Network>);

#[derive(Debug, PartialEq, Eq)]
struct Network {
    network: IpNet,
    /// The key, as it is written.
    key: String,
    /// The place of the smallest network that contains this one.
    outer: Option<usize>,
}

impl Networks {
    /// The networks among these keys.
    pub(super) fn among<'a>(keys: impl Iterator<Item = &'a String>) -> Self {
        let written = keys.filter_map(|key| Some((written(key)?.ok()?, key)));
        let mut networks: Vec<Network> =
            written.map(|(network, key)| Network { network, key: key.clone(), outer: None }).collect();
        networks.sort_unstable_by_key(|one| one.network);
        for at in 1..networks.len() {
            networks[at].outer = containing(&networks, Some(at - 1), &networks[at].network);
        }
        Self(networks)
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The key of the longest network that contains an address, or a network of one client.
    pub(super) fn around(&self, key: &str) -> Option<&str> {
        let asked = network(key)?.ok()?;
        // The last network that does not begin behind the address is the one, or lies in it: networks never overlap in part.
        let behind = self.0.partition_point(|one| one.network <= asked);
        containing(&self.0, behind.checked_sub(1), &asked).map(|at| &*self.0[at].key)
    }

    /// Refuses two spellings of one network.
    pub(super) fn check(&self) -> Result<()> {
        match self.0.windows(2).find(|pair| pair[0].network == pair[1].network) {
            Some(pair) => {
                let [one, other] = [&pair[0].key, &pair[1].key];
                Err(Error::policy(format!(
                    "the overrides of {one:?} and {other:?} are of the same network: leave one out"
                )))
            }
            None => Ok(()),
        }
    }
}

/// The place of the network that contains `inner`, among the one at `at` and those around it.
fn containing(networks: &[Network], mut at: Option<usize>, inner: &IpNet) -> Option<usize> {
    while let Some(place) = at.filter(|place| !networks[*place].network.contains(inner)) {
        at = networks[place].outer;
    }
    at
}

/// Refuses a key of overrides that looks like a network and is none.
pub(super) fn check_key(key: &str) -> Result<()> {
    let why = match written(key) {
        Some(Err(why)) => why,
        _ => return Ok(()),
    };
    Err(Error::policy(format!("the override of {key:?} is of no network: {why}")))
}

/// The network that a key of overrides is, or the reason why it is none although it looks like one. A single address is a key as
/// any other, and so is a text without a length behind its slash.
fn written(key: &str) -> Option<Result<IpNet, String>> {
    let (address, length) = key.split_once('/')?;
    let is_number = !length.is_empty() && length.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    let looks_like_v4 =
        address.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.') && address.matches('.').count() > 1;
    let looks_like_v6 = address.bytes().all(|byte| byte.is_ascii_hexdigit() || b".:".contains(&byte))
        && address.matches(':').count() > 1;
    if !is_number || !(looks_like_v4 || looks_like_v6) {
        return None;
    }
    Some(
        network(key).unwrap_or_else(|| {
            Err("the part before the slash is no address: write all four numbers of IPv4".to_owned())
        }),
    )
}

/// The network of a key that is an address, or a network as `client_ip` makes of an IPv6 address. `None` for any other key. An
/// address that is mapped from IPv4 is one of IPv4.
fn network(key: &str) -> Option<Result<IpNet, String>> {
    let (address, length) = key.split_once('/').map_or((key, None), |(address, length)| (address, Some(length)));
    let address = address.parse::<IpAddr>().ok()?;
    let canonical = address.to_canonical();
    let Some(length) = length else { return Some(Ok(IpNet::from(canonical))) };
    let bits = if address.is_ipv4() { 32 } else { 128 };
    let digits = Some(length).filter(|length| length.bytes().all(|byte| byte.is_ascii_digit()));
    let Some(length) = digits.and_then(|length| length.parse::<u8>().ok()).filter(|length| *length <= bits) else {
        return Some(Err(format!("the length behind the slash must be a number from 0 to {bits}")));
    };
    // The first 96 bits of a mapped address say only that it is mapped.
    let mapped = address.is_ipv6() && canonical.is_ipv4() && length >= 96;
    let network = if mapped { IpNet::new(canonical, length - 96) } else { IpNet::new(address, length) }.ok()?;
    if network.addr() != network.network() {
        return Some(Err(format!(
            "its address has bits behind the first {}: write {}",
            network.prefix_len(),
            network.trunc()
        )));
    }
    Some(Ok(network))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::{KeyOverride, Options, Overrides, Policy};

    fn overrides(keys: &[&str]) -> Overrides {
        keys.iter().map(|key| (*key, KeyOverride::unlimited())).collect()
    }

    fn declared(keys: &[&str]) -> Result<Policy> {
        let limits = Policy::parse("5/minute")?.limits().to_vec();
        Policy::new(limits, Options { overrides: Some(overrides(keys)), ..Options::default() })
    }

    #[test]
    fn the_longest_network_wins_and_the_key_itself_before_it() {
        let overrides = overrides(&[
            "0.0.0.0/0",
            "10.0.0.0/8",
            "10.1.0.0/16",
            "10.1.2.0/24",
            "10.1.2.3",
            "10.1.2.9/32",
            "192.168.0.0/16",
            "2001:db8::/32",
            "2001:DB8:1::/48",
            "2001:db8:1:2::/64",
            "::ffff:172.16.0.0/108",
            "alice",
            "10.1.2.0/24/login",
        ]);
        for (key, network) in [
            ("8.8.8.8", Some("0.0.0.0/0")),
            ("10.200.0.1", Some("10.0.0.0/8")),
            ("10.1.3.255", Some("10.1.0.0/16")),
            ("10.1.2.4", Some("10.1.2.0/24")),
            ("10.1.2.9", Some("10.1.2.9/32")),
            ("10.1.2.3", None),
            ("::ffff:10.1.2.4", Some("10.1.2.0/24")),
            ("172.31.0.1", Some("::ffff:172.16.0.0/108")),
            ("2001:db8:7::1", Some("2001:db8::/32")),
            ("2001:db8:1:3::/64", Some("2001:DB8:1::/48")),
            // The keys that `client_ip` makes. This one has an override itself.
            ("2001:db8:1:2::/64", None),
            ("2001:db8:1:2::9", Some("2001:db8:1:2::/64")),
            ("2001:db8::/31", None),
            ("2002::1", None),
            ("alice", None),
            ("bob", None),
            ("10.1.2.4:80", None),
            ("10.1.2.4,alice", None),
            ("010.1.2.4", None),
            ("10.1.2.4/login", None),
            ("10.1.2.0/+25", None),
            ("", None),
        ] {
            assert_eq!(overrides.network_of(key), network, "{key}");
        }
    }

    #[test]
    fn a_network_that_is_none_is_an_error() {
        for (key, why) in [
            ("10.0.0.0/33", "from 0 to 32"),
            ("2001:db8::/129", "from 0 to 128"),
            ("10.0.0.0/255.0.0.0", "from 0 to 32"),
            ("10.0.0.7/8", "behind the first 8: write 10.0.0.0/8"),
            ("2001:db8::1/64", "behind the first 64: write 2001:db8::/64"),
            ("::ffff:10.0.0.7/104", "write 10.0.0.0/8"),
            ("10.0.0/8", "is no address"),
            ("300.0.0.0/8", "is no address"),
        ] {
            let error = declared(&[key]).expect_err(key);
            assert!(error.message().contains(key) && error.message().contains(why), "{error}");
        }
        for key in ["10.0.0.0/login", "a/8", "1.5/3", "user:7/3", "10.0.0.0/8/login", "/8", "10.0.0.0/"] {
            declared(&[key]).expect(key);
        }
        let twice = declared(&["10.0.0.0/8", "::ffff:10.0.0.0/104"]).expect_err("one network");
        assert!(twice.message().contains("the same network"), "{twice}");
    }

    #[test]
    fn a_search_in_many_networks_finds_what_a_look_at_all_finds() {
        let mut random = 9_u64;
        let mut next = || {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (random >> 33) as u32
        };
        let known: Vec<IpNet> = (0..2_000)
            .map(|_| {
                IpNet::new(IpAddr::from((next() & 0x0f0f_ffff).to_be_bytes()), (next() % 33) as u8)
                    .expect("a network")
                    .trunc()
            })
            .collect();
        let texts: Vec<String> = known.iter().map(ToString::to_string).collect();
        let overrides = overrides(&texts.iter().map(String::as_str).collect::<Vec<_>>());
        for _ in 0..5_000 {
            let address = IpAddr::from((next() & 0x0f0f_ffff).to_be_bytes());
            let longest =
                known.iter().filter(|network| network.contains(&address)).max_by_key(|network| network.prefix_len());
            let found = overrides.network_of(&address.to_string());
            assert_eq!(found.map(str::to_owned), longest.map(ToString::to_string), "{address}");
        }
    }
}
