//! Overrides of keys, as stores keep them.

/// The most keys of one policy that may have an override.
pub(crate) const MAX_OVERRIDDEN_KEYS: usize = crate::policy::MAX_OVERRIDES;

/// The longest key that may have an override, in bytes, because lists of them are bounded.
pub(crate) const MAX_OVERRIDDEN_KEY: usize = 1_024;

/// A change of a key's override.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct OverrideChange {
    /// The key, as the list of its policy has it.
    pub(crate) key: String,
    /// The limits as text. Empty for those of the policy.
    pub(crate) text: String,
    /// Its lifetime in microseconds. 0 is for ever.
    pub(crate) ttl: u64,
}

impl OverrideChange {
    /// The override after the change.
    pub(crate) fn stored(&self, now: u64) -> StoredOverride {
        let ends = if self.ttl == 0 { 0 } else { now.saturating_add(self.ttl) };
        StoredOverride { key: self.key.clone(), text: self.text.clone(), ends }
    }
}

/// An override of a key, as its store has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StoredOverride {
    pub(crate) key: String,
    pub(crate) text: String,
    /// Its end, in microseconds since 1970 by the time of the store. 0 is never.
    pub(crate) ends: u64,
}

impl StoredOverride {
    /// Its end, or the last moment that there is.
    pub(crate) const fn last(&self) -> u64 {
        if self.ends == 0 { u64::MAX } else { self.ends }
    }
}

/// The override of a key differs from the one that a call brought, so the call was not made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ChangedOverride {
    /// The store has this override. Empty if it has none.
    To(String),
    /// The override of another entry of the same call differs.
    OfAnother,
}
