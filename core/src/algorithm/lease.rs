//! Units that a process takes in advance and spends within a `life`. A unit counts until the last moment at which
//! the process could spend it has left the window. docs/adr/0022 gives the reason for each algorithm.
//!
//! | algorithm | a lease is charged | and can be spent until |
//! |---|---|---|
//! | windows with edges | as a check | the window ends |
//! | `sliding-window` | as a check | the granule ends |
//! | `sliding-log` | as of the end of its life | the end of its life |
//! | `token-bucket`, `gcra` | above a level that takes its life to drain | the end of its life |

/// The terms of a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LeaseTerms {
    pub(crate) units: u64,
    /// The longest time after the charge, in microseconds, for the process to spend the units.
    pub(crate) life: u64,
}

/// A lease takes at most this part of the units left, so that calls that need the last units find them.
pub(crate) const LEASED_PART: u64 = 4;

/// The longest time that a process has to spend a unit it took in advance, in microseconds.
pub(super) const LONGEST_LEASE: u64 = 1_000_000;
/// The part of a period or a burst that such a time may add to it.
pub(super) const ADDED_PART: u64 = 8;
