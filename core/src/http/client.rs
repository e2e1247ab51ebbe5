//! Finds the address of the client behind proxies.
//!
//! Each proxy appends to `X-Forwarded-For` the address from which it got the request, and a client may send any entries. Only
//! the entries of trusted proxies are true. So Tidegate reads the entries from the right, as long as the proxy that appended the
//! next one is trusted, or for as many entries as there are proxies.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

use crate::error::{Error, ErrorKind, Result};

/// A household or a machine has at least a /64, and may choose its addresses within it.
pub const DEFAULT_IPV6_PREFIX: u8 = 64;

/// The key of a peer without an address: a Unix domain socket.
const UNIX: &str = "unix";
/// The key of a peer whose address cannot be read.
const UNKNOWN: &str = "unknown";
/// The word for trust in every address.
const ANYONE: &str = "anyone";

/// The most proxies between a client and a server. A larger number would only trust entries that clients write.
const MOST_HOPS: u8 = 100;

/// Names for groups of networks, the same as in Express.
const GROUPS: [(&str, &[&str]); 3] = [
    ("loopback", &["127.0.0.0/8", "::1/128"]),
    ("linklocal", &["169.254.0.0/16", "fe80::/10"]),
    ("uniquelocal", &["10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "fc00::/7"]),
];

/// The proxies that are trusted to report an address.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Trusted {
    networks: Vec<IpNet>,
    unix: bool,
    /// That many proxies are trusted, at any address.
    hops: usize,
}

impl Trusted {
    /// Trusts proxies by address (`10.0.0.7`), by network (`10.0.0.0/8`, `fd00::/8`), or by word: `loopback`, `linklocal`,
    /// `uniquelocal`, and `unix` for peers on a Unix domain socket.
    ///
    /// # Errors
    /// `config_invalid` for anything else, and for a network of all addresses, because every client could then choose its address.
    /// Write `anyone` if you mean that.
    pub fn parse<T: AsRef<str>>(proxies: impl IntoIterator<Item = T>) -> Result<Self> {
        let mut trusted = Self::default();
        for proxy in proxies {
            let proxy = proxy.as_ref().trim();
            if proxy == UNIX {
                trusted.unix = true;
            } else if proxy == ANYONE {
                trusted.unix = true;
                trusted.networks.extend([IpNet::V4(Ipv4Net::default()), IpNet::V6(Ipv6Net::default())]);
            } else if let Some((_, networks)) = GROUPS.iter().find(|(name, _)| *name == proxy) {
                trusted.networks.extend(networks.iter().filter_map(|text| parsed(text)));
            } else {
                trusted.networks.push(network(proxy)?);
            }
        }
        Ok(trusted)
    }

    /// Trusts that many proxies, at any address. The client is that entry of `X-Forwarded-For`, counted from the right, and 0 is
    /// the peer. If there are fewer entries, the client is the first one, and without any it is the peer. An entry that is no
    /// address still counts. If it stands at the client's place, the address on its right is the client.
    ///
    /// # Errors
    /// `config_invalid` for a number that is not from 0 to 100.
    pub fn hops(count: i64) -> Result<Self> {
        match u8::try_from(count) {
            Ok(hops) if hops <= MOST_HOPS => Ok(Self { hops: hops.into(), ..Self::default() }),
            _ => Err(Self::no_hops(&count.to_string())),
        }
    }

    /// The error for a value that is no number of hops, as the bindings show it.
    #[doc(hidden)]
    #[must_use]
    pub fn no_hops(shown: &str) -> Error {
        Error::new(
            ErrorKind::ConfigInvalid,
            format!(
                "{shown} is not a number of trusted proxies: give a whole number from 0 to {MOST_HOPS}, which counts \
                 the proxies between the clients and this server"
            ),
        )
    }

    fn contains(&self, client: &Client) -> bool {
        match client {
            Client::Address(address) => self.networks.iter().any(|network| network.contains(address)),
            Client::Unix => self.unix,
            Client::Unknown => false,
        }
    }

    /// True if no proxy is trusted, so that only the peer counts.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.networks.is_empty() && !self.unix && self.hops == 0
    }
}

/// Reads a network as people write it.
///
/// # Errors
/// `config_invalid` for another text, and for a network of all addresses.
fn network(text: &str) -> Result<IpNet> {
    let shown: String = text.chars().take(80).collect();
    let network = parsed(text).ok_or_else(|| {
        Error::new(
            ErrorKind::ConfigInvalid,
            format!(
                "{shown:?} is not a trusted proxy: write an address (10.0.0.7), a network (10.0.0.0/8, fd00::/8), \
                 loopback, linklocal, uniquelocal or unix"
            ),
        )
    })?;
    if network.prefix_len() == 0 {
        return Err(Error::new(
            ErrorKind::ConfigInvalid,
            format!(
                "{shown:?} trusts every address: anyone could choose the address they are limited by. Name your \
                 proxies; or write \"{ANYONE}\" if only proxies can reach this server"
            ),
        ));
    }
    Ok(network)
}

/// An address is a network of one. A network that is mapped from IPv4 is one of IPv4, because addresses are compared as IPv4.
///
/// The standard library reads the address, because `ipnet` accepts `010.0.0.0`, which some programs read as 8.0.0.0 and others as
/// 10.0.0.0.
fn parsed(text: &str) -> Option<IpNet> {
    let (address, bits) = text.split_once('/').map_or((text, None), |(address, bits)| (address, Some(bits)));
    let address = address.parse::<IpAddr>().ok()?;
    let network = match bits {
        None => IpNet::from(address),
        Some(bits) if bits.bytes().all(|digit| digit.is_ascii_digit()) => {
            IpNet::new(address, bits.parse().ok()?).ok()?
        }
        Some(_) => return None,
    };
    match (network.addr(), network.prefix_len().checked_sub(96)) {
        (IpAddr::V6(address), Some(prefix)) if address.to_ipv4_mapped().is_some() => {
            IpNet::new(address.to_canonical(), prefix).ok().map(|network| network.trunc())
        }
        _ => Some(network.trunc()),
    }
}

/// The other end of a connection, as the server reports it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Peer<'a> {
    /// Its address. An empty text is no address.
    Address(&'a str),
    /// The server listens on a Unix domain socket, and the peers there have no address.
    Unix,
    /// The server listens on an address and does not know its peer, for example because the connection was reset.
    Missing,
}

/// The sender of a request, as far as the server and trusted proxies know it.
enum Client {
    Address(IpAddr),
    Unix,
    Unknown,
}

impl Client {
    fn of(peer: Peer<'_>) -> Result<Self> {
        match peer {
            Peer::Missing | Peer::Address("") => Err(Error::new(
                ErrorKind::KeyInvalid,
                "the server does not know the address of this request's client, and does not say that it listens on a \
                 Unix domain socket: the connection was reset, or the server reports no addresses. Give a key function \
                 that needs no address, or a server that reports them",
            )),
            Peer::Unix => Ok(Self::Unix),
            Peer::Address(text) => Ok(address(text.as_bytes()).map_or(Self::Unknown, Self::Address)),
        }
    }
}

/// Makes the key `client_ip`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientIp {
    trusted: Trusted,
    ipv6_prefix: u8,
}

impl Default for ClientIp {
    fn default() -> Self {
        Self { trusted: Trusted::default(), ipv6_prefix: DEFAULT_IPV6_PREFIX }
    }
}

impl ClientIp {
    /// Trusts these proxies, and counts all IPv6 addresses that begin with the same `ipv6_prefix` bits as one client.
    ///
    /// # Errors
    /// `config_invalid` when the prefix is not from 1 to 128.
    pub fn new(trusted: Trusted, ipv6_prefix: u8) -> Result<Self> {
        if !(1..=128).contains(&ipv6_prefix) {
            return Err(Error::new(
                ErrorKind::ConfigInvalid,
                format!(
                    "{} {ipv6_prefix} is out of range: it must be from 1 to 128",
                    crate::error::named("ipv6_prefix")
                ),
            ));
        }
        Ok(Self { trusted, ipv6_prefix })
    }

    /// True if `X-Forwarded-For` matters at all.
    #[must_use]
    pub fn reads_forwarded(&self) -> bool {
        !self.trusted.is_empty()
    }

    /// Returns the key of a request, from the peer that the server knows and the lines of `X-Forwarded-For` in their order.
    ///
    /// The key is the IPv4 address, or the network of the IPv6 address, such as `2001:db8::/64`. If an IPv6 address carries an IPv4
    /// address, the part that identifies the client counts:
    ///
    /// | addresses | the key |
    /// |---|---|
    /// | NAT64 (`64:ff9b::/96`, `64:ff9b:1::/48` with the IPv4 address at the end), mapped (`::ffff:0:0/96`), translated (`::ffff:0:0:0/96`), compatible (`::/96`) | the IPv4 address in it |
    /// | NAT64 (`64:ff9b:1::/48`) with the IPv4 address elsewhere | the whole address, because the translator makes one for each client |
    /// | Teredo (`2001::/32`) | the IPv4 address of the client's router, which is written inverted |
    /// | 6to4 (`2002::/16`) | its /48, which is one site, for any `ipv6_prefix` |
    /// | ISATAP (`…:0:5efe:a.b.c.d`) | as any other, because the client chooses that half of its address |
    ///
    /// A proxy is trusted by its address as it is. Only a mapped address counts as IPv4 there.
    ///
    /// The key is `unix` for a peer on a Unix domain socket, and `unknown` if the server gives a text that is no address. An entry
    /// that is no address ends the search among networks, because no trusted proxy appended the entries on its left.
    ///
    /// # Errors
    /// `key_invalid` for a peer that is missing.
    pub fn key<T: AsRef<[u8]>>(&self, peer: Peer<'_>, forwarded: &[T]) -> Result<String> {
        let mut client = Client::of(peer)?;
        // A line of blanks has no entry. An empty entry among others is an entry that is no address.
        let lines = forwarded.iter().map(AsRef::as_ref).filter(|line| !line.trim_ascii().is_empty());
        for (hop, entry) in lines.rev().flat_map(|line| line.rsplit(|byte| *byte == b',')).enumerate() {
            let within_hops = hop < self.trusted.hops;
            if !within_hops && !self.trusted.contains(&client) {
                break;
            }
            match address(entry.trim_ascii()) {
                Some(address) => client = Client::Address(address),
                None if within_hops => {}
                None => break,
            }
        }
        Ok(self.shown(&client))
    }

    fn shown(&self, client: &Client) -> String {
        let network = |address: Ipv6Addr, prefix: u8| match prefix {
            128 => address.to_string(),
            _ => Ipv6Net::new(address, prefix)
                .map_or_else(|_| address.to_string(), |network| network.trunc().to_string()),
        };
        match client {
            Client::Address(IpAddr::V4(address)) => address.to_string(),
            Client::Address(IpAddr::V6(address)) => match identity_of(*address) {
                Identity::Ipv4(address) => address.to_string(),
                Identity::Network(prefix) => network(*address, prefix),
                Identity::Usual => network(*address, self.ipv6_prefix),
            },
            Client::Unix => UNIX.to_owned(),
            Client::Unknown => UNKNOWN.to_owned(),
        }
    }
}

/// An address, perhaps with a port, in brackets or with a zone. An IPv4-mapped IPv6 address is an IPv4 address.
fn address(text: &[u8]) -> Option<IpAddr> {
    let text = std::str::from_utf8(text).ok()?;
    if let Some(inner) = text.strip_prefix('[') {
        let (address, port) = inner.split_once(']')?;
        let fits = port.is_empty() || port.strip_prefix(':').is_some_and(is_port);
        return if fits { v6(address) } else { None };
    }
    match text.split_once(':') {
        None => text.parse().ok().map(IpAddr::V4),
        Some((address, port)) if is_port(port) => address.parse().ok().map(IpAddr::V4),
        Some(_) => v6(text),
    }
}

fn v6(text: &str) -> Option<IpAddr> {
    // A zone names an interface of this machine and is no part of the client's address.
    let bare = text.split_once('%').map_or(text, |(address, _)| address);
    bare.parse::<Ipv6Addr>().ok().map(|address| IpAddr::V6(address).to_canonical())
}

fn is_port(text: &str) -> bool {
    // `parse` alone would accept a sign.
    text.bytes().all(|byte| byte.is_ascii_digit()) && text.parse::<u16>().is_ok()
}

/// The part of an address that identifies its client.
#[derive(Debug, PartialEq, Eq)]
enum Identity {
    /// This IPv4 address.
    Ipv4(Ipv4Addr),
    /// That many of its first bits.
    Network(u8),
    /// Its first bits, as many as the caller counts for one client.
    Usual,
}

/// The part that identifies the client, of an address that may carry an IPv4 address. Unrelated clients share the first 64 bits of such
/// an address, or one client has many of them.
fn identity_of(address: Ipv6Addr) -> Identity {
    let bits = u128::from(address);
    let last = Ipv4Addr::from(bits as u32);
    match address.segments() {
        // NAT64, RFC 6052. A mapped address is an IPv4 address before it comes here.
        [0x64, 0xff9b, 0, 0, 0, 0, _, _] => Identity::Ipv4(last),
        [0x64, 0xff9b, 1, _, u, _, _, _] if u < 0x100 => local_nat64(last),
        // SIIT, RFC 2765.
        [0, 0, 0, 0, 0xffff, 0, _, _] => Identity::Ipv4(last),
        // RFC 4291. An address that begins with 0 is no IPv4 address of a host, because `::` and `::1` are separate addresses.
        [0, 0, 0, 0, 0, 0, _, _] if last.octets()[0] != 0 => Identity::Ipv4(last),
        // Teredo, RFC 4380. The bits are inverted, so that no router on the way translates them.
        [0x2001, 0, ..] => Identity::Ipv4(Ipv4Addr::from(!(bits as u32))),
        // 6to4, RFC 3056. The site of one IPv4 address.
        [0x2002, ..] => Identity::Network(48),
        // ISATAP, RFC 5214, is here too: a host chooses the second half of its address, so it may not count.
        _ => Identity::Usual,
    }
}

/// NAT64 with a prefix of the network itself, RFC 8215. RFC 6052 allows several places for the IPv4 address. At the end of the address it
/// can be read. If the address ends with zeros, only the translator knows the place, and the whole address counts.
fn local_nat64(last: Ipv4Addr) -> Identity {
    match last.octets() {
        [_, 0, 0, 0] => Identity::Network(128),
        _ => Identity::Ipv4(last),
    }
}
