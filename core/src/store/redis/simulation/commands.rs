//! The input of a simulated server: commands, and the requests of a script call.

use std::ops::Range;

use crate::store::redis::script::is_for_several_slots;

/// The operation codes of the script: see `script`.
const CHECK: u8 = 1;
const PEEK: u8 = 2;
const REFUNDS: [u8; 2] = [4, 14];

/// Bytes before the first instruction.
const HEAD: usize = 18;
/// The grouping of a call that begins with checks for the loops, and the bytes of its program before the number of runs.
const CHECKS: u8 = 4;
const TIMES: usize = 16;

/// The effect of a request of a script call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Effect {
    Charge,
    Read,
    Refund,
}

/// A script call as a server understands it.
pub(super) struct ScriptCall {
    /// The number of the call.
    pub(super) number: [u8; 4],
    pub(super) in_full: bool,
    /// True if the names have several slots. Then only the first is declared.
    pub(super) over_slots: bool,
    pub(super) names: Vec<Vec<u8>>,
    /// True if one refusal refuses all.
    pub(super) all_or_nothing: bool,
    /// True if nothing is written.
    pub(super) dry_run: bool,
    /// The requests in the order of the answers, each as the index of a name and an effect.
    pub(super) requests: Vec<(usize, Effect)>,
}

/// A whole command. A script in full has tens of kilobytes, so its words are not copied.
pub(super) struct Command {
    bytes: Vec<u8>,
    words: Vec<Range<usize>>,
}

impl Command {
    pub(super) fn words(&self) -> Vec<&[u8]> {
        self.words.iter().map(|word| &self.bytes[word.clone()]).collect()
    }
}

/// Takes the next whole command off the front.
pub(super) fn take_command(bytes: &mut Vec<u8>) -> Option<Command> {
    let mut at = 0;
    let count = number(bytes, &mut at, b'*')?;
    let mut words = Vec::with_capacity(count);
    for _ in 0..count {
        let length = number(bytes, &mut at, b'$')?;
        bytes.get(at..at + length + 2)?;
        words.push(at..at + length);
        at += length + 2;
    }
    let rest = bytes.split_off(at);
    Some(Command { bytes: std::mem::replace(bytes, rest), words })
}

/// A line such as `*3`.
fn number(bytes: &[u8], at: &mut usize, kind: u8) -> Option<usize> {
    let line = bytes.get(*at..)?;
    let length = line.windows(2).position(|pair| pair == b"\r\n")?;
    assert_eq!(line[0], kind, "a client sends arrays of strings only");
    let digits = std::str::from_utf8(&line[1..length]).expect("digits");
    *at += length + 2;
    Some(digits.parse().expect("a number"))
}

impl ScriptCall {
    /// `words` are the words of EVAL or EVALSHA.
    pub(super) fn new(words: &[&[u8]]) -> Self {
        let number =
            |word: &[u8]| std::str::from_utf8(word).expect("digits").parse::<usize>().expect("a number of keys");
        let over_slots = is_for_several_slots(words[1]);
        let mut words = words.to_vec();
        if over_slots {
            assert_eq!(number(words[2]), 1, "a call over several slots declares one key");
            // The number of the keys stands behind the first.
            words[2] = words.remove(4);
        }
        let count = number(words[2]);
        let names = words[3..3 + count].iter().map(|name| name.to_vec()).collect();
        let (head, first) = words[3 + count].split_at(HEAD);
        let instructions = usize::from(u16::from_le_bytes([head[10], head[11]]));
        let others = words[4 + count..3 + count + instructions].iter().copied();
        let operations: Vec<u8> = std::iter::once(first).chain(others).map(|operation| operation[0]).collect();
        let effect = |index: usize| match operations[index] {
            PEEK => Effect::Read,
            code if REFUNDS.contains(&code) => Effect::Refund,
            code => {
                assert!(code == CHECK || code == 3, "no other operation is simulated: {code}");
                Effect::Charge
            }
        };
        let grouping = head[9];
        let mut requests = Vec::new();
        match words.get(3 + count + instructions) {
            None => requests.extend((0..count).map(|name| (name, effect(0)))),
            Some(program) => {
                // Times come before the runs of checks.
                let numbers = &program[if grouping == CHECKS { TIMES } else { 0 }..];
                let numbers = numbers.chunks_exact(2).map(|pair| usize::from(u16::from_le_bytes([pair[0], pair[1]])));
                let mut numbers = numbers.chain(std::iter::repeat(0));
                let mut next = || numbers.next().expect("zeros behind the last");
                let mut name = 0;
                for _ in 0..if grouping == CHECKS { next() } else { 0 } {
                    let (operation, per_key, keys) = (next() - 1, next(), next());
                    for _ in 0..keys {
                        requests.extend((0..per_key).map(|_| (name, effect(operation))));
                        name += 1;
                    }
                }
                for name in name..count {
                    requests.extend((0..next()).map(|_| (name, effect(next() - 1))));
                }
            }
        }
        Self {
            number: head[14..18].try_into().expect("a number"),
            in_full: words[0] == b"EVAL",
            over_slots,
            names,
            all_or_nothing: grouping == 1,
            dry_run: grouping == 2 || grouping == 3,
            requests,
        }
    }
}
