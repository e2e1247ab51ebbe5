//! The client of a request, found as plainly as possible: a list of senders, from the server outwards. Each counts as
//! long as the one before it is trusted.

use std::net::{IpAddr, Ipv6Addr};

use tidegate::http::Peer;

/// One that handed the request on.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Sender {
    Address(Ipv6Addr),
    Unix,
    /// A text that is no address.
    Unknown,
}

/// The client, and how it was found.
#[derive(Debug)]
pub(super) struct Client {
    sender: Sender,
    shown: String,
    /// The number of senders between it and the server.
    distance: usize,
    /// True if the search ended at a sender that is not trusted, whatever stands to the left of it.
    decided: bool,
}

impl Client {
    /// The client as a peer.
    pub(super) fn peer(&self) -> Peer<'_> {
        match self.sender {
            Sender::Unix => Peer::Unix,
            Sender::Address(_) | Sender::Unknown => Peer::Address(&self.shown),
        }
    }

    pub(super) const fn is_decided(&self) -> bool {
        self.decided
    }

    pub(super) fn distance(&self) -> usize {
        self.distance.min(6)
    }
}

/// The senders that are trusted.
pub(super) enum Model {
    Hops(usize),
    Proxies { networks: Vec<(u128, u32)>, unix: bool },
}

impl Model {
    pub(super) fn of_hops(hops: i64) -> Self {
        Self::Hops(usize::try_from(hops).unwrap_or(0))
    }

    pub(super) fn of_proxies<'a>(names: impl Iterator<Item = &'a str>) -> Self {
        let (mut networks, mut unix) = (Vec::new(), false);
        for name in names {
            let words: &[&str] = match name {
                "unix" => &[],
                "anyone" => &["0.0.0.0/0", "::/0"],
                "loopback" => &["127.0.0.0/8", "::1"],
                "linklocal" => &["169.254.0.0/16", "fe80::/10"],
                "uniquelocal" => &["10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "fc00::/7"],
                other => &[other],
            };
            unix |= matches!(name, "unix" | "anyone");
            networks.extend(words.iter().map(|word| network(word)));
        }
        Self::Proxies { networks, unix }
    }

    fn trusts(&self, sender: &Sender, distance: usize) -> bool {
        match (self, sender) {
            (Self::Hops(hops), _) => distance < *hops,
            (Self::Proxies { unix, .. }, Sender::Unix) => *unix,
            (Self::Proxies { networks, .. }, Sender::Address(address)) => networks.iter().any(|(network, length)| {
                let is_v4 = |bits: u128| bits >> 32 == 0xffff;
                // A network of IPv6 that is shorter than the mapped range does not hold IPv4 addresses.
                let same_family = is_v4(u128::from(*address)) == (is_v4(*network) && *length >= 96);
                let differs = u128::from(*address) ^ network;
                same_family && (*length == 0 || differs.leading_zeros() >= *length)
            }),
            (Self::Proxies { .. }, Sender::Unknown) => false,
        }
    }

    /// The first sender that is not trusted, or the last one.
    pub(super) fn client(&self, peer: Peer<'_>, lines: &[Vec<u8>]) -> Client {
        let (sender, shown) = match peer {
            Peer::Unix => (Sender::Unix, "unix".to_owned()),
            Peer::Address(text) => (address(text).map_or(Sender::Unknown, Sender::Address), text.to_owned()),
            _ => unreachable!("a missing peer has no key"),
        };
        let mut client = Client { sender, shown, distance: 0, decided: false };
        let lines = lines.iter().filter(|line| !line.trim_ascii().is_empty());
        // An entry that is no text is no address.
        let entries: Vec<&str> = lines
            .flat_map(|line| line.split(|byte| *byte == b','))
            .map(|entry| std::str::from_utf8(entry.trim_ascii()).unwrap_or_default())
            .collect();
        for (distance, entry) in entries.iter().rev().enumerate() {
            if !self.trusts(&client.sender, distance) {
                return Client { decided: true, ..client };
            }
            match (address(entry), self) {
                (Some(address), _) => {
                    client = Client {
                        sender: Sender::Address(address),
                        shown: (*entry).to_owned(),
                        distance: distance + 1,
                        decided: false,
                    };
                }
                (None, Self::Hops(_)) => {}
                (None, Self::Proxies { .. }) => return Client { decided: true, ..client },
            }
        }
        let decided = !self.trusts(&client.sender, entries.len());
        Client { decided, ..client }
    }
}

/// A network as an IPv6 address and the number of its bits. An IPv4 network is mapped.
fn network(text: &str) -> (u128, u32) {
    let (address, length) = text.split_once('/').map_or((text, None), |(address, length)| (address, Some(length)));
    let address: IpAddr = address.parse().expect("it was accepted");
    let length: Option<u32> = length.map(|length| length.parse().expect("it was accepted"));
    match address {
        IpAddr::V4(address) => (u128::from(address.to_ipv6_mapped()), 96 + length.unwrap_or(32)),
        IpAddr::V6(address) => (u128::from(address), length.unwrap_or(128)),
    }
}

/// An address, perhaps with brackets, a port or a zone around it.
fn address(text: &str) -> Option<Ipv6Addr> {
    let port = |text: &str| text.chars().all(|c| c.is_ascii_digit()) && text.parse::<u16>().is_ok();
    let v6 = |text: &str| text.split('%').next().and_then(|bare| bare.parse::<Ipv6Addr>().ok());
    if let Some(inside) = text.strip_prefix('[') {
        let (inside, after) = inside.split_once(']')?;
        return v6(inside).filter(|_| after.is_empty() || after.strip_prefix(':').is_some_and(port));
    }
    let colons = text.matches(':').count();
    match text.rsplit_once(':') {
        None => text.parse::<std::net::Ipv4Addr>().ok().map(|address| address.to_ipv6_mapped()),
        Some((before, after)) if colons == 1 => {
            let address = before.parse::<std::net::Ipv4Addr>().ok().filter(|_| port(after));
            address.map(|address| address.to_ipv6_mapped())
        }
        Some(_) => v6(text),
    }
}

/// True if a text is a key: an IPv4 address, a network or an address of IPv6, or a word.
pub(super) fn is_key(key: &str, prefix: u8) -> bool {
    match key.split_once('/') {
        Some((address, length)) => {
            let fits = length.parse::<u8>().is_ok_and(|length| length == prefix || [48, 64, 128].contains(&length));
            fits && address.parse::<Ipv6Addr>().is_ok()
        }
        None => matches!(key, "unix" | "unknown") || key.parse::<IpAddr>().is_ok(),
    }
}
