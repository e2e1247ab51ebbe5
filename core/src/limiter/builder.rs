//! The options of a limiter.

use std::any::Any;
use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::acquire::WaitBounds;
use super::policy_source::PolicySource;
use crate::error::{Error, Result};
use crate::policy::declaration::{OptionDeclaration, declared_options};
use crate::policy::prefix::DEFAULT_PREFIX;
use crate::policy::{OnStoreError, Policy, Warning, lint};
use crate::process::clock::ManualClock;
use crate::process::log::WarningListener;
use crate::resilience::{Listener, StoreChange};
#[cfg(feature = "redis")]
use crate::store::KeyValueStore;
use crate::store::MAX_ENTRIES;
use crate::store::OpenStore;
#[cfg(feature = "redis")]
use crate::store::application;
#[cfg(feature = "redis")]
use crate::store::url::APPLICATION_SCHEME;

const STORE: &str = "memory://";
const TIMEOUT: Duration = Duration::from_millis(250);
const DENY_CACHE: Duration = Duration::from_secs(1);

/// A value of an option that hosts set by its name.
#[derive(Debug)]
pub enum SettingValue {
    /// A text.
    Text(String),
    /// The bytes of a secret.
    Secret(Vec<u8>),
    /// A length of time.
    Duration(Duration),
    /// A whole number.
    Count(usize),
    /// The answer of a check when the store fails.
    OnStoreError(OnStoreError),
    /// True or false.
    Flag(bool),
}

/// An option of a limiter.
#[derive(Debug)]
pub struct LimiterOption {
    /// The declaration that callers of its host see.
    pub declaration: OptionDeclaration,
    /// Sets it to a value of its kind. `None` if it is no value: a store, policies, a clock, functions.
    pub set: Option<fn(Builder, SettingValue) -> Builder>,
}

/// Declares the options of a limiter. One with `=> set` is a value, and the method of its name sets it.
macro_rules! limiter_options {
    ($($(#[doc = $documentation:literal])+ $name:ident: $kind:ident $(= $default:ident ($value:expr))? $(=> $set:ident)?;)+) => {
        /// Every option of a limiter, in the order in which messages list them.
        pub const LIMITER_OPTIONS: &[LimiterOption] = &[$(LimiterOption {
            declaration: declared_options! {
                $(#[doc = $documentation])+ $name: $kind $(= $default ($value))?;
            }[0],
            set: limiter_options!(@set $name $kind $($set)?),
        }),+];
    };
    (@set $name:ident $kind:ident) => { None };
    (@set $name:ident $kind:ident set) => {
        Some(|builder, value| if let SettingValue::$kind(value) = value { builder.$name(value) } else { builder })
    };
}

limiter_options! {
    /// The URL of the store: `memory://`, `file:///path`, `redis://`, `rediss://`, `redis+unix://`, `valkey://` or another. You can also
    /// give a list of servers that share the keys, or a `rollout` from one store to another.
    store: Store = Text(STORE);

    /// The policies by name: a notation, a Policy, or limits with options as in a policy file. A reload of the file keeps them.
    policies: Policies;

    /// The beginning of every key in Redis. Give each application another one.
    prefix: Text = Text(DEFAULT_PREFIX) => set;

    /// A secret of at least 16 bytes for the names of Redis keys. With it, no one can find out from a copy of the data if a guessed
    /// key, such as an address, was used. All limiters that share limits need the same secret.
    key_secret: Secret => set;

    /// The longest time that a call may wait for the store.
    timeout: Duration = Duration(TIMEOUT) => set;

    /// The answer to a check when the store fails: `raise`, `open`, `closed` or `local`.
    on_store_error: OnStoreError = Text("local") => set;

    /// The longest time for which a denial is repeated without a call to the store. 0 turns this off.
    deny_cache: Duration = Duration(DENY_CACHE) => set;

    /// The most callers that may wait in `acquire` or for a hold. A further call is denied at once.
    max_waiting: Count = Count(WaitBounds::DEFAULT.all) => set;

    /// The most callers that may wait for one policy and key.
    max_waiting_per_key: Count = Count(WaitBounds::DEFAULT.per_key) => set;

    /// A function that Tidegate calls once when a store is lost or refuses calls, and once when it is back. In Python it runs on a separate
    /// thread after the log line, one change after the other, so it may block. The logger "tidegate" gets its exceptions.
    on_change: Listener;

    /// A clock for tests. Its time replaces the time of the store.
    clock: Clock;

    /// The logger, such as `console`. It gets a line when a store is lost, refuses calls or is back, and a line for each warning about a
    /// policy file. False turns it off.
    logger: Logger = Words("warnings of the process");

    /// Log each refusal as a warning with the policy, the key, the limit that refused, the wait and the source of the answer. There are at
    /// most ten lines a second, and the next line counts the refusals in between.
    log_refusals: Flag = Flag(false) => set;

    /// A function that gets each warning, except changes of a store's state.
    on_warning: WarningListener;

    /// The most checks in one call to Redis. With 1, each check is a separate call.
    fold: BatchSize = Count(MAX_ENTRIES);
}

/// The options of a limiter. Each has a default.
///
/// ```
/// use std::time::Duration;
/// use tidegate::{Limiter, OnStoreError};
///
/// let limiter = Limiter::builder()
///     .store("memory://") // or redis://127.0.0.1:6379/0, file:///path/to/limits
///     .policy("login", "20/minute; 5/3s")?
///     .policy("api", "gcra 100/s burst 200")?
///     .prefix("shop")
///     .timeout(Duration::from_millis(100))
///     .on_store_error(OnStoreError::Closed)
///     .build()?; // build_async for tasks
/// assert!(limiter.check("login", "alice")?.allowed());
/// # Ok::<(), tidegate::Error>(())
/// ```
#[derive(Clone)]
pub struct Builder {
    pub(super) stores: Vec<String>,
    pub(super) rollout: Option<(String, f64)>,
    /// Opens the store of the application that stands in the place of a URL.
    pub(super) application: Option<OpenStore>,
    pub(super) host_data: Option<Arc<dyn Any + Send + Sync>>,
    /// The policies that are not from the file.
    pub(super) policies: Vec<Policy>,
    pub(super) source: Option<PolicySource>,
    pub(super) uses_store_of_file: bool,
    /// The warnings of lint about the file, logged when the limiter is made.
    pub(super) file_warnings: Vec<Warning>,
    pub(super) prefix: String,
    pub(super) key_secret: Option<Vec<u8>>,
    pub(super) timeout: Duration,
    pub(super) on_store_error: OnStoreError,
    pub(super) deny_cache: Duration,
    pub(super) listener: Option<Listener>,
    pub(super) warning_listener: Option<WarningListener>,
    pub(super) log_refusals: bool,
    pub(super) fold: usize,
    #[cfg(feature = "bench")]
    pub(super) bare: bool,
    pub(super) clock: Option<Arc<ManualClock>>,
    pub(super) wait_bounds: WaitBounds,
    /// True if `tidegate top` sees the limiter, when the environment asks for that.
    pub(crate) publishes: bool,
}

/// Does not show the stores, because their URLs may have passwords.
impl fmt::Debug for Builder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder")
            .field("policies", &self.policies)
            .field("source", &self.source)
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
            stores: vec![STORE.to_owned()],
            rollout: None,
            application: None,
            host_data: None,
            policies: Vec::new(),
            source: None,
            uses_store_of_file: false,
            file_warnings: Vec::new(),
            prefix: DEFAULT_PREFIX.to_owned(),
            key_secret: None,
            // The tests of this repository, which have the feature `bench`, leave a busy machine more time.
            timeout: if cfg!(feature = "bench") { 20 * TIMEOUT } else { TIMEOUT },
            on_store_error: OnStoreError::default(),
            deny_cache: DENY_CACHE,
            listener: None,
            warning_listener: None,
            log_refusals: false,
            fold: MAX_ENTRIES,
            #[cfg(feature = "bench")]
            bare: false,
            clock: None,
            wait_bounds: WaitBounds::DEFAULT,
            publishes: true,
        }
    }
}

impl Builder {
    /// The options of a policy file: its policies, and its store and its prefix unless others are given afterwards.
    ///
    /// # Errors
    /// `policy_invalid` with file, line and column.
    #[cfg_attr(docsrs, doc(cfg(feature = "files")))]
    pub fn from_file(path: impl AsRef<Path>) -> Result<Self> {
        let source = PolicySource::read(path.as_ref())?;
        let file = source.first();
        let mut builder = Self { uses_store_of_file: true, file_warnings: lint(file), ..Self::default() };
        if let Some(stores) = file.store() {
            builder.stores = stores.to_vec();
        }
        if let Some(prefix) = file.prefix() {
            builder.prefix = prefix.to_owned();
        }
        builder.rollout = file.rollout().map(|(new, percent)| (new.to_owned(), percent));
        builder.source = Some(source);
        Ok(builder)
    }

    /// The store for usage, as a URL. `memory://` by default.
    #[must_use]
    pub fn store(self, url: impl Into<String>) -> Self {
        self.stores([url])
    }

    /// Several stores, each with a share of the keys. A store that is added takes its share from all others, and no
    /// other key moves.
    #[must_use]
    pub fn stores(mut self, urls: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.stores = urls.into_iter().map(Into::into).collect();
        self.rollout = None;
        self.application = None;
        self.uses_store_of_file = false;
        self
    }

    /// A store of your own, in the place of a URL.
    #[cfg(feature = "redis")]
    #[must_use]
    pub fn key_value_store<K: KeyValueStore>(mut self, store: K) -> Self {
        self = self.store(format!("{APPLICATION_SCHEME}://{}", store.name()));
        self.host_data = store.host_data();
        self.application = Some(application::opener(store));
        self
    }

    /// An old store and a new one: `percent` of the keys use the new one, always the same keys. Usage in the old store is
    /// not copied. [`Limiter::set_rollout`](crate::Limiter::set_rollout) changes the share at run time.
    #[must_use]
    pub fn rollout(mut self, old: impl Into<String>, new: impl Into<String>, percent: f64) -> Self {
        self = self.store(old);
        self.rollout = Some((new.into(), percent));
        self
    }

    /// True if usage will live in this process, so that no call has to wait for an answer.
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
        if let Some(clash) = self.policies.iter().find_map(|other| other.clash(&policy)) {
            return Err(Error::policy(format!("{clash}: give one of them another name")));
        }
        self.policies.push(policy);
        if let Some(source) = &self.source {
            source.refuse_in_code(source.first(), &self.policies)?;
        }
        Ok(self)
    }

    /// The prefix of every key in Redis. `tg` by default.
    #[must_use]
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// A secret of at least 16 bytes for the digests in the names of Redis keys. Without it, anyone with a copy of the data can
    /// check if a guessed key, such as an address, was used. All limiters that share limits need the same secret.
    #[must_use]
    pub fn key_secret(mut self, secret: impl Into<Vec<u8>>) -> Self {
        self.key_secret = Some(secret.into());
        self
    }

    /// The longest time that a call may wait for the store. 250 ms by default.
    #[must_use]
    pub const fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// The answer of a check when the store fails.
    #[must_use]
    pub const fn on_store_error(mut self, choice: OnStoreError) -> Self {
        self.on_store_error = choice;
        self
    }

    /// The longest time that a denial is repeated without asking the store again. 1 s by default, and zero turns it
    /// off. The store would repeat it too, but a clear or a refund by another process is noticed that much later.
    #[must_use]
    pub const fn deny_cache(mut self, longest: Duration) -> Self {
        self.deny_cache = longest;
        self
    }

    /// Called once whenever a store is lost, refuses, or is back, on the thread that noticed it. It should not block.
    #[must_use]
    pub fn on_change(mut self, listener: Arc<dyn Fn(&StoreChange) + Send + Sync>) -> Self {
        self.listener = Some(listener);
        self
    }

    /// Called with each warning that is no change of a store's state, on the thread that noticed it: a hold that is
    /// lost, a server that may evict keys, a memory that had to forget a denial, a warning of [`lint`] about a file
    /// that is loaded, and a refusal if [`Builder::log_refusals`] asks for it. It should not block.
    #[must_use]
    pub fn on_warning(mut self, listener: Arc<dyn Fn(&str) + Send + Sync>) -> Self {
        self.warning_listener = Some(listener);
        self
    }

    /// Logs each refusal as a warning, to `tracing` and to [`Builder::on_warning`]: its policy, its key, the limit that
    /// refused, the wait, and the source of the answer. At most ten lines a second are logged, and the next line counts
    /// the refusals without one. Keys appear as callers gave them. Off by default.
    #[must_use]
    pub const fn log_refusals(mut self, on: bool) -> Self {
        self.log_refusals = on;
        self
    }

    /// The most checks that are sent to Redis as one call, up to 256. With 1, each check is sent alone.
    #[must_use]
    pub fn fold(mut self, checks: usize) -> Self {
        self.fold = checks.clamp(1, MAX_ENTRIES);
        self
    }

    /// A clock for tests. Its time decides instead of the store's.
    #[must_use]
    pub fn clock(mut self, clock: Arc<ManualClock>) -> Self {
        self.clock = Some(clock);
        self
    }

    /// The most callers that wait at the same time, in `acquire` of this limiter or for a hold. 10,000 by default.
    /// Beyond it a call is denied at once.
    #[must_use]
    pub const fn max_waiting(mut self, callers: usize) -> Self {
        self.wait_bounds.all = callers;
        self
    }

    /// The most callers that may wait for one policy and key. 1,000 by default.
    #[must_use]
    pub const fn max_waiting_per_key(mut self, callers: usize) -> Self {
        self.wait_bounds.per_key = callers;
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
}
