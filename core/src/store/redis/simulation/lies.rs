//! Servers that lie, in any number and any name that they report, and in their replies to calls.

use redis::Value;

use crate::random::Random;

/// Lies for a name, or for a number in text.
const TEXTS: [&str; 14] = [
    "",
    "?",
    "0",
    "-1",
    "65536",
    "18446744073709551616",
    "10.0.0.0",
    "10.0.0.9",
    "\u{1b}[2J",
    "a\nb",
    "cluster",
    "sentinel",
    "master",
    "s_down",
];
const NUMBERS: [i64; 12] = [0, 1, -1, -5, 7_000, 16_383, 16_384, 65_535, 65_536, i64::MAX, i64::MIN, 1 << 53];

/// Replaces one field of a reply, or drops it, or repeats it.
pub(super) fn lie(value: &mut Value, random: &mut Random) {
    match value {
        Value::Array(items) if !items.is_empty() && random.chance(900) => {
            let index = random.below(items.len() as u64) as usize;
            match random.below(12) {
                0 => drop(items.remove(index)),
                1 => items.push(items[index].clone()),
                2 => items.swap(0, index),
                _ => lie(&mut items[index], random),
            }
        }
        Value::BulkString(_) if random.chance(900) => {
            *value = Value::BulkString(TEXTS[random.below(TEXTS.len() as u64) as usize].as_bytes().to_vec());
        }
        Value::Int(_) if random.chance(900) => {
            *value = Value::Int(NUMBERS[random.below(NUMBERS.len() as u64) as usize])
        }
        _ => {
            *value =
                [Value::Nil, Value::Int(-1), Value::Array(Vec::new()), Value::Okay][random.below(4) as usize].clone()
        }
    }
}

/// Several lies, or none.
pub(super) fn lie_much(value: &mut Value, random: &mut Random) {
    for _ in 0..random.below(6) {
        lie(value, random);
    }
}

/// The reply of a lying server to a call, in place of `reply`. `here` is its own address.
pub(super) fn lying_reply(mut reply: Vec<u8>, here: &str, random: &mut Random) -> Vec<u8> {
    let slot = ["0", "16383", "16384", "-1", "65536", "x", ""][random.below(7) as usize];
    let to = [here, "10.0.0.0:7000", "10.0.0.4:7000", "10.0.0.9:1", ":0", "a:-1", "a:65536", "\u{1b}[2J:1", ""];
    let to = to[random.below(to.len() as u64) as usize];
    match random.below(8) {
        0 | 1 => format!("-MOVED {slot} {to}\r\n").into_bytes(),
        2 | 3 => format!("-ASK {slot} {to}\r\n").into_bytes(),
        4 => {
            let errors = [
                "NOSCRIPT no",
                "TRYAGAIN",
                "LOADING",
                "READONLY",
                "CLUSTERDOWN",
                "BUSY",
                "OOM",
                "ERR \u{1b}]0;x\u{7}",
                "",
            ];
            format!("-{}\r\n", errors[random.below(errors.len() as u64) as usize]).into_bytes()
        }
        5 => reply,
        // Changes the seal at the end: the time and the refused requests.
        _ => {
            let seal = reply.len().saturating_sub(8 + random.below(16) as usize);
            if let Some(byte) = reply.get_mut(seal) {
                *byte = [0, 0x7f, 0x80, 0xf0, 0xff][random.below(5) as usize];
            }
            reply
        }
    }
}
