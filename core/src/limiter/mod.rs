//! The limiters that users hold, with policies, a store and a clock.

mod acquire;
mod actual_costs;
mod allowance;
mod build;
mod builder;
mod call;
mod check;
mod check_all;
mod cost;
mod file_watch;
mod hold;
mod hold_lifetime;
mod hold_renewer;
mod learned_waits;
mod limiters;
mod near_limit;
mod notations;
mod observe;
mod operations;
mod overrides;
mod policies;
#[cfg(feature = "tower")]
mod policy_in_force;
mod policy_ref;
mod policy_source;
mod policy_uses;
mod publisher;
mod refusal_log;
mod settle;
mod spans;
mod translation;

pub use actual_costs::{ActualCosts, ChargedEntry};
pub use allowance::Allowance;
pub use builder::{Builder, LIMITER_OPTIONS, LimiterOption, SettingValue};
pub use call::Call;
pub(crate) use call::{gone, on_this_thread};
pub use check_all::CheckEntry;
#[cfg(feature = "tower")]
pub(crate) use cost::valid_cost;
pub use cost::{Cost, Units, check_cost, number_or_units, shared_cost};
pub use hold::{Hold, HoldAnswer};
pub use near_limit::NearLimit;
pub use observe::{Answered, calls_of};
pub use operations::{CALL_OPTIONS, CheckOptions, MAX_META};
pub use overrides::OverriddenKey;
#[cfg(feature = "tower")]
pub(crate) use policy_in_force::PolicyInForce;
pub use policy_ref::{AsPolicy, PolicyRef};
pub use policy_uses::PolicyUse;
pub use settle::{ChargedLimit, ChargedUnits, charge_mark, turn_length};
pub(crate) use settle::{SettleCall, valid_actual};

use std::any::Any;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::Duration;

use crate::algorithm::{HoldId, MAX_SAFE_INTEGER};
use crate::counting::{Counters, Stats};
use crate::decision::LimiterId;
use crate::error::{Error, ErrorKind, Result};
use crate::plan::Plan;
use crate::plan::plan_cache::plan_of;
use crate::policy::{Policy, lint};
use crate::process::clock::{ClockListener, ManualClock};
use crate::process::fork::{ForkListener, PerProcess};
use crate::process::lock::InheritedMutex;
use crate::process::log::Log;
use crate::process::pending_count::PendingCount;
use crate::resilience::{DenialGenerations, Layers};
use crate::store::ForgottenDenials;
use crate::store::Store;
use crate::store::call_context::CallContext;
use crate::store::redis::ReaderRegistry;
use crate::store::request::{Entry, Operation};
use call::Answers;
use file_watch::{FileWatch, ReloadListener};
use hold_renewer::HoldRenewer;
use policies::Policies;
use policy_source::PolicySource;

/// The number of generations of denials.
pub const DENIAL_GENERATIONS: usize = DenialGenerations::COUNT;
/// The longest key, in bytes.
pub const MAX_KEY: usize = 65_536;

/// Checks limits on the calling thread. It is cheap to clone, and clones are the same limiter.
///
/// ```
/// use tidegate::Limiter;
///
/// let limiter = Limiter::builder().policy("login", "20/minute; 5/3s")?.build()?;
/// for _ in 0..5 {
///     assert!(limiter.check("login", "alice")?.allowed());
/// }
/// let denied = limiter.check("login", "alice")?;
/// assert!(!denied.allowed());
/// assert_eq!((denied.limit(), denied.remaining()), (5, 0));
/// assert!(limiter.check("login", "bob")?.allowed());
/// # Ok::<(), tidegate::Error>(())
/// ```
#[derive(Clone)]
pub struct Limiter {
    pub(crate) core: Arc<LimiterCore>,
}

/// Checks limits without blocking. Checks that wait at the same moment are sent to Redis as one call. Cheap to clone.
///
/// ```
/// # let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
/// # runtime.block_on(async {
/// let limiter = tidegate::Limiter::builder().policy("login", "20/minute; 5/3s")?.build_async()?;
/// assert!(limiter.check("login", "alice").await?.allowed());
/// # Ok::<(), tidegate::Error>(())
/// # }).unwrap();
/// ```
#[derive(Clone)]
pub struct AsyncLimiter {
    pub(crate) core: Arc<LimiterCore>,
}

impl Limiter {
    /// This limiter for tasks: both share policies, usage and connections.
    #[must_use]
    pub fn to_async(&self) -> AsyncLimiter {
        AsyncLimiter { core: Arc::clone(&self.core) }
    }

    /// A short description without secrets: its stores, and its number of policies.
    #[must_use]
    pub fn described(&self) -> String {
        let closed = if self.core.open().is_ok() { "" } else { ", closed" };
        format!("of {}, policies: {}{closed}", self.core.shown, self.core.policies.count())
    }
}

/// Shows no secrets.
impl fmt::Debug for Limiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.core.show("Limiter", f)
    }
}

/// Shows no secrets.
impl fmt::Debug for AsyncLimiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.core.show("AsyncLimiter", f)
    }
}

impl AsyncLimiter {
    /// This limiter for threads: both share policies, usage and connections.
    #[must_use]
    pub fn to_blocking(&self) -> Limiter {
        Limiter { core: Arc::clone(&self.core) }
    }
}

/// The limiter makes calls.
const OPEN: u8 = 0;
/// It does, and has a watch that this process has not begun yet.
const FORKED: u8 = 1;
/// It makes no calls any more.
const CLOSED: u8 = 2;

/// The part that both limiters share.
pub(crate) struct LimiterCore {
    pub(crate) store: Arc<dyn Store>,
    policies: Policies,
    clock: Option<Arc<ManualClock>>,
    /// The policy file, if the limiter was made from one.
    source: Option<PolicySource>,
    /// True if its store is that of the file.
    uses_store_of_file: bool,
    /// Held by a reload.
    reloading: InheritedMutex<()>,
    /// The reloads that were taken, and those that were refused.
    reloads: [AtomicU64; 2],
    /// Looks for changes of the file.
    watch: Option<FileWatch>,
    reload_listener: Option<ReloadListener>,
    pub(crate) id: LimiterId,
    pub(crate) answers: Arc<Answers>,
    hold_renewer: HoldRenewer,
    pub(crate) log: Arc<Log>,
    /// [`OPEN`], [`FORKED`] or [`CLOSED`].
    state: AtomicU8,
    /// The calls that take or give back units of a shared store and have no reply yet.
    pending: PendingCount,
    /// The timeout of a call.
    timeout: Duration,
    /// True if its store is a file.
    is_file: bool,
    /// The stores' URLs without secrets.
    shown: String,
    /// The start of every key in Redis.
    prefix: String,
    /// Makes the ids of holds differ between limiters and processes.
    seed: u64,
    /// Holds that were taken, and random numbers that were drawn.
    hold_count: AtomicU64,
    /// The layers around a shared store.
    pub(crate) layers: Option<Layers>,
    /// Data of the host beside its store.
    pub(crate) host_data: Option<Arc<dyn Any + Send + Sync>>,
    /// Counts the denials that a memory store without layers forgot.
    forgotten_denials: Arc<ForgottenDenials>,
    /// The threads or event loops that read replies.
    pub(crate) readers: Arc<PerProcess<ReaderRegistry>>,
}

/// Refuses a number that is no percentage of a rollout, before there is a limiter for it.
///
/// # Errors
/// `config_invalid` for a number that is not from 0 to 100.
pub fn check_percent(percent: f64) -> Result<()> {
    crate::resilience::share_of(percent).map(|_| ())
}

impl LimiterCore {
    #[inline]
    pub(crate) fn open(&self) -> Result<()> {
        if self.state.load(Ordering::Relaxed) == OPEN { Ok(()) } else { self.open_in_child() }
    }

    /// Begins the watch of a process with its first call. A child must not start a thread before that.
    #[cold]
    fn open_in_child(&self) -> Result<()> {
        match self.state.compare_exchange(FORKED, OPEN, Ordering::SeqCst, Ordering::SeqCst) {
            Err(CLOSED) => return Err(Error::new(ErrorKind::Closed, "the limiter is closed: make a new one")),
            Ok(_) => self.watch.iter().for_each(FileWatch::begin),
            // Another thread was first.
            Err(_) => {}
        }
        Ok(())
    }

    #[inline]
    pub(crate) fn plan(&self, policy: &(impl AsPolicy + ?Sized), key: &str) -> Result<Arc<Plan>> {
        self.accept(key)?;
        self.policies.find(policy.as_policy())
    }

    /// Reads the plan without a handle of it.
    #[inline(always)]
    fn with_plan<T>(&self, policy: &(impl AsPolicy + ?Sized), key: &str, read: impl Fn(&Arc<Plan>) -> T) -> Result<T> {
        self.accept(key)?;
        self.policies.with(policy.as_policy(), read)
    }

    /// Refuses a key that is too long, and every key when the limiter is closed.
    #[inline(always)]
    fn accept(&self, key: &str) -> Result<()> {
        self.open()?;
        if key.len() > MAX_KEY {
            return Err(Error::new(
                ErrorKind::KeyInvalid,
                format!("a key has {} bytes: it may have at most {MAX_KEY}", key.len()),
            ));
        }
        Ok(())
    }

    /// The number of callers that wait for a key in `acquire`.
    pub(crate) fn waiting(&self, policy: &impl AsPolicy, key: &str) -> Result<usize> {
        Ok(self.answers.wait_queues.waiting(&*self.plan(policy, key)?, key))
    }

    /// True if another call of this process may have heard that the other side refuses calls of a key, since one was admitted then.
    pub(crate) fn may_be_refused_since(&self, key: &str, at: Duration) -> bool {
        self.answers.learned_waits.may_have_begun_since(key, at.as_micros() as u64)
    }

    /// The time of the clock that was given, or since the limiter was made.
    fn time(&self) -> Duration {
        self.hold_renewer.time(self)
    }

    #[inline]
    fn now(&self) -> Option<u64> {
        self.clock.as_ref().map(|clock| clock.micros())
    }

    /// The context of a call: the time of the clock that was given.
    #[inline]
    pub(crate) fn context(&self) -> CallContext<'static> {
        CallContext::at(self.now())
    }

    fn hold_id(&self) -> HoldId {
        let number = self.hold_count.fetch_add(1, Ordering::Relaxed);
        let mixed = blake3::hash(&[self.seed.to_le_bytes(), number.to_le_bytes()].concat());
        let (head, _) = mixed.as_bytes().split_first_chunk::<8>().unwrap_or((&[0; 8], &[]));
        (u64::from_le_bytes(*head) & MAX_SAFE_INTEGER).max(1)
    }

    /// Settles a check that a fallback answered. The store knows nothing of it.
    pub(crate) fn settle_in_fallback(&self, plan: &Arc<Plan>, key: &str, operation: Operation) {
        if let Some(layers) = &self.layers {
            layers.settle(&Entry { plan, key, operation }, self.now());
        }
    }

    fn set_rollout(&self, percent: f64) -> Result<()> {
        self.open()?;
        match &self.layers {
            Some(layers) => layers.set_rollout(percent),
            None => Err(crate::resilience::no_rollout()),
        }
    }

    fn counters(&self) -> Counters {
        let layers = self.layers.as_ref().map(Layers::counters);
        Counters {
            hold_renewals_failed: self.hold_renewer.failed.load(Ordering::Relaxed),
            reloads: self.reloads[0].load(Ordering::Relaxed),
            reloads_refused: self.reloads[1].load(Ordering::Relaxed),
            acquires_refused: self.answers.wait_queues.refused(),
            holds_lost: self.hold_renewer.lost.load(Ordering::Relaxed),
            ..layers
                .unwrap_or_else(|| Counters { forgotten_denials: self.forgotten_denials.get(), ..Counters::default() })
        }
    }

    fn stats(&self) -> Stats {
        let telemetry = self.layers.as_ref().map(|layers| &layers.telemetry);
        Stats {
            policies: self.answers.decisions.read(),
            store: telemetry.map(|telemetry| telemetry.store_stats()).unwrap_or_default(),
            breaker: telemetry.map(|telemetry| telemetry.conditions()).unwrap_or_default(),
            counters: self.counters(),
        }
    }

    #[inline]
    pub(crate) fn copy_denial_generations(&self, seen: &mut u32, copies: &mut [f64]) {
        if let Some(generations) = self.layers.as_ref().and_then(Layers::denial_generations) {
            generations.copy(seen, copies);
        }
    }

    pub(crate) fn count_repeated(&self, policy: &Policy, times: u64) {
        if let Some(layers) = &self.layers {
            layers.count_repeated(times);
            self.answers.decisions.count_repeated(&plan_of(policy), times);
        }
    }

    fn show(&self, name: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct(name)
            .field("stores", &self.shown)
            .field("policies", &self.policies.count())
            .field("closed", &self.open().is_err())
            .finish_non_exhaustive()
    }

    fn reload(&self) -> Result<()> {
        self.open()?;
        let reloaded = self.try_reload();
        self.reloads[usize::from(reloaded.is_err())].fetch_add(1, Ordering::Relaxed);
        if let (Ok(()), Some(listener)) = (&reloaded, &self.reload_listener) {
            listener();
        }
        reloaded
    }

    fn try_reload(&self) -> Result<()> {
        let source = self.source.as_ref().ok_or_else(|| {
            Error::config("only a limiter that was made from a policy file can reload: make it from the file")
        })?;
        // The last of several reloads is the last that reads.
        let _reloading = self.reloading.lock();
        let file = source.reread(self.uses_store_of_file, &self.prefix)?;
        source.refuse_in_code(&file, self.policies.in_code())?;
        file.policies().iter().try_for_each(|policy| self.store.accepts(&plan_of(policy)))?;
        let replaced = self.policies.replace(file.policies()).map_err(|gone| {
            source.refusal(&format!(
                "the file has no longer a policy that is in use: {gone}. Keep it in the file, or remove its uses and restart"
            ))
        });
        if replaced.is_ok() {
            self.policies.each(|plan| self.answers.decisions.begin(plan));
            self.log.file_warnings(&lint(&file));
        }
        replaced
    }

    fn use_policy(&self, policy: PolicyRef<'_>, by: &str) -> Result<PolicyUse> {
        self.open()?;
        self.policies.register_use(policy, by)
    }
}

impl ClockListener for LimiterCore {
    fn time_changed(&self) {
        self.hold_renewer.renew(self);
        if let Some(layers) = &self.layers {
            layers.time_changed();
        }
    }
}

impl Drop for LimiterCore {
    /// No caller waits any more or has a hold, because it would keep the limiter.
    fn drop(&mut self) {
        if self.begin_closing().is_some() {
            self.store.close();
        }
    }
}

/// A forked child starts at zero.
impl ForkListener for LimiterCore {
    fn forked(&self) {
        self.answers.decisions.forked();
        for count in self.reloads.iter().chain([&self.hold_renewer.failed, &self.hold_renewer.lost]) {
            count.store(0, Ordering::Relaxed);
        }
        if self.watch.is_some() {
            let _ = self.state.compare_exchange(OPEN, FORKED, Ordering::SeqCst, Ordering::SeqCst);
        }
        self.answers.wait_queues.forget_refused();
        self.forgotten_denials.reset();
        if let Some(layers) = &self.layers {
            layers.telemetry.forked();
        }
    }
}
