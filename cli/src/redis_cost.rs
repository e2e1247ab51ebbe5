//! The cost of a policy in Redis: the bytes of a key, and the calls.

use serde_json::{Value, json};
use tidegate::{Algorithm, Policy, host};
use tidegate_simulate::text::number;

/// Bytes of the usual prefix `tg`.
const PREFIX: usize = 2;
/// The most checks in one call.
const FOLDED: u32 = 256;

/// The bytes and calls that a policy costs a server.
pub(crate) struct RedisCost {
    /// Bytes of the value of a key that is hardly used, and of one that uses all its limits.
    pub(crate) value: (usize, usize),
    /// Bytes of a key with its name and its value, as `MEMORY USAGE` counts them.
    pub(crate) key: (usize, usize),
    /// The data that grows with each unit or attempt, in another key beside it.
    pub(crate) beside: Vec<String>,
}

impl RedisCost {
    pub(crate) fn of(policy: &Policy) -> Self {
        let value = host::stored_bytes(policy);
        let mut beside = Vec::new();
        if policy.limits().iter().any(|limit| limit.algorithm() == Algorithm::SlidingLog) {
            beside.push("14 to 24 bytes for each admitted check of a sliding-log".to_owned());
        }
        if policy.options().journal > 0 {
            beside.push(format!("the journal: up to {} attempts", number(policy.options().journal.into())));
        }
        Self { value, key: (memory_usage(value.0), memory_usage(value.1)), beside }
    }

    pub(crate) fn lines(&self) -> Vec<String> {
        let range = |(least, most): (usize, usize)| match least == most {
            true => format!("{} bytes", number(least as u64)),
            false => format!("{} to {} bytes", number(least as u64), number(most as u64)),
        };
        let mut lines =
            vec![format!("a key takes {} as MEMORY USAGE counts: a value of {}", range(self.key), range(self.value))];
        lines.extend(self.beside.iter().map(|what| format!("beside it {what}")));
        lines.push(format!(
            "a check is one script call, whatever the limits; up to {FOLDED} checks that wait at the same moment share one"
        ));
        lines
    }

    pub(crate) fn as_json(&self) -> Value {
        json!({
            "value_bytes": {"least": self.value.0, "most": self.value.1},
            "key_bytes": {"least": self.key.0, "most": self.key.1},
            "beside": self.beside,
            "script_calls_per_check": 1,
            "checks_per_call_at_most": FOLDED,
        })
    }
}

/// The bytes that Redis allocates for a key: an entry of its table, the name, and the value in its object.
fn memory_usage(value: usize) -> usize {
    const ENTRY: usize = 24;
    const OBJECT: usize = 16;
    /// The longest value that shares an allocation with its object.
    const EMBEDDED: usize = 44;
    let value = match value {
        0..=EMBEDDED => allocation(OBJECT + 3 + value + 1),
        _ => OBJECT + allocation(value + header(value) + 1),
    };
    ENTRY + name_bytes(PREFIX) + value
}

/// The bytes that Redis allocates for the name of a key under a prefix of `prefix` bytes.
pub(crate) fn name_bytes(prefix: usize) -> usize {
    let name = prefix + host::KEY_DIGEST;
    allocation(name + header(name) + 1)
}

/// The bytes before a text of this length.
const fn header(length: usize) -> usize {
    match length {
        0..32 => 1,
        32..256 => 3,
        _ => 5,
    }
}

/// The size class of jemalloc: multiples of 16 up to 128, then four classes between powers of two.
fn allocation(bytes: usize) -> usize {
    if bytes <= 128 {
        return bytes.next_multiple_of(16);
    }
    let step = bytes.next_power_of_two() / 8;
    bytes.next_multiple_of(step)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_of_one_limit_takes_what_was_measured() {
        // docs/adr/0002: 72 bytes with a value of up to 12 bytes, 88 with one of up to 28.
        assert_eq!([0, 12, 13, 28].map(memory_usage), [72, 72, 88, 88]);
        let cost = RedisCost::of(&Policy::parse("gcra 100/s burst 200").expect("a policy"));
        assert_eq!(cost.key, (72, 72));
        assert_eq!([129, 160, 161, 257].map(allocation), [160, 160, 192, 320]);
    }
}
