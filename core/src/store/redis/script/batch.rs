//! Encodes requests as one call of the script. `lua/head.lua` has the format.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use once_cell::race::OnceBox;
use redis::Value;
use smallvec::SmallVec;

use super::arrangement::{Arrangement, Grouping, Member, Times};
use super::request::{Request, companion};
use super::{SCRIPT, command, instruction, script_over_slots};
use crate::algorithm::MAX_SAFE_INTEGER;

/// Bytes of the first argument before the first instruction.
const HEAD: usize = 18;

/// The most bytes of a reply besides its items, and of an error.
const MAX_REPLY_FRAME: usize = 64 * 1_024;

/// The number of the next call. Processes begin at different numbers, so that no process accepts a reply to another one
/// that a proxy passes to it.
fn next_number() -> u32 {
    static NEXT: OnceBox<AtomicU32> = OnceBox::new();
    let next = NEXT.get_or_init(|| Box::new(AtomicU32::new(RandomState::new().hash_one(()) as u32)));
    next.fetch_add(1, Ordering::Relaxed)
}

/// The names that the script has for groupings, and for calls that begin with checks for a loop.
#[cfg(feature = "bench")]
pub(super) const GROUPINGS: [(&str, u8); 5] = [
    ("INDEPENDENT", Grouping::Independent as u8),
    ("ALL_OR_NOTHING", Grouping::AllOrNothing as u8),
    ("DRY_RUN", Grouping::DryRun as u8),
    ("RECORD_REFUSALS", Grouping::RecordRefusals as u8),
    ("CHECKS", CHECKS),
];
const CHECKS: u8 = 4;

/// The requests of a batch. Most batches of blocking callers have one.
pub(crate) type Requests = SmallVec<[Request; 1]>;

/// Requests that are sent as one call.
#[derive(Debug)]
pub(crate) struct Batch {
    /// Identifies the call. Its reply carries the number.
    number: u32,
    prefix: Arc<str>,
    now: Option<u64>,
    grouping: Grouping,
    requests: Requests,
    arrangement: Arrangement,
    /// The time of a server that has asked for other edges of a calendar.
    server_time: Option<u64>,
    /// True if its keys have several slots. Then none of them has companions.
    over_slots: bool,
}

impl Batch {
    /// `now` is the time to decide by. `None` stands for the server's time.
    pub(crate) fn new(prefix: Arc<str>, now: Option<u64>, grouping: Grouping, requests: Requests) -> Self {
        let (number, arrangement) = (next_number(), Arrangement::new(grouping, &requests));
        Self { number, prefix, now, grouping, requests, arrangement, server_time: None, over_slots: false }
    }

    /// Marks the keys as keys of several slots of a cluster. They have no companions.
    pub(crate) fn over_slots(self) -> Self {
        Self { over_slots: true, ..self }
    }

    /// True if its keys are in several slots of a cluster.
    pub(crate) const fn is_over_slots(&self) -> bool {
        self.over_slots
    }

    /// The number that identifies the call. No other reply carries it.
    pub(crate) const fn number(&self) -> u32 {
        self.number
    }

    /// The server's time, if it refused this call because its time is not among the edges of calendars in the call. No
    /// part of the call ran.
    pub(crate) fn other_time(&self, reply: &Value) -> Option<u64> {
        let Value::ServerError(error) = reply else { return None };
        let mut words = error.details().filter(|_| error.code() == "TIDEGATE")?.split(' ');
        let is_refusal = words.next()? == "edges" && self.now.is_none() && self.server_time.is_none();
        let time = words.next()?.parse().ok().filter(|time| *time <= MAX_SAFE_INTEGER);
        let is_of_call = words.next()?.parse() == Ok(self.number);
        time.filter(|_| is_refusal && is_of_call)
    }

    /// From now on, writes the edges around this time, which calendars remember. Returns true if there is a time.
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

    /// The requests in their original order.
    pub(crate) fn requests(&self) -> &[Request] {
        &self.requests
    }

    /// Its requests, to be sent another way.
    pub(crate) fn into_requests(self) -> Requests {
        self.requests
    }

    /// The requests in the order of the script.
    pub(super) fn members(&self) -> impl Iterator<Item = Member> + '_ {
        self.arrangement.members()
    }

    /// True if the call begins with checks that a loop of `lua/check.lua` serves.
    pub(super) fn has_checks(&self) -> bool {
        self.arrangement.has_checks()
    }

    /// The most bytes of a reply to the call.
    pub(crate) fn max_reply(&self) -> usize {
        self.requests.iter().map(Request::max_item).fold(MAX_REPLY_FRAME, usize::saturating_add)
    }

    /// Writes the script call: by the script's digest, or `in_full` for a server that does not know it. `asking` writes
    /// ASKING first, for a call that another node sent there. Returns the number of commands.
    pub(crate) fn write(&self, asking: bool, in_full: bool, out: &mut Vec<u8>) -> usize {
        if asking {
            command::begin(out, 1);
            command::word(out, b"ASKING");
        }
        let has_companions = self.requests.iter().any(|request| request.plan.stored.has_companions);
        let (keys, instructions) = (self.arrangement.keys(), &self.arrangement.instructions);
        let stride = if has_companions { 3 } else { 1 };
        let names = keys.len() * stride;
        let is_uniform = self.arrangement.is_uniform();
        out.reserve(self.max_command(names));
        let script = if self.over_slots { script_over_slots() } else { &SCRIPT };
        let verb: [&[u8]; 2] =
            if in_full { [b"EVAL", script.source.as_bytes()] } else { [b"EVALSHA", script.digest.as_bytes()] };
        let words = names + instructions.len() + usize::from(!is_uniform);
        command::begin(out, verb.len() + 1 + words + usize::from(self.over_slots));
        verb.iter().for_each(|word| command::word(out, word));
        command::number(out, if self.over_slots { 1 } else { names });
        for (index, request) in keys.enumerate() {
            if self.over_slots && index == 1 {
                command::number(out, names);
            }
            let request = &self.requests[usize::from(request)];
            command::word(out, request.redis_key.as_bytes());
            if has_companions {
                command::word(out, &companion(request.slot_name(), &self.prefix, b'l'));
                command::word(out, &companion(request.slot_name(), &self.prefix, b'j'));
            }
        }
        let mut times = Times::ALL;
        for (index, request) in instructions.iter().enumerate() {
            let request = &self.requests[usize::from(*request)];
            let head = if index == 0 { HEAD } else { 0 };
            command::begin_word(out, head + instruction::size(request));
            if index == 0 {
                self.write_head(stride as u8, out);
            }
            times = times.within(instruction::write(request, self.now.or(self.server_time), out));
            command::end_word(out);
        }
        if !is_uniform {
            command::word(out, &self.arrangement.program(times));
        }
        1 + usize::from(asking)
    }

    /// Roughly the most bytes of a call with a few instructions, so that its buffer grows once.
    fn max_command(&self, names: usize) -> usize {
        let first = self.requests.first();
        let (name, instruction) =
            first.map_or((0, 0), |first| (first.redis_key.as_bytes().len(), instruction::size(first)));
        128 + names * (name + 16) + self.arrangement.instructions.len() * (instruction + 16)
    }

    fn write_head(&self, stride: u8, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.now.map_or(-1.0, |now| now as f64).to_le_bytes());
        let grouping = if self.has_checks() { CHECKS } else { self.grouping as u8 };
        out.extend_from_slice(&[stride, grouping]);
        out.extend_from_slice(&(self.arrangement.instructions.len() as u16).to_le_bytes());
        out.extend_from_slice(&(self.arrangement.keys().len() as u16).to_le_bytes());
        out.extend_from_slice(&self.number.to_le_bytes());
    }
}
