//! The peer of a request and its `X-Forwarded-For`: `trusted proxies \n IPv6 prefix \n peer \n a line of the field each`. The
//! client is the one that a simple model finds, and nothing that an untrusted sender wrote changes it.

use tidegate::http::{ClientIp, Peer, Trusted};

use super::forwarded_model::{Model, is_key};
use crate::fuzz::outcome::shape;

pub(crate) const WORDS: &[&str] = &[
    "10.0.0.1",
    "10.0.0.0/8",
    "198.51.100.1",
    "203.0.113.9:4711",
    "2001:db8::1",
    "[2001:db8::1]:443",
    "fd00::/8",
    "fe80::1%eth0",
    "::ffff:10.0.0.1",
    "64:ff9b::cb00:7109",
    "64:ff9b:1::1",
    "2001:0:c000:22d:8000:63bf:3fff:fdd2",
    "2002:cb00:7109::5",
    "::1",
    "::ffff:10.0.0.0/104",
    "::/96",
    "loopback",
    "linklocal",
    "uniquelocal",
    "unix",
    "unknown",
    "anyone",
    "hops 1",
    "hops 2",
    "hops 100",
    ",",
    ", ",
    "\n",
    " ",
    "\t",
    "[",
    "]",
    ":",
    "/",
    "%",
    "+80",
    "64",
    "128",
    "_hidden",
    "\u{ff}",
];

/// Texts that a sender may write before its own address.
const WRITTEN: [&str; 4] = ["6.6.6.6", "10.0.0.1, 6.6.6.6", "fd00::7,10.0.0.2", "garbage,"];

fn key(client: &ClientIp, peer: Peer<'_>, lines: &[Vec<u8>]) -> Option<String> {
    client.key(peer, lines).ok()
}

pub(crate) fn run(input: &[u8]) -> String {
    let mut parts = input.split(|byte| *byte == b'\n');
    let mut text = || String::from_utf8_lossy(parts.next().unwrap_or_default()).into_owned();
    let (proxies, prefix, peer) = (text(), text(), text());
    let lines: Vec<Vec<u8>> = parts.map(<[u8]>::to_vec).collect();
    let hops = proxies.strip_prefix("hops ").and_then(|count| count.trim().parse::<i64>().ok());
    let names = || proxies.split(',').map(str::trim).filter(|name| !name.is_empty());
    let trusted = match hops.map_or_else(|| Trusted::parse(names()), Trusted::hops) {
        Ok(trusted) => trusted,
        Err(error) => {
            assert_eq!(error.code(), "config_invalid");
            assert!(error.message().len() <= 600, "{error}");
            return shape(error.message());
        }
    };
    let prefix = prefix.trim().parse().unwrap_or(64);
    let client = match ClientIp::new(trusted, prefix) {
        Ok(client) => client,
        Err(error) => {
            assert!(!(1..=128).contains(&prefix), "{error}");
            return shape(error.message());
        }
    };
    let peer = match peer.as_str() {
        "unix" => Peer::Unix,
        "" => Peer::Missing,
        address => Peer::Address(address),
    };
    let Some(found) = key(&client, peer, &lines) else {
        assert_eq!(peer, Peer::Missing, "only a peer that is missing has no key");
        return "missing".to_owned();
    };
    assert!(is_key(&found, prefix), "{found:?} is no key");
    let model = match hops {
        Some(hops) => Model::of_hops(hops),
        None => Model::of_proxies(names()),
    };
    let expected = model.client(peer, &lines);
    assert_eq!(Some(found.as_str()), key(&client, expected.peer(), &[]).as_deref(), "the model finds {expected:?}");
    let decided = expected.is_decided();
    if decided {
        for written in WRITTEN {
            let mut forged = lines.clone();
            let first = forged.iter().position(|line| !line.trim_ascii().is_empty());
            match first {
                Some(first) => forged[first] = [written.as_bytes(), b",", &forged[first]].concat(),
                None => forged.push(written.as_bytes().to_vec()),
            }
            assert_eq!(key(&client, peer, &forged).as_ref(), Some(&found), "the client wrote {written:?}");
            let line_before = [&[written.as_bytes().to_vec()], &lines[..]].concat();
            assert_eq!(key(&client, peer, &line_before).as_ref(), Some(&found), "the client wrote a line {written:?}");
        }
    }
    let kind = match found.as_str() {
        "unix" | "unknown" => found.as_str(),
        key if key.contains(':') => "IPv6",
        _ => "IPv4",
    };
    format!("{kind} {} {decided} {}", hops.is_some(), expected.distance())
}
