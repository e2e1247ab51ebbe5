//! Deletes every key under a prefix. SCAN walks through each primary in small steps, so other calls need not wait.

use std::time::{Duration, Instant};

use redis::Value;

use super::io::{BlockingCalls, CommandConnection};
use super::protocol::{Target, no_answer};
use super::scan::{pattern_of_all, scanned_keys};
use crate::error::{Error, ErrorKind, Result};
use crate::store::stored_key::StoredKey;

/// Keys that one SCAN looks at.
const KEYS_PER_STEP: u32 = 500;
/// The most bytes of a reply. SCAN may also return long names of other programs that begin with the prefix.
const MAX_REPLY: usize = 16 << 20;
/// The most walks through all nodes of a cluster while keys move between them.
const MAX_ROUNDS: u32 = 5;

/// The commands that delete a key, the better one first. A user may lack the right to one of them.
const FORGETS: [&str; 2] = ["UNLINK", "DEL"];

/// Deletes every key under the prefix on every primary. Each step has the timeout of a call.
pub(super) fn clear_all(calls: &BlockingCalls, timeout: Duration) -> Result<()> {
    for _ in 0..MAX_ROUNDS {
        let topology = calls.topology(Instant::now() + timeout)?;
        let mut moved = false;
        for shard in topology.shards() {
            let connection = calls.open(&shard.primary, Target::Primary, Instant::now() + timeout)?;
            moved |= ServerWalk { connection, prefix: calls.prefix().as_bytes(), timeout, command: 0 }.run()?;
        }
        if !moved {
            return Ok(());
        }
        calls.doubt_topology();
    }
    let message = "keys moved from node to node while they were cleared, so some may be left: clear them again";
    Err(Error::new(ErrorKind::StoreUnavailable, message))
}

/// The walk through one server.
struct ServerWalk<'a> {
    connection: CommandConnection,
    prefix: &'a [u8],
    timeout: Duration,
    /// The index of the command in `FORGETS`.
    command: usize,
}

impl ServerWalk<'_> {
    /// Returns true if a key has moved to another node.
    fn run(mut self) -> Result<bool> {
        let pattern = pattern_of_all(self.prefix);
        let mut cursor = b"0".to_vec();
        let mut moved = false;
        loop {
            let mut scan = redis::cmd("SCAN");
            scan.arg(&cursor).arg("MATCH").arg(&pattern).arg("COUNT").arg(KEYS_PER_STEP);
            let reply = self.ask(&scan.get_packed_command(), 1)?.pop().unwrap_or(Value::Nil);
            let (next, keys) = match reply {
                Value::ServerError(error) => return Err(self.connection.refused(&error)),
                reply => scanned_keys(reply).ok_or_else(|| no_answer("SCAN"))?,
            };
            let ours: Vec<Vec<u8>> = keys.into_iter().filter(|key| is_ours(key, self.prefix)).collect();
            if !ours.is_empty() {
                moved |= self.forget(&ours)?;
            }
            if next == b"0" {
                return Ok(moved);
            }
            cursor = next;
        }
    }

    /// Sends one command for each key, because the keys of a cluster are in different slots.
    fn forget(&mut self, keys: &[Vec<u8>]) -> Result<bool> {
        let mut commands = Vec::new();
        for key in keys {
            redis::cmd(FORGETS[self.command]).arg(key).write_packed_command(&mut commands);
        }
        let mut moved = false;
        let mut refusal = None;
        for reply in self.ask(&commands, keys.len())? {
            if let Value::ServerError(error) = reply {
                match error.code() {
                    "MOVED" | "ASK" | "TRYAGAIN" => moved = true,
                    _ => refusal = Some(error),
                }
            }
        }
        match refusal {
            None => Ok(moved),
            Some(_) if self.command + 1 < FORGETS.len() => {
                self.command += 1;
                self.forget(keys)
            }
            Some(error) => Err(self.connection.refused(&error)),
        }
    }

    fn ask(&mut self, commands: &[u8], replies: usize) -> Result<Vec<Value>> {
        let replies = self.connection.run(commands, replies, MAX_REPLY, Instant::now() + self.timeout);
        let replies = replies.map_err(|failure| failure.error)?;
        Ok(replies.into_vec())
    }
}

/// True if a key has the form of a key under the prefix. Keys under a longer prefix that begins the same are longer.
fn is_ours(key: &[u8], prefix: &[u8]) -> bool {
    let is_name = |name: &[u8]| {
        name.strip_prefix(prefix)
            .is_some_and(|digest| digest.len() == StoredKey::DIGEST && !digest.iter().any(|byte| b"{}".contains(byte)))
    };
    let of_companion = || {
        let name = key.strip_prefix(prefix)?;
        let name =
            name.strip_prefix(b":l:{").or_else(|| name.strip_prefix(b":j:{")).or_else(|| name.strip_prefix(b":o:{"))?;
        name.strip_suffix(b"}")
    };
    is_name(key) || of_companion().is_some_and(is_name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_keys_of_the_prefix_are_ours() {
        assert!(is_ours(b"tg123456789012", b"tg") && is_ours(b"tg:l:{tg123456789012}", b"tg"));
        assert!(is_ours(b"tg:j:{tg123456789012}", b"tg"));
        for other in
            [&b"tgx123456789012"[..], b"tg12345678901", b"tg:l:{tgx123456789012}", b"tg:k:{tg123456789012}", b"tg"]
        {
            assert!(!is_ours(other, b"tg"), "{other:?}");
        }
    }
}
