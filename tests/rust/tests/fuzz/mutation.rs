//! Makes an input from another.

use tidegate_tests::random::Random;

/// The longest input that is made.
const LONGEST: usize = 2_048;

const BYTES: &[u8] = b"\0\x01\x7f\x80\xff\r\n\t 09-+:;,./@#?&%=$*\"'\\[]{}()<>|aZ";
const NUMBERS: &[&str] = &[
    "0",
    "1",
    "-1",
    "255",
    "256",
    "65535",
    "4294967296",
    "9007199254740991",
    "9007199254740992",
    "9223372036854775807",
    "18446744073709551616",
    "1e400",
    "0.5",
];

/// One to eight changes of an input, with parts of another.
pub(crate) fn mutated(random: &mut Random, input: &[u8], other: &[u8], words: &[&str]) -> Vec<u8> {
    let mut bytes = input.to_vec();
    for _ in 0..1 << random.below(4) {
        change(random, &mut bytes, other, words);
    }
    bytes.truncate(LONGEST);
    bytes
}

/// A position in a text of that length, or its end.
fn at(random: &mut Random, length: usize) -> usize {
    random.below(length as u64 + 1) as usize
}

/// A range of at most `most` bytes.
fn range(random: &mut Random, length: usize, most: u64) -> std::ops::Range<usize> {
    let from = at(random, length);
    from..(from + random.below(most) as usize + 1).min(length)
}

fn change(random: &mut Random, bytes: &mut Vec<u8>, other: &[u8], words: &[&str]) {
    let length = bytes.len();
    match random.below(11) {
        0 if length > 0 => bytes[random.below(length as u64) as usize] ^= 1 << random.below(8),
        1 if length > 0 => bytes[random.below(length as u64) as usize] = random.pick(BYTES),
        2 => bytes.insert(at(random, length), random.pick(BYTES)),
        3 => drop(bytes.drain(range(random, length, 4))),
        4 => drop(bytes.drain(range(random, length, 64))),
        5 => {
            let copy = bytes[range(random, length, 32)].to_vec();
            let to = at(random, length);
            bytes.splice(to..to, copy);
        }
        6 | 7 if !words.is_empty() => {
            let replaced = if random.one_in(2) { range(random, length, 8) } else { range(random, 0, 1) };
            bytes.splice(replaced, random.pick(words).bytes());
        }
        8 => {
            // A number becomes another one.
            let digits: Vec<usize> = (0..length).filter(|at| bytes[*at].is_ascii_digit()).collect();
            if let Some(from) = digits.get(at(random, digits.len())).copied() {
                let end = (from..length).find(|at| !bytes[*at].is_ascii_digit()).unwrap_or(length);
                bytes.splice(from..end, random.pick(NUMBERS).bytes());
            }
        }
        9 => {
            let part = other[range(random, other.len(), 64)].to_vec();
            let to = at(random, length);
            bytes.splice(to..to, part);
        }
        _ => {
            // The beginning of this one and the end of the other.
            bytes.truncate(at(random, length));
            bytes.extend_from_slice(&other[at(random, other.len())..]);
        }
    }
}
