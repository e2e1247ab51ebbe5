//! Reads the replies to the questions of `discovery.rs` about the servers and their slots. Anyone may have written
//! them, so every number and every name is checked.

use std::sync::Arc;

use redis::Value;

use super::failure::{self, Failure};
use super::handshake::text;
use super::topology::{SLOTS, Shard, Topology};
use crate::error::{Error, ErrorKind, visible};
use crate::store::url::Address;

/// The most names of primaries that a message shows.
const MAX_SHOWN: usize = 20;

/// The longest name of a host in DNS has 253 bytes.
const MAX_HOST: usize = 255;

/// The address that a server at `here` names. One that does not know its name leaves out the host and means the host it
/// was reached at. `None` for an address that no server can have, and for an invalid name, since messages show it.
pub(super) fn address_of(host: &str, port: i64, here: &Address) -> Option<Address> {
    let port = u16::try_from(port).ok().filter(|port| *port > 0)?;
    let host = match here {
        _ if !matches!(host, "" | "?") => host.into(),
        Address::Tcp(host, _) => Arc::clone(host),
        Address::Unix(_) => return None,
    };
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b".-_:%".contains(&byte);
    (host.len() <= MAX_HOST && host.bytes().all(is_name)).then_some(Address::Tcp(host, port))
}

/// The reply to CLUSTER SLOTS.
pub(super) fn cluster_topology(reply: &Value, here: &Address) -> Result<Topology, Failure> {
    let malformed = |what: &str| {
        Failure::of_server(Error::new(ErrorKind::StoreRejected, format!("{here} sent no list of slots: {what}")))
    };
    let Value::Array(ranges) = reply else { return Err(malformed("it is not a list")) };
    let node = |value: &Value| match value {
        Value::Array(items) => match &items[..] {
            [host, Value::Int(port), ..] => address_of(text(host).unwrap_or_default(), *port, here),
            _ => None,
        },
        _ => None,
    };
    if ranges.len() > SLOTS {
        return Err(malformed("it has more ranges than a cluster has slots"));
    }
    let mut shards = Vec::with_capacity(ranges.len());
    for range in ranges {
        let Value::Array(items) = range else { return Err(malformed("a range is not a list")) };
        let [Value::Int(first), Value::Int(last), primary, replicas @ ..] = &items[..] else {
            return Err(malformed("a range has no slots or no node"));
        };
        let slots = slot(*first).zip(slot(*last)).filter(|(first, last)| first <= last).ok_or_else(|| {
            malformed(&format!("it has the slots {first} to {last}, and a cluster has those from 0 to {}", SLOTS - 1))
        })?;
        let primary = node(primary).ok_or_else(|| {
            malformed(&format!("the node of the slots {first} to {last} has no host and port that can be used"))
        })?;
        let shard = Shard { primary, replicas: replicas.iter().filter_map(node).collect() };
        shards.push((slots.0..=slots.1, shard));
    }
    if shards.is_empty() {
        return Err(Failure::of_server(Error::new(
            ErrorKind::StoreUnavailable,
            format!("{here} is a node of a cluster without slots: it has not been put together yet"),
        )));
    }
    Ok(Topology::of_slots(shards))
}

fn slot(number: i64) -> Option<u16> {
    u16::try_from(number).ok().filter(|slot| usize::from(*slot) < SLOTS)
}

/// A field of a sentinel's flat list.
fn field<'a>(items: &'a Value, name: &str) -> Option<&'a str> {
    match items {
        Value::Array(items) => {
            items.chunks_exact(2).find(|pair| text(&pair[0]) == Some(name)).and_then(|pair| text(&pair[1]))
        }
        Value::Map(pairs) => pairs.iter().find(|(key, _)| text(key) == Some(name)).and_then(|(_, value)| text(value)),
        _ => None,
    }
}

fn listed(items: &Value, here: &Address) -> Option<Address> {
    address_of(field(items, "ip")?, field(items, "port")?.parse().ok()?, here)
}

/// Reads the replies to SENTINEL MASTER, GET-MASTER-ADDR-BY-NAME, REPLICAS and MASTERS. Returns the epoch of the last
/// failover, and the servers since then. Between the promotion of a replica and the end of the failover, MASTER shows
/// the new epoch with the old address. Only GET-MASTER-ADDR-BY-NAME returns the new address then.
pub(super) fn sentinel_topology(replies: &[Value], name: &str, here: &Address) -> Result<(u64, Topology), Failure> {
    let [primary, address, replicas, all] = replies else {
        return Err(Failure::of_server(failure::no_answer(&here.to_string())));
    };
    let Value::Array(address) = address else {
        let names: Vec<&str> = match all {
            Value::Array(all) => all.iter().filter_map(|items| field(items, "name")).take(MAX_SHOWN).collect(),
            _ => Vec::new(),
        };
        let names = if names.is_empty() { "none".to_owned() } else { visible(&names.join(", ")).into_owned() };
        return Err(Failure::of_server(Error::config(format!(
            "the sentinel {here} knows no primary called {name:?}: it knows {names}"
        ))));
    };
    let named = match &address[..] {
        [host, port] => text(host).zip(text(port).and_then(|port| port.parse().ok())),
        _ => None,
    };
    let address = named.and_then(|(host, port)| address_of(host, port, here)).ok_or_else(|| {
        let message = format!("the sentinel {here} names a primary without a host and port that can be used");
        Failure::of_server(Error::new(ErrorKind::StoreRejected, message))
    })?;
    let epoch = field(primary, "config-epoch").and_then(|epoch| epoch.parse().ok()).unwrap_or(0);
    let healthy = |items: &&Value| !field(items, "flags").unwrap_or_default().contains("down");
    let replicas = match replicas {
        Value::Array(replicas) => replicas.iter().filter(healthy).filter_map(|items| listed(items, here)).collect(),
        _ => Vec::new(),
    };
    Ok((epoch, Topology::of_one(Shard { primary: address, replicas })))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(items: &[&str]) -> Value {
        Value::Array(items.iter().map(|item| Value::BulkString(item.as_bytes().to_vec())).collect())
    }

    fn ranges(ranges: &[(i64, i64, &str, i64)]) -> Value {
        let node = |host: &str, port| Value::Array(vec![Value::BulkString(host.as_bytes().to_vec()), Value::Int(port)]);
        let range = |(first, last, host, port): &(i64, i64, &str, i64)| {
            Value::Array(vec![Value::Int(*first), Value::Int(*last), node(host, *port)])
        };
        Value::Array(ranges.iter().map(range).collect())
    }

    #[test]
    fn slots_that_no_cluster_has_are_no_topology() {
        let here = Address::Tcp("10.0.0.9".into(), 7_000);
        let find = |list: &[(i64, i64, &str, i64)]| cluster_topology(&ranges(list), &here);
        assert!(find(&[(0, 99, "a", 1), (100, 16_383, "", 65_535)]).is_ok());
        for (first, last) in [(100, 50), (99_999, 5), (-5, 10), (0, 16_384), (i64::MIN, i64::MAX), (5, i64::MAX)] {
            let error = find(&[(0, 3, "a", 1), (first, last, "a", 1)]).expect_err("a lie").error;
            assert!(error.message().contains(&format!("slots {first} to {last}")), "{error}");
        }
        for (host, port) in
            [("a", 0), ("a", -1), ("a", 65_536), ("a\x1b[2J", 1), ("a\nb", 1), ("a b", 1), (&"h".repeat(256), 1)]
        {
            let error = find(&[(0, 3, host, port)]).expect_err("a lie").error;
            assert!(!error.message().contains(['\x1b', '\n']), "{error:?}");
        }
        let too_many: Vec<_> = (0..16_385).map(|_| (1, 1, "a", 1)).collect();
        assert!(find(&too_many).is_err());
    }

    #[test]
    fn during_a_failover_the_primary_is_the_promoted_replica() {
        let here = Address::Tcp("10.0.0.9".into(), 26_379);
        let state = |ip: &str, flags: &str| {
            texts(&["name", "m", "ip", ip, "port", "6379", "flags", flags, "config-epoch", "7"])
        };
        let replies = [
            state("10.0.0.1", "reconf_slaves"),
            texts(&["10.0.0.2", "6379"]),
            Value::Array(vec![state("10.0.0.2", "slave"), state("10.0.0.3", "slave,s_down")]),
            Value::Array(vec![state("10.0.0.1", "master")]),
        ];
        let (epoch, found) = sentinel_topology(&replies, "m", &here).expect("a topology");
        let promoted = Address::Tcp("10.0.0.2".into(), 6_379);
        let [shard] = found.shards() else { panic!("one shard") };
        assert_eq!((epoch, &shard.primary, &shard.replicas), (7, &promoted, &vec![promoted.clone()]));
        for [host, port] in [["10.0.0.2", "0"], ["10.0.0.2", "-1"], ["10.0.0.2", "65536"], ["10\x1b[2J", "1"], ["", ""]]
        {
            let mut lie = replies.clone();
            lie[1] = texts(&[host, port]);
            let error = sentinel_topology(&lie, "m", &here).expect_err("a lie").error;
            assert!(error.message().contains("without a host and port"), "{error}");
        }
        let unknown = [Value::Nil, Value::Nil, Value::Nil, replies[3].clone()];
        let failure = sentinel_topology(&unknown, "other", &here).expect_err("no such primary");
        assert!(failure.error.message().ends_with("it knows m"), "{}", failure.error.message());
        let mut lie = unknown.clone();
        lie[3] = Value::Array(vec![texts(&["name", "\x1b[2J\nERROR root"])]);
        let error = sentinel_topology(&lie, "other", &here).expect_err("no such primary").error;
        assert!(!error.message().contains(['\x1b', '\n']), "{error:?}");
    }
}
