//! How many bytes a policy's value has in Redis. ARCHITECTURE and docs/adr/0002 describe its format.

use super::layout::{Form, Layout};
use crate::policy::{Algorithm, Limit, Policy};

/// A granule of a `sliding-window`, an entry of a log, a hold of `concurrency`.
const GRANULE: usize = 14;
const HOLD: usize = 21;
/// The entries of a log that its value keeps itself at most (two chunks); all others are in a key of their own.
const LOG_ENTRIES: u64 = 72;

/// The bytes of a key that is hardly used, and of one that uses all its limits.
pub(super) fn stored_size(
    policy: &Policy,
    layouts: &[Layout],
    header: &[u8],
    narrow_header: Option<&[u8]>,
) -> (usize, usize) {
    let fields = |form: Form| -> usize {
        let of_limit = |layout: &Layout| -> usize {
            layout.fields.iter().map(|field| usize::from(field.width(form.count_width(layout)))).sum()
        };
        layouts.iter().map(of_limit).sum()
    };
    let compact = header.len() + fields(Form::Compact);
    let least = narrow_header.map_or(compact, |header| header.len() + fields(Form::Narrow));
    (least, compact + policy.limits().iter().map(longest_list).sum::<usize>())
}

/// The bytes of a limit's list when all its units are in use.
fn longest_list(limit: &Limit) -> usize {
    let entries = |most: u64, bytes: usize| usize::try_from(limit.count().min(most)).unwrap_or(usize::MAX) * bytes;
    match limit.algorithm() {
        Algorithm::SlidingWindow => entries(u64::from(limit.precision()), GRANULE),
        Algorithm::SlidingLog => entries(LOG_ENTRIES, GRANULE),
        Algorithm::Concurrency => limit.count().try_into().unwrap_or(usize::MAX / HOLD) * HOLD,
        _ => 0,
    }
}
