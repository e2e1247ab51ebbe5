//! The sources of answers.

/// The source of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Source {
    /// The store.
    #[default]
    Store,
    /// This process, which knew that the key is still denied.
    DenyCache,
    /// This process, from a block of units it took in advance.
    Lease,
    /// `on_store_error`, because the store failed.
    Fallback,
}

impl Source {
    /// The word in Decisions.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Store => "store",
            Self::DenyCache => "deny-cache",
            Self::Lease => "lease",
            Self::Fallback => "fallback",
        }
    }
}
