//! What a limiter tells of its decisions: how many of each outcome and source, by policy. No key is part of it, but for the
//! keys that `tidegate top` shows.

mod decision_counts;
mod denied_keys;

pub(crate) use decision_counts::DecisionCounts;
pub(crate) use denied_keys::DeniedKeys;

use crate::policy_counts::CLASSES;
use crate::store::request::Source;

/// The policies of a limiter that are counted each by itself. Decisions of all others are counted together, under
/// [`OTHER_POLICIES`]: a program may build notations from what its clients send.
pub const MAX_COUNTED_POLICIES: usize = 1_000;
/// The name under which policies beyond [`MAX_COUNTED_POLICIES`] are counted.
pub const OTHER_POLICIES: &str = "(other)";

/// The Decisions of one policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct PolicyStats {
    /// Decisions that allowed, also those of a shadow policy that would have denied, and every charge.
    pub allowed: u64,
    /// Decisions by which a limit denied.
    pub denied: u64,
    /// Denials because the store failed (`on_store_error: closed`).
    pub unavailable: u64,
    /// How many of the admitted found 80 % or more of the binding limit used, their own units included.
    pub near_limit: u64,
    /// How many of the allowed a shadow policy would have denied.
    pub shadow_denied: u64,
    /// All of them, by what gave the answer.
    pub sources: SourceCounts,
}

/// Decisions by [`Source`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct SourceCounts {
    /// The store.
    pub store: u64,
    /// A denial that was known in this process.
    pub deny_cache: u64,
    /// Units that this process took in advance.
    pub lease: u64,
    /// `on_store_error`.
    pub fallback: u64,
}

impl SourceCounts {
    /// Each source with its count.
    #[must_use]
    pub const fn by_source(&self) -> [(Source, u64); 4] {
        [
            (Source::Store, self.store),
            (Source::DenyCache, self.deny_cache),
            (Source::Lease, self.lease),
            (Source::Fallback, self.fallback),
        ]
    }
}

/// The class of a decision: its source, whether it was admitted, and one bit more. Of an admitted one that says whether it is
/// near a limit, of another one whether the store was missing.
const ADMITTED: usize = 2;
const BITS: usize = 2;
const _: () = assert!(4 << BITS == CLASSES, "the classes of four sources");

#[inline(always)]
pub(crate) const fn class(source: Source, admitted: bool, bit: bool) -> usize {
    ((source as usize) << BITS) | (admitted as usize * ADMITTED) | bit as usize
}

impl PolicyStats {
    /// Adds the counts of all classes; `shadow` says whether the policy denies.
    fn add(&mut self, shadow: bool, sums: &[u64; CLASSES]) {
        for (class, count) in sums.iter().enumerate() {
            let bit = class & 1 == 1;
            match class & ADMITTED != 0 {
                true => {
                    self.allowed += count;
                    self.near_limit += if bit { *count } else { 0 };
                }
                false if shadow => {
                    self.allowed += count;
                    self.shadow_denied += count;
                }
                false if bit => self.unavailable += count,
                false => self.denied += count,
            }
            let sources = &mut self.sources;
            let source = [&mut sources.store, &mut sources.deny_cache, &mut sources.lease, &mut sources.fallback];
            if let Some(of_source) = source.into_iter().nth(class >> BITS) {
                *of_source += count;
            }
        }
    }
}
