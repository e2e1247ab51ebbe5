//! How many bytes a reply about a policy may have. A server, or what stands before it, that sends more is not believed.

use crate::plan::MAX_METADATA;
use crate::policy::{Algorithm, MAX_PRECISION, Policy};

/// Headers, fields and moments of one limit, with much to spare.
const FIELDS: usize = 256;
/// The annex, of which the script sends no states of other limits.
const ANNEX: usize = 2_048;
/// Two chunks of a log (`CHUNK` in `lua/sliding_log.lua`), an entry and the summary.
const LOG: usize = 2 * 36 * 14 + 64;
/// A granule of a window: its last instant and its units.
const GRANULE: usize = 14;
/// A hold: when it expires, its id and its units.
const HOLD: usize = 21;
/// Holds that are expected whatever the count: the count may have been larger before, and charges go past it.
const MIN_HOLDS: u64 = 100_000;
const MAX_HOLDS: u64 = 10_000_000;
/// An attempt in a journal without its metadata, with its frame in the reply.
const ATTEMPT: usize = 64;

pub(super) fn max_value(policy: &Policy) -> usize {
    let list = |algorithm, count: u64| match algorithm {
        Algorithm::SlidingLog => LOG,
        Algorithm::SlidingWindow => (MAX_PRECISION as usize + 2) * GRANULE,
        Algorithm::Concurrency => count.saturating_mul(2).clamp(MIN_HOLDS, MAX_HOLDS) as usize * HOLD,
        _ => 0,
    };
    ANNEX + policy.limits().iter().map(|limit| FIELDS + list(limit.algorithm(), limit.count())).sum::<usize>()
}

pub(super) fn max_journal(policy: &Policy) -> usize {
    FIELDS + policy.options().journal as usize * (ATTEMPT + MAX_METADATA)
}
