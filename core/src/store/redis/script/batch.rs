//! Encodes requests as one call of the script. `lua/head.lua` has the format.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use once_cell::race::OnceBox;
use redis::Value;
use smallvec::{SmallVec, smallvec};

use super::request::{Request, companion};
use super::{command, instruction, script, script_over_slots};
use crate::algorithm::MAX_SAFE_INTEGER;
use crate::store::request::Operation;
use crate::store::stored_key::StoredKey;

/// Bytes of the first argument before the first instruction.
const HEAD: usize = 18;

/// The most bytes of a reply besides its items, and of an error.
const MAX_REPLY_FRAME: usize = 64 * 1_024;

/// How many of the newest instructions a request is compared with. A duplicate instruction costs bytes; a search of all
/// would cost time for every request.
const COMPARED_INSTRUCTIONS: usize = 8;

/// The number of the next call. Processes begin at different numbers, so that a reply that a proxy gives to another process
/// is not taken for its own.
fn next_number() -> u32 {
    static NEXT: OnceBox<AtomicU32> = OnceBox::new();
    let next = NEXT.get_or_init(|| Box::new(AtomicU32::new(RandomState::new().hash_one(()) as u32)));
    next.fetch_add(1, Ordering::Relaxed)
}

/// How the requests of one script call depend on each other. The script reads the number: see `lua/head.lua`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Grouping {
    /// Each request is decided alone.
    Independent,
    /// One refusal refuses all of them.
    AllOrNothing,
    /// The script says whether all would be admitted and writes nothing.
    DryRun,
    /// All are refused. The script does what a refusal does, to the requests that a limit refuses and to all journals.
    RecordRefusals,
}

/// How the entries of a call depend on each other, as the script knows it, and the calls that a loop for checks serves.
pub(super) const GROUPINGS: [(&str, u8); 5] = [
    ("INDEPENDENT", Grouping::Independent as u8),
    ("ALL_OR_NOTHING", Grouping::AllOrNothing as u8),
    ("DRY_RUN", Grouping::DryRun as u8),
    ("RECORD_REFUSALS", Grouping::RecordRefusals as u8),
    ("CHECKS", CHECKS),
];
const CHECKS: u8 = 4;

/// A request in the order of the script.
#[derive(Debug, Clone, Copy)]
pub(super) struct Member {
    /// Its index in the requests.
    pub(super) request: u16,
    /// The index of its instruction.
    instruction: u16,
}

/// The requests of a batch. Most batches of blocking callers have one.
pub(crate) type Requests = SmallVec<[Request; 1]>;

/// The requests of one key.
type Members = SmallVec<[Member; 2]>;

/// Requests that are sent as one call.
#[derive(Debug)]
pub(crate) struct Batch {
    /// Names the call. Its reply says the number.
    number: u32,
    prefix: Arc<str>,
    now: Option<u64>,
    grouping: Grouping,
    requests: Requests,
    /// The distinct instructions, each as the index of a request that has it.
    instructions: SmallVec<[u16; 1]>,
    /// For each key, in the order of their first request, its requests.
    keys: SmallVec<[Members; 1]>,
    /// The time of a server that has said it because it needs other edges of a calendar.
    server_time: Option<u64>,
    /// Whether its keys have several slots. Then none of them has companions.
    over_slots: bool,
}

impl Batch {
    /// `now` is the time to decide by, `None` the server's.
    pub(crate) fn new(prefix: Arc<str>, now: Option<u64>, grouping: Grouping, requests: Requests) -> Self {
        let (instructions, keys) = match &requests[..] {
            [_] => (smallvec![0], smallvec![smallvec![Member { request: 0, instruction: 0 }]]),
            several => arranged(several),
        };
        let number = next_number();
        Self { number, prefix, now, grouping, requests, instructions, keys, server_time: None, over_slots: false }
    }

    /// These requests for keys of several slots of a cluster, without companions.
    pub(crate) fn over_slots(self) -> Self {
        Self { over_slots: true, ..self }
    }

    /// Whether its keys are in several slots of a cluster.
    pub(crate) const fn is_over_slots(&self) -> bool {
        self.over_slots
    }

    /// What tells its reply from those of other batches.
    pub(crate) const fn number(&self) -> u32 {
        self.number
    }

    /// The time of the server that refused this call because its time is not among the edges of calendars that it was handed. Nothing of it
    /// ran.
    pub(crate) fn other_time(&self, reply: &Value) -> Option<u64> {
        let Value::ServerError(error) = reply else { return None };
        let mut words = error.details().filter(|_| error.code() == "TIDEGATE")?.split(' ');
        let is_refusal = words.next()? == "edges" && self.now.is_none() && self.server_time.is_none();
        let time = words.next()?.parse().ok().filter(|time| *time <= MAX_SAFE_INTEGER);
        let is_of_call = words.next()?.parse() == Ok(self.number);
        time.filter(|_| is_refusal && is_of_call)
    }

    /// Hands the edges around that time when it is written again; returns whether there is one. Calendars remember it.
    pub(crate) fn go_by(&mut self, time: Option<u64>) -> bool {
        self.server_time = self.server_time.or(time);
        time.is_some()
    }

    pub(crate) const fn now(&self) -> Option<u64> {
        self.now
    }

    pub(crate) const fn grouping(&self) -> Grouping {
        self.grouping
    }

    /// In the order in which they were given.
    pub(crate) fn requests(&self) -> &[Request] {
        &self.requests
    }

    /// Its requests, to be sent another way.
    pub(crate) fn into_requests(self) -> Requests {
        self.requests
    }

    /// The requests in the order of the script.
    pub(super) fn members(&self) -> impl Iterator<Item = Member> + '_ {
        self.keys.iter().flatten().copied()
    }

    /// Whether every key has one request, and all have the same instruction.
    fn is_uniform(&self) -> bool {
        self.instructions.len() == 1 && self.keys.len() == self.requests.len()
    }

    /// Whether a loop of `lua/check.lua` can serve the call.
    pub(super) fn is_of_checks(&self) -> bool {
        let request = &self.requests[0];
        let plain_check = matches!(request.operation, Operation::Check { hold: 0, .. });
        self.is_uniform()
            && self.grouping == Grouping::Independent
            && plain_check
            && request.plan.stored_override().is_empty()
            && (request.operation.amounts().is_none() || request.only_units().is_some())
            && !request.remembers_refusals()
            && request.plan.learning.is_none()
            && request.plan.stored.has_loop
    }

    /// The most bytes that a reply to the call has.
    pub(crate) fn max_reply(&self) -> usize {
        self.requests.iter().map(Request::max_item).fold(MAX_REPLY_FRAME, usize::saturating_add)
    }

    /// Writes the script call: by the script's digest, or `in_full` for a server that does not know it, and after ASKING where
    /// another node sent it there. Says how many commands that are.
    pub(crate) fn write(&self, asking: bool, in_full: bool, out: &mut Vec<u8>) -> usize {
        if asking {
            command::begin(out, 1);
            command::word(out, b"ASKING");
        }
        let has_companions = self.requests.iter().any(|request| request.plan.stored.has_companions);
        let stride = if has_companions { 3 } else { 1 };
        let (names, program) = (self.keys.len() * stride, self.program());
        out.reserve(self.max_command(names));
        let script = if self.over_slots { script_over_slots() } else { script() };
        let verb: [&[u8]; 2] =
            if in_full { [b"EVAL", script.source.as_bytes()] } else { [b"EVALSHA", script.digest.as_bytes()] };
        let words = names + usize::from(!program.is_empty()) + self.instructions.len();
        command::begin(out, verb.len() + 1 + words + usize::from(self.over_slots));
        verb.iter().for_each(|word| command::word(out, word));
        command::number(out, if self.over_slots { 1 } else { names });
        for (index, members) in self.keys.iter().enumerate() {
            if self.over_slots && index == 1 {
                command::number(out, names);
            }
            let request = &self.requests[usize::from(members[0].request)];
            command::word(out, request.redis_key.as_bytes());
            if has_companions {
                command::word(out, &companion(request.slot_name(), &self.prefix, b'l'));
                command::word(out, &companion(request.slot_name(), &self.prefix, b'j'));
            }
        }
        let mut instructions = self.instructions.iter().map(|request| &self.requests[usize::from(*request)]);
        if let Some(first) = instructions.next() {
            command::begin_word(out, HEAD + instruction::size(first));
            self.write_head(stride as u8, out);
            instruction::write(first, self.now.or(self.server_time), out);
            command::end_word(out);
        }
        if !program.is_empty() {
            command::word(out, &program);
        }
        for other in instructions {
            command::begin_word(out, instruction::size(other));
            instruction::write(other, self.now.or(self.server_time), out);
            command::end_word(out);
        }
        1 + usize::from(asking)
    }

    /// About the most bytes that a call of a few instructions has, so that its buffer grows once.
    fn max_command(&self, names: usize) -> usize {
        let first = self.requests.first();
        let (name, instruction) =
            first.map_or((0, 0), |first| (first.redis_key.as_bytes().len(), instruction::size(first)));
        128 + names * (name + 16) + self.instructions.len().min(COMPARED_INSTRUCTIONS) * (instruction + 16)
    }

    fn write_head(&self, stride: u8, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.now.map_or(-1.0, |now| now as f64).to_le_bytes());
        let grouping = if self.is_of_checks() { CHECKS } else { self.grouping as u8 };
        out.extend_from_slice(&[stride, grouping]);
        out.extend_from_slice(&(self.instructions.len() as u16).to_le_bytes());
        out.extend_from_slice(&(self.keys.len() as u16).to_le_bytes());
        out.extend_from_slice(&self.number.to_le_bytes());
    }

    /// For each key the number of its requests and their instructions; empty for a uniform batch.
    fn program(&self) -> Vec<u8> {
        if self.is_uniform() {
            return Vec::new();
        }
        let mut program = Vec::with_capacity(2 * (self.keys.len() + self.requests.len()));
        for members in &self.keys {
            program.extend_from_slice(&(members.len() as u16).to_le_bytes());
            for member in members {
                program.extend_from_slice(&(member.instruction + 1).to_le_bytes());
            }
        }
        program
    }
}

/// The distinct instructions of requests, and the requests of each key.
fn arranged(requests: &[Request]) -> (SmallVec<[u16; 1]>, SmallVec<[Members; 1]>) {
    let (mut instructions, mut keys) = (SmallVec::<[u16; 1]>::new(), SmallVec::<[Members; 1]>::new());
    keys.reserve(requests.len());
    let mut known: HashMap<&StoredKey, usize, foldhash::fast::RandomState> = HashMap::default();
    for (index, request) in requests.iter().enumerate() {
        let is_same = |other: &u16| {
            let other = &requests[usize::from(*other)];
            Arc::ptr_eq(&other.plan, &request.plan) && other.operation == request.operation
        };
        let mut newest = instructions.iter().enumerate().rev().take(COMPARED_INSTRUCTIONS);
        let instruction = newest.find(|(_, other)| is_same(other)).map(|(at, _)| at);
        let instruction = instruction.unwrap_or_else(|| {
            instructions.push(index as u16);
            instructions.len() - 1
        });
        let key = *known.entry(&request.redis_key).or_insert_with(|| {
            keys.push(Members::new());
            keys.len() - 1
        });
        keys[key].push(Member { request: index as u16, instruction: instruction as u16 });
    }
    (instructions, keys)
}
