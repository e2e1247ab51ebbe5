//! Describes a limiter.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::Duration;

use super::hold::Keeper;
use super::line::Lines;
use super::policies::Policies;
use super::{AsyncLimiter, Inner, Limiter};
use crate::clock::ManualClock;
use crate::error::{Error, Result};
use crate::policy::{OnStoreError, Policy, PolicyFile};
use crate::script::MOST;
use crate::store::{Memory, Redis, Store, StoreUrl};

/// The longest prefix, in bytes.
const MAX_PREFIX: usize = 128;

/// Describes a limiter; everything has a default.
#[derive(Debug, Clone)]
pub struct Builder {
    store: String,
    policies: Vec<Policy>,
    file: Option<PathBuf>,
    prefix: String,
    timeout: Duration,
    on_store_error: OnStoreError,
    fold: usize,
    clock: Option<Arc<ManualClock>>,
}

impl Default for Builder {
    fn default() -> Self {
        Self {
            store: "memory://".to_owned(),
            policies: Vec::new(),
            file: None,
            prefix: "tg".to_owned(),
            timeout: Duration::from_millis(250),
            on_store_error: OnStoreError::default(),
            fold: MOST,
            clock: None,
        }
    }
}

impl Builder {
    /// What a policy file says: its policies, and its store unless another is given afterwards.
    ///
    /// # Errors
    /// `policy_invalid` with file, line and column.
    pub fn from_file(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let file = PolicyFile::read(path)?;
        let mut builder = Self { policies: file.policies().to_vec(), file: Some(path.to_owned()), ..Self::default() };
        match file.store() {
            None => {}
            Some([store]) => builder.store.clone_from(store),
            Some(_) => return Err(Error::config("a list of stores is not available yet: give one store URL")),
        }
        Ok(builder)
    }

    /// Where usage lives, as a URL; `memory://` when nothing is said.
    #[must_use]
    pub fn store(mut self, url: impl Into<String>) -> Self {
        self.store = url.into();
        self
    }

    /// Whether usage will live in this process, so that no call has to wait for an answer.
    #[must_use]
    pub fn is_local(&self) -> bool {
        self.store.starts_with("memory:")
    }

    /// A policy under a name, as a notation.
    ///
    /// # Errors
    /// `policy_invalid` for the notation, the name, or a name that is taken.
    pub fn policy(self, name: impl Into<String>, notation: &str) -> Result<Self> {
        self.named(Policy::parse(notation)?.named(name)?)
    }

    /// A policy under the name it has.
    ///
    /// # Errors
    /// `policy_invalid` for a name that is taken.
    pub fn named(mut self, policy: Policy) -> Result<Self> {
        if self.policies.iter().any(|other| other.name() == policy.name()) {
            return Err(Error::policy(format!(
                "there are two policies of the name {:?}: give one another",
                policy.name()
            )));
        }
        self.policies.push(policy);
        Ok(self)
    }

    /// What every key in Redis begins with; `tg` when nothing is said.
    #[must_use]
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// The longest a call may wait for the store; 250 ms when nothing is said.
    #[must_use]
    pub const fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// What a check answers when the store fails.
    #[must_use]
    pub const fn on_store_error(mut self, choice: OnStoreError) -> Self {
        self.on_store_error = choice;
        self
    }

    /// The most checks that travel to Redis in one call, up to 256; 1 sends each in a call of its own.
    #[must_use]
    pub fn fold(mut self, most: usize) -> Self {
        self.fold = most.clamp(1, MOST);
        self
    }

    /// A clock for tests, whose time decides instead of the store's.
    #[must_use]
    pub fn clock(mut self, clock: Arc<ManualClock>) -> Self {
        self.clock = Some(clock);
        self
    }

    /// A limiter for threads.
    ///
    /// # Errors
    /// `config_invalid` for the store, the prefix or the timeout.
    pub fn build(self) -> Result<Limiter> {
        Ok(Limiter { inner: self.inner()? })
    }

    /// A limiter for tasks.
    ///
    /// # Errors
    /// As [`Builder::build`].
    pub fn build_async(self) -> Result<AsyncLimiter> {
        Ok(AsyncLimiter { inner: self.inner()? })
    }

    fn inner(self) -> Result<Arc<Inner>> {
        if self.prefix.is_empty() || self.prefix.len() > MAX_PREFIX || self.prefix.contains(['{', '}']) {
            return Err(Error::config(format!(
                "the prefix {:?} cannot be used: it must have from 1 to {MAX_PREFIX} bytes and no braces",
                self.prefix.chars().take(MAX_PREFIX).collect::<String>()
            )));
        }
        if self.timeout < Duration::from_millis(1) || self.timeout > Duration::from_secs(3_600) {
            return Err(Error::config(format!(
                "a timeout of {:?} is out of range: it must be from 1 ms to 1 hour",
                self.timeout
            )));
        }
        let store: Arc<dyn Store> = match StoreUrl::parse(&self.store)? {
            StoreUrl::Memory { max_keys } => Arc::new(Memory::new(max_keys)),
            StoreUrl::Redis(server) => Arc::new(Redis::new(*server, &self.prefix, self.timeout, self.fold)?),
        };
        let seed = std::hash::BuildHasher::hash_one(&std::hash::RandomState::new(), std::process::id());
        let inner = Arc::new(Inner {
            store,
            policies: Policies::new(&self.policies),
            clock: self.clock,
            file: self.file,
            lines: Lines::default(),
            keeper: Keeper::default(),
            closed: AtomicBool::new(false),
            seed,
            holds: AtomicU64::new(0),
            on_store_error: self.on_store_error,
        });
        if let Some(clock) = &inner.clock {
            let watcher = Arc::downgrade(&inner);
            clock.watch(watcher);
        }
        Ok(inner)
    }
}
