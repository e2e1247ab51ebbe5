//! Units that a process takes in advance and spends within a `life`. A unit counts until the last moment at which it could be
//! spent has left the window; docs/adr/0022 says why that is so for each algorithm.
//!
//! | algorithm | a lease is charged | and can be spent until |
//! |---|---|---|
//! | windows with edges | as a check | the window ends |
//! | `sliding-window` | as a check | the granule ends |
//! | `sliding-log` | as of the end of its life | the end of its life |
//! | `token-bucket`, `gcra` | above a level that takes its life to drain | the end of its life |

/// What a lease asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LeaseTerms {
    pub(crate) units: u64,
    /// For how many microseconds after the charge units may be spent, at most.
    pub(crate) life: u64,
}

/// A lease takes at most this part of what is left, so that the last units are found by the calls that need them.
pub(crate) const LEASED_PART: u64 = 4;

/// The longest time in which a unit that was taken in advance can be spent, in microseconds.
pub(super) const LONGEST_LEASE: u64 = 1_000_000;
/// The part of a period, or of a burst, that such a time may add to it.
pub(super) const ADDED_PART: u64 = 8;
