//! Records of the calls of clients and of the faults that a test caused. With them, `history_check` finds out whether
//! any order of the calls explains the answers. Python and Node write the same lines: see `tests/histories`.

mod client;
mod programs;
mod record;
mod schedule;

use std::time::{SystemTime, UNIX_EPOCH};

pub use client::{Client, record_calls};
pub use programs::{ClientProgram, Language};
pub use record::{Call, CallRecord, FaultRecord, Loss, Operation, Outcome};
pub use schedule::{Schedule, overridden, own_limits, policies};

/// `CLOCK_MONOTONIC` in nanoseconds, which all processes of a machine share.
#[must_use]
pub fn monotonic() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// The wall clock in microseconds, which the servers of this machine also use.
#[must_use]
pub fn wall() -> u64 {
    // Asks libc, as the servers do: a clock that is preloaded is the same for both.
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_micros() as u64)
}
