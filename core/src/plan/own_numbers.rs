//! Keys that have other numbers than their policy, as stores keep them.

/// The most keys of one policy that may have other numbers.
pub(crate) const MAX_OVERRIDDEN_KEYS: usize = crate::policy::MAX_OVERRIDES;

/// The longest key that may have other numbers than its policy, in bytes: lists of them are bounded.
pub(crate) const MAX_OVERRIDDEN_KEY: usize = 1_024;

/// Other numbers of a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct OverrideChange {
    /// The key, as the list of its policy has it.
    pub(crate) key: String,
    /// The limits as text; empty for those of the policy.
    pub(crate) text: String,
    /// For how many microseconds; 0 is for ever.
    pub(crate) ttl: u64,
}

/// A key that has other numbers than its policy, as its store has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StoredOverride {
    pub(crate) key: String,
    pub(crate) text: String,
    /// When it ends, in microseconds since 1970 by the time of the store; 0 is never.
    pub(crate) ends: u64,
}

/// Numbers of a key that differ from those that a call brought, so that it was not made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Moved {
    /// The store has these; empty: it has none.
    To(String),
    /// Those of another entry of the same call.
    OfAnother,
}
