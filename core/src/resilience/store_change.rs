//! Changes of a store's state, as a listener is told of them.

use std::sync::Arc;
use std::time::SystemTime;

/// The state of a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum StoreState {
    /// It does not answer. Until it does it is not asked, and `on_store_error` decides.
    Lost,
    /// It answers with errors: `on_store_error` decides each call that it refuses.
    Refusing,
    /// It answers again.
    Back,
}

impl StoreState {
    /// The word in events.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Lost => "lost",
            Self::Refusing => "refusing",
            Self::Back => "back",
        }
    }
}

/// A change of a store's state. Each is reported once.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct StoreChange {
    /// The store, without secrets.
    pub store: String,
    /// What it is now.
    pub state: StoreState,
    /// What happened and why, in one sentence.
    pub sentence: String,
    /// When the outage began, also for `Back`.
    pub since: SystemTime,
}

impl StoreChange {
    /// The sentence, in which a host spells the name of the option `on_store_error` as its language does.
    #[doc(hidden)]
    #[must_use]
    pub fn sentence_for(&self, spell: impl FnOnce(&str) -> String) -> String {
        // What is said before it, the store, has no spaces.
        let name = "on_store_error";
        self.sentence.replacen(&format!(" {name} "), &format!(" {} ", spell(name)), 1)
    }
}

/// Called with each change, on the thread that noticed it, with no lock held.
pub(crate) type Listener = Arc<dyn Fn(&StoreChange) + Send + Sync>;
