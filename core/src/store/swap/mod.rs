//! A machine that decides calls on a store that can read and swap values. It does no I/O. See docs/adr/0049.

mod decision;
mod engine;
mod known_values;
mod machine;
mod outcomes;
#[cfg(test)]
mod simulation;
mod store_clock;
mod swap_store;
mod unit;
mod value;

use std::time::Instant;

use smallvec::SmallVec;

use crate::error::Error;
use crate::store::stored_key::StoredKey;
pub(crate) use engine::{IoOutcome, SwapIo, runtime};
pub(crate) use machine::SwapMachine;
pub(crate) use swap_store::{SwapServer, SwapStore, received, waking};
#[cfg(feature = "postgres")]
pub(crate) use value::value_of;

/// The version of a value, as the store names it.
pub(crate) type Version = SmallVec<[u8; 8]>;

/// The abilities of a store beyond reading and swapping.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Promises {
    /// The version of a value is its mark. So its writer can swap again without a read.
    pub(crate) marks_are_versions: bool,
    /// It can lock the rows that it reads until the next swap of the same call.
    pub(crate) locks: bool,
    /// The most bytes of a value.
    pub(crate) max_value: usize,
}

/// A value that stands in the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FoundValue {
    pub(crate) version: Version,
    pub(crate) data: Vec<u8>,
}

/// A change of one key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Change {
    pub(crate) key: StoredKey,
    /// The version that it replaces. `None`: there must be no value.
    pub(crate) version: Option<Version>,
    /// The new value. `None` deletes the key.
    pub(crate) data: Option<Vec<u8>>,
    /// When the store may drop the value, in microseconds since 1970.
    pub(crate) expires_at: u64,
}

/// Changes that stand or fall together, and the moments between which they may be done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ChangeSet {
    pub(crate) changes: Vec<Change>,
    pub(crate) from: u64,
    pub(crate) until: u64,
}

/// Names a question to the store.
pub(crate) type CallId = u64;

/// The next step of the owner of the machine.
#[derive(Debug)]
pub(crate) enum Io {
    /// It reads these keys, and locks their rows if `locks`. If `needs_epoch`, the answer has the epoch of the store behind that.
    Read { call: CallId, keys: Vec<StoredKey>, locks: bool, needs_epoch: bool, deadline: Instant },
    /// It swaps these values. `locked` is the read that has locked their rows, which this ends, also with no changes.
    Swap { call: CallId, sets: Vec<ChangeSet>, locked: Option<CallId>, deadline: Instant },
    /// It asks again then, or when a group is submitted.
    WaitUntil(Instant),
    /// It asks again when a group is submitted.
    Idle,
}

/// The answer of the store to one change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum SwapResult {
    Done,
    /// It was not done, because this value stands there.
    Lost(Option<FoundValue>),
}

/// The outcome of a question.
#[derive(Debug)]
pub(crate) enum Event {
    /// The values of the keys, in order, and the clock of the store. Its epoch is another number after each restart.
    Read { clock: Option<u64>, epoch: Option<u64>, values: Vec<Option<FoundValue>> },
    /// The results of all changes, in order.
    Swapped { clock: Option<u64>, results: Vec<SwapResult> },
    /// It has certainly not run.
    NotRun(Error),
    /// It may have run.
    Unknown(Error),
}
