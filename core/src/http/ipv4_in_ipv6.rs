//! IPv6 addresses that carry an IPv4 address. Unrelated clients share their first 64 bits, or one client has many of them.

use std::net::{Ipv4Addr, Ipv6Addr};

/// What tells the client behind an address from all others.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Identity {
    /// This IPv4 address.
    Ipv4(Ipv4Addr),
    /// So many of its first bits.
    Network(u8),
    /// Its first bits, as many as the caller counts for one client.
    Usual,
}

pub(super) fn identity_of(address: Ipv6Addr) -> Identity {
    let bits = u128::from(address);
    let last = Ipv4Addr::from(bits as u32);
    match address.segments() {
        // NAT64, RFC 6052. A mapped address is an IPv4 address before it comes here.
        [0x64, 0xff9b, 0, 0, 0, 0, _, _] => Identity::Ipv4(last),
        [0x64, 0xff9b, 1, _, u, _, _, _] if u < 0x100 => local_nat64(last),
        // SIIT, RFC 2765.
        [0, 0, 0, 0, 0xffff, 0, _, _] => Identity::Ipv4(last),
        // RFC 4291. What begins with 0 is no IPv4 address of a host: `::` and `::1` are addresses of their own.
        [0, 0, 0, 0, 0, 0, _, _] if last.octets()[0] != 0 => Identity::Ipv4(last),
        // Teredo, RFC 4380: the bits are inverted, so that no router between translates them.
        [0x2001, 0, ..] => Identity::Ipv4(Ipv4Addr::from(!(bits as u32))),
        // 6to4, RFC 3056: the site of one IPv4 address.
        [0x2002, ..] => Identity::Network(48),
        // ISATAP, RFC 5214, is here too: a host chooses the second half of its address, so it may not count.
        _ => Identity::Usual,
    }
}

/// NAT64 with a prefix of the network's own, RFC 8215. RFC 6052 knows several places for the IPv4 address. At the end it is
/// known to be one; what ends with zeros has it at a place that only the translator knows, and counts as a whole.
fn local_nat64(last: Ipv4Addr) -> Identity {
    match last.octets() {
        [_, 0, 0, 0] => Identity::Network(128),
        _ => Identity::Ipv4(last),
    }
}
