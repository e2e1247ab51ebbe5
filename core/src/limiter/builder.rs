//! Describes a limiter.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::Duration;

use super::LimiterCore;
use super::acquire::WaitQueues;
use super::hold::Keeper;
use super::policies::Policies;
use crate::clock::ManualClock;
use crate::error::{Error, Result};
use crate::fork::PerProcess;
use crate::policy::{OnStoreError, Policy, PolicyFile};
use crate::resilience::{Breaker, LONGEST, Layers, Listener, Rollout, Shards, Signals, StoreChange, shown};
use crate::store::memory::Memory;
use crate::store::redis::{Lookout, Redis};
use crate::store::url::{Endpoints, StoreUrl};
use crate::store::{MAX_ENTRIES, Store};

/// The longest prefix, in bytes.
const MAX_PREFIX: usize = 128;

/// Describes a limiter; everything has a default.
#[derive(Clone)]
pub struct Builder {
    stores: Vec<String>,
    rollout: Option<(String, f64)>,
    policies: Vec<Policy>,
    file: Option<PathBuf>,
    prefix: String,
    timeout: Duration,
    on_store_error: OnStoreError,
    deny_cache: Duration,
    listener: Option<Listener>,
    fold: usize,
    #[cfg(feature = "bench")]
    bare: bool,
    clock: Option<Arc<ManualClock>>,
}

/// Without the stores: their URLs may hold passwords.
impl fmt::Debug for Builder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder")
            .field("policies", &self.policies)
            .field("file", &self.file)
            .field("prefix", &self.prefix)
            .field("timeout", &self.timeout)
            .field("on_store_error", &self.on_store_error)
            .field("deny_cache", &self.deny_cache)
            .field("clock", &self.clock)
            .finish_non_exhaustive()
    }
}

impl Default for Builder {
    fn default() -> Self {
        Self {
            stores: vec!["memory://".to_owned()],
            rollout: None,
            policies: Vec::new(),
            file: None,
            prefix: "tg".to_owned(),
            timeout: Duration::from_millis(250),
            on_store_error: OnStoreError::default(),
            deny_cache: Duration::from_secs(1),
            listener: None,
            fold: MAX_ENTRIES,
            #[cfg(feature = "bench")]
            bare: false,
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
        if let Some(stores) = file.store() {
            builder.stores = stores.to_vec();
        }
        Ok(builder)
    }

    /// Where usage lives, as a URL; `memory://` when nothing is said.
    #[must_use]
    pub fn store(self, url: impl Into<String>) -> Self {
        self.stores([url])
    }

    /// Several stores that share the keys among them; a new one takes its share from all others, and nothing else moves.
    #[must_use]
    pub fn stores(mut self, urls: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.stores = urls.into_iter().map(Into::into).collect();
        self.rollout = None;
        self
    }

    /// From an old store to a new one: `percent` of the keys use the new one, always the same ones. What was used in the
    /// other store is not carried along. [`Limiter::set_rollout`](crate::Limiter::set_rollout) changes the share at run time.
    #[must_use]
    pub fn rollout(mut self, old: impl Into<String>, new: impl Into<String>, percent: f64) -> Self {
        self = self.store(old);
        self.rollout = Some((new.into(), percent));
        self
    }

    /// Whether usage will live in this process, so that no call has to wait for an answer.
    #[must_use]
    pub fn is_local(&self) -> bool {
        matches!(&*self.stores, [url] if url.starts_with("memory:")) && self.rollout.is_none()
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

    /// For at most so long a denial is repeated without asking the store again, where that cannot be wrong; 1 s when
    /// nothing is said, zero is off. A clear or refund by another process is noticed that much later.
    #[must_use]
    pub const fn deny_cache(mut self, longest: Duration) -> Self {
        self.deny_cache = longest;
        self
    }

    /// Told once whenever a store is lost, refuses, or is back. Called on whatever thread noticed; it should not wait.
    #[must_use]
    pub fn on_change(mut self, listener: Arc<dyn Fn(&StoreChange) + Send + Sync>) -> Self {
        self.listener = Some(listener);
        self
    }

    /// The most checks that travel to Redis in one call, up to 256; 1 sends each in a call of its own.
    #[must_use]
    pub fn fold(mut self, most: usize) -> Self {
        self.fold = most.clamp(1, MAX_ENTRIES);
        self
    }

    /// A clock for tests, whose time decides instead of the store's.
    #[must_use]
    pub fn clock(mut self, clock: Arc<ManualClock>) -> Self {
        self.clock = Some(clock);
        self
    }

    /// Leaves out the layers, for benchmarks.
    #[cfg(feature = "bench")]
    #[doc(hidden)]
    #[must_use]
    pub fn bare(mut self) -> Self {
        self.bare = true;
        self
    }

    /// The store, with layers around it where it is shared.
    fn layers(&self, readers: &Arc<PerProcess<Lookout>>) -> Result<(Arc<dyn Store>, Option<Layers>)> {
        let signals = Arc::new(Signals::new(self.listener.clone()));
        if let ([url], None) = (&*self.stores, &self.rollout)
            && let StoreUrl::Memory { max_keys } = StoreUrl::parse(url)?
        {
            return Ok((Arc::new(Memory::new(max_keys)), None));
        }
        #[cfg(feature = "bench")]
        if let (true, [url]) = (self.bare, &*self.stores)
            && let StoreUrl::Redis(server) = StoreUrl::parse(url)?
        {
            return Ok((Arc::new(self.redis(*server, readers)?), None));
        }
        let store = self.side(&self.stores, &signals, readers)?;
        let rollout = match &self.rollout {
            Some((new, percent)) => {
                let new = self.side(std::slice::from_ref(new), &signals, readers)?;
                Some(Rollout::new(Arc::clone(&store), new, *percent, self.timeout)?)
            }
            None => None,
        };
        let layers = Layers::around(store, rollout, self.on_store_error, self.deny_cache, signals);
        Ok((layers.store(), Some(layers)))
    }

    fn redis(&self, endpoints: Endpoints, readers: &Arc<PerProcess<Lookout>>) -> Result<Redis> {
        Redis::new(endpoints, &self.prefix, self.timeout, self.fold, Arc::clone(readers))
    }

    /// One store, or several that share the keys.
    fn side(
        &self,
        urls: &[String],
        signals: &Arc<Signals>,
        readers: &Arc<PerProcess<Lookout>>,
    ) -> Result<Arc<dyn Store>> {
        if let [url] = urls
            && let StoreUrl::Memory { max_keys } = StoreUrl::parse(url)?
        {
            return Ok(Arc::new(Memory::new(max_keys)));
        }
        let guarded = |url: &String| -> Result<(Arc<dyn Store>, String)> {
            let store: Arc<dyn Store> = match StoreUrl::parse(url)? {
                StoreUrl::Memory { .. } => {
                    return Err(Error::config("memory:// shares no keys with other stores: leave it out of the list"));
                }
                StoreUrl::Redis(server) => Arc::new(self.redis(*server, readers)?),
            };
            Ok((Breaker::around(store, url, self.timeout, Arc::clone(signals)), url.clone()))
        };
        let mut stores = urls.iter().map(guarded).collect::<Result<Vec<_>>>()?;
        match (stores.len(), stores.pop()) {
            (1, Some((store, _))) => Ok(store),
            (_, Some(last)) => {
                stores.push(last);
                Ok(Arc::new(Shards::new(stores, self.timeout)?))
            }
            (_, None) => Err(Error::config("the list of stores is empty: give at least one store URL")),
        }
    }

    pub(super) fn core(self) -> Result<Arc<LimiterCore>> {
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
        if self.deny_cache > LONGEST {
            return Err(Error::config(format!(
                "a deny_cache of {:?} is out of range: it must be from 0, which is off, to 60 s",
                self.deny_cache
            )));
        }
        let readers = Arc::new(PerProcess::new());
        let (store, layers) = self.layers(&readers)?;
        let seed = std::hash::BuildHasher::hash_one(&std::hash::RandomState::new(), std::process::id());
        let core = Arc::new(LimiterCore {
            store,
            policies: Policies::new(&self.policies),
            clock: self.clock,
            file: self.file,
            wait_queues: WaitQueues::default(),
            keeper: Keeper::default(),
            closed: AtomicBool::new(false),
            shown: self.stores.iter().map(|url| shown(url)).collect::<Vec<_>>().join(", "),
            seed,
            holds: AtomicU64::new(0),
            layers,
            readers,
        });
        if let Some(clock) = &core.clock {
            let listener = Arc::downgrade(&core);
            clock.listen(listener);
        }
        Ok(core)
    }
}
