//! Changes of a store's state, as a listener gets them.

use std::sync::Arc;
use std::time::SystemTime;

/// The state of a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum StoreState {
    /// It does not answer. Until it does, it is not asked, and `on_store_error` decides.
    Lost,
    /// It answers with errors: `on_store_error` decides each call that it refuses.
    Refusing,
    /// It answers again.
    Back,
}

impl StoreState {
    /// The word for it in events.
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
    /// The new state.
    pub state: StoreState,
    /// The event and its cause, in one sentence.
    pub sentence: String,
    /// When the outage began, also for `Back`.
    pub since: SystemTime,
}

impl StoreChange {
    /// The sentence, with the name of the option `on_store_error` as the language of the host spells it.
    #[doc(hidden)]
    #[must_use]
    pub fn sentence_for(&self, spell: impl FnOnce(&str) -> String) -> String {
        // The first such word is that of the sentence, because the cause comes last.
        let name = "on_store_error";
        self.sentence.replacen(&format!(" {name} "), &format!(" {} ", spell(name)), 1)
    }
}

/// Called with each change, on the thread that noticed it, with no lock held.
pub(crate) type Listener = Arc<dyn Fn(&StoreChange) + Send + Sync>;
