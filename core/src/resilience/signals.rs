//! What the layers tell: one line for each change of state, to the log and to a listener, and numbers for metrics.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};

use crate::error::{Error, ErrorKind};

/// What has become of a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum StoreState {
    /// It does not answer: until it does, it is not asked, and `on_store_error` decides.
    Lost,
    /// It answers, but with errors: `on_store_error` decides wherever it does.
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

/// A store changed its state. Each change is told once.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct StoreChange {
    /// The store, without secrets.
    pub store: String,
    /// What it is now.
    pub state: StoreState,
    /// What happened and why, in one sentence.
    pub sentence: String,
    /// Since when it is away; for `Back`, since when it was.
    pub since: SystemTime,
}

/// Somebody who wants to know. Called on whatever thread noticed, with no lock held.
pub(crate) type Listener = Arc<dyn Fn(&StoreChange) + Send + Sync>;

/// What the layers have counted since the limiter was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Counters {
    /// Operations that were sent to a store that others share.
    pub asked: u64,
    /// Denials that were repeated without asking.
    pub deny_cache: u64,
    /// Answers of `on_store_error: open` …
    pub fallback_open: u64,
    /// … of `closed` …
    pub fallback_closed: u64,
    /// … and of `local`.
    pub fallback_local: u64,
    /// How often a store was given up for lost.
    pub lost: u64,
    /// Operations that were not sent because the store was lost.
    pub withheld: u64,
    /// Operations that failed with `store_unavailable` …
    pub store_unavailable: u64,
    /// … with `store_timeout` …
    pub store_timeout: u64,
    /// … and with `store_rejected`.
    pub store_rejected: u64,
}

/// What several threads count.
#[derive(Default)]
pub(super) struct Count(AtomicU64);

impl Count {
    #[inline]
    pub(super) fn add(&self, number: u64) {
        self.0.fetch_add(number, Ordering::Relaxed);
    }

    pub(super) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// See the module.
#[derive(Default)]
pub(crate) struct Signals {
    listener: Option<Listener>,
    /// What is to be tidied up when a store is back.
    tidy: OnceLock<Box<dyn Fn() + Send + Sync>>,
    pub(super) asked: Count,
    pub(super) fallback_open: Count,
    pub(super) fallback_closed: Count,
    pub(super) fallback_local: Count,
    pub(super) lost: Count,
    pub(super) withheld: Count,
    unavailable: Count,
    timeout: Count,
    rejected: Count,
}

impl fmt::Debug for Signals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.counters().fmt(f)
    }
}

impl Signals {
    pub(crate) fn new(listener: Option<Listener>) -> Self {
        Self { listener, ..Self::default() }
    }

    pub(super) fn when_back(&self, tidy: impl Fn() + Send + Sync + 'static) {
        // Set once, by the fallback, when the layers are put together.
        let _ = self.tidy.set(Box::new(tidy));
    }

    pub(super) fn failed(&self, kind: ErrorKind) {
        match kind {
            ErrorKind::StoreUnavailable => self.unavailable.add(1),
            ErrorKind::StoreTimeout => self.timeout.add(1),
            ErrorKind::StoreRejected => self.rejected.add(1),
            _ => {}
        }
    }

    /// All but what the deny cache counts by itself.
    pub(crate) fn counters(&self) -> Counters {
        Counters {
            asked: self.asked.get(),
            deny_cache: 0,
            fallback_open: self.fallback_open.get(),
            fallback_closed: self.fallback_closed.get(),
            fallback_local: self.fallback_local.get(),
            lost: self.lost.get(),
            withheld: self.withheld.get(),
            store_unavailable: self.unavailable.get(),
            store_timeout: self.timeout.get(),
            store_rejected: self.rejected.get(),
        }
    }

    pub(super) fn gone(&self, store: &str, state: StoreState, cause: &Error, since: SystemTime) {
        let sentence = match state {
            StoreState::Refusing => format!("{store} refuses what it is asked, and on_store_error decides: {cause}"),
            _ => format!("{store} is lost, and on_store_error decides until it answers: {cause}"),
        };
        tracing::warn!(target: "tidegate", "{sentence}");
        self.tell(store, state, sentence, since);
    }

    pub(super) fn back(&self, store: &str, since: SystemTime, after: Duration) {
        if let Some(tidy) = self.tidy.get() {
            tidy();
        }
        let sentence = format!("{store} is back after {:.1} s", after.as_secs_f64());
        tracing::info!(target: "tidegate", "{sentence}");
        self.tell(store, StoreState::Back, sentence, since);
    }

    fn tell(&self, store: &str, state: StoreState, sentence: String, since: SystemTime) {
        let Some(listener) = &self.listener else { return };
        let change = StoreChange { store: store.to_owned(), state, sentence, since };
        // Others' code: what it breaks is its own, not the thread that carries everybody's answers.
        drop(catch_unwind(AssertUnwindSafe(|| listener(&change))));
    }
}

/// A store's URL without user, password and options.
pub(crate) fn shown(url: &str) -> String {
    let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
    let rest = rest.split(['?', '#']).next().unwrap_or_default();
    let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let hosts = authority.rsplit('@').next().unwrap_or_default();
    format!("{scheme}://{hosts}{path}")
}

#[cfg(test)]
mod tests {
    use super::shown;

    #[test]
    fn a_store_is_shown_without_its_secrets() {
        for (url, expected) in [
            ("redis://localhost", "redis://localhost"),
            ("redis://user:hunter2@localhost:6379/0?protocol=3", "redis://localhost:6379/0"),
            ("redis://:hun@ter2@localhost/1", "redis://localhost/1"),
            ("rediss://h:1/0?ssl_ca_certs=/a@b.pem", "rediss://h:1/0"),
            ("redis+cluster://u:hunter2@h1:7000,h2:7001", "redis+cluster://h1:7000,h2:7001"),
            ("redis+sentinel://h1:1,h2/name/0?sentinel_password=hunter2@x", "redis+sentinel://h1:1,h2/name/0"),
            ("redis+unix://:hunter2@/run/redis.sock?db=1", "redis+unix:///run/redis.sock"),
        ] {
            assert_eq!(shown(url), expected);
        }
    }
}
