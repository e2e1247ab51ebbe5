//! Units in progress. They are renewed while the hold lives, and given back when it is dropped, also by a panic.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;

use super::actual_costs::ActualCosts;
use super::cost::Cost;
use super::hold_lifetime::HoldLifetime;
use super::operations::{CheckOptions, rank, whole_operation};
use super::policy_ref::AsPolicy;
use super::{AsyncLimiter, LimiterCore};
use crate::algorithm::HoldId;
use crate::decision::Decision;
use crate::error::Result;
use crate::plan::Plan;
use crate::process::fork;
use crate::process::waits::Waits;
use crate::store::request::Operation;

/// Units of a `concurrency` limit. Drop it to give them back.
///
/// ```
/// use tidegate::{HoldAnswer, Limiter};
///
/// let limiter = Limiter::builder().policy("exports", "concurrency 1 ttl 30s")?.build()?;
/// let hold = limiter.hold("exports", "alice", 1)?.held().expect("nothing else runs");
/// if let HoldAnswer::Denied(full) = limiter.hold("exports", "alice", 1)? {
///     println!("full, try again in {:?}", full.retry_after());
/// }
/// drop(hold);
/// assert!(limiter.hold("exports", "alice", 1)?.held().is_some());
/// # Ok::<(), tidegate::Error>(())
/// ```
#[must_use = "the units are given back when the hold is dropped"]
pub struct Hold {
    core: Arc<LimiterCore>,
    id: HoldId,
    decision: Decision,
    lifetime: Arc<HoldLifetime>,
    /// True if dropping it may block the thread.
    blocking: bool,
    /// Receives a message when the store has answered that the units were given back.
    released: Option<oneshot::Sender<()>>,
    /// The process that took it. A copy of it in a forked child gives nothing back.
    process: u64,
}

impl Hold {
    /// Makes the hold for a check that began at `began`, by the time of the renewer.
    ///
    /// # Errors
    /// `closed` when the limiter was closed meanwhile.
    fn new(core: &Arc<LimiterCore>, id: HoldId, decision: Decision, began: Duration, blocking: bool) -> Result<Self> {
        let lifetime = core.hold_renewer.add(core, id, &decision, began)?;
        let (core, process) = (Arc::clone(core), fork::generation());
        Ok(Self { core, id, decision, lifetime, blocking, released: None, process })
    }

    /// The Decision that admitted it.
    #[must_use]
    pub const fn decision(&self) -> &Decision {
        &self.decision
    }

    /// The limiter that holds it.
    #[doc(hidden)]
    #[must_use]
    pub fn limiter(&self) -> AsyncLimiter {
        AsyncLimiter { core: Arc::clone(&self.core) }
    }

    /// Fails if the limiter is closed, because that has given the units back.
    ///
    /// # Errors
    /// `closed`.
    #[doc(hidden)]
    pub fn check_open(&self) -> Result<()> {
        self.core.open()
    }

    /// True if you cannot rely on the units any more. Either the store answered a renewal that it does not have the
    /// hold, or no renewal has succeeded for its ttl, and the store may have given the units to others. A renewal that
    /// fails is logged, counted and tried again. If it succeeds in time, the hold is not lost. A lost hold stays lost.
    ///
    /// A hold is renewed three times within its ttl, so a hold that was cleared is found to be lost within a third of
    /// it. While the store is lost, the fallback of `on_store_error` renews the holds that it gave. The store does not
    /// know those, and they are lost when it is back.
    #[must_use]
    pub fn lost(&self) -> bool {
        self.core.hold_renewer.is_lost(&self.core, self.decision.plan(), &self.lifetime)
    }

    /// After the work: charges or refunds the difference between the charge of the other limits and the actual cost,
    /// once. A hold that is not settled keeps its charge. Held units stay held. On a thread, call
    /// [`Limiter::settle`](crate::Limiter::settle) with [`Self::decision`].
    ///
    /// ```
    /// use tidegate::{Cost, Limiter};
    ///
    /// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
    /// let limiter = Limiter::builder().policy("llm", "concurrency 2 ttl 30s; 1000 tokens/minute")?.build_async()?;
    /// let hold = limiter.hold("llm", "alice", Cost::from([("tokens", 500)])).await?.held().expect("nothing else runs");
    /// hold.settle(Cost::from([("tokens", 120)])).await?;
    /// hold.release().await;
    /// let seen = limiter.peek("llm", "alice", Cost::from([("tokens", 1)])).await?;
    /// assert_eq!(seen.limits().map(|limit| limit.remaining).collect::<Vec<_>>(), [2, 880]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`Limiter::settle`](crate::Limiter::settle).
    ///
    /// # Cancel safety
    /// The hold is settled once the future was polled, even if it is dropped before the answer.
    pub async fn settle(&self, actual: impl Into<Cost>) -> Result<()> {
        let actual = actual.into();
        self.core.settle(&self.decision, ActualCosts::One(actual), Waits::TASK).await
    }

    /// Gives the units back and waits for the store's answer. Dropping the hold does not wait. If the store cannot be
    /// reached, the ttl gives them back.
    ///
    /// # Cancel safety
    /// The units are given back even if the future is dropped, polled or not.
    pub async fn release(mut self) {
        let (released, answered) = oneshot::channel();
        (self.blocking, self.released) = (false, Some(released));
        drop(self);
        // A closed store does not answer, so there is nothing to wait for then.
        let _ = answered.await;
    }
}

impl std::fmt::Debug for Hold {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Hold").field("decision", &self.decision).finish_non_exhaustive()
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        if self.process != fork::generation() {
            return;
        }
        // First, so that a limiter which closes gives it back, or waits until it has gone back.
        let _counted = self.core.counted();
        self.core.hold_renewer.remove(self.id);
        let key = self.decision.key();
        let plan = &self.core.current(self.decision.plan(), key);
        // If the store cannot be reached, the ttl gives the units back.
        if self.blocking {
            let _ = self.core.run_here(Arc::clone(plan), key, Operation::Close { hold: self.id });
        } else {
            close(&self.core, plan, key, self.id, self.released.take());
        }
    }
}

/// Gives the units of a hold back without waiting. `released` gets a message when the store has answered.
fn close(
    core: &Arc<LimiterCore>,
    plan: &Arc<Plan>,
    key: &str,
    hold: HoldId,
    mut released: Option<oneshot::Sender<()>>,
) {
    // The receiver is gone when `release` was cancelled.
    let tell = |released: Option<oneshot::Sender<()>>| released.map(|released| released.send(()));
    let make = || {
        let released = released.take();
        move |_| {
            tell(released);
            None
        }
    };
    if core.run(Arc::clone(plan), key, Operation::Close { hold }, Waits::Later((None, make))).is_some() {
        tell(released);
    }
}

impl LimiterCore {
    /// Takes units of a `concurrency` limit, and waits for them.
    pub(crate) async fn hold(
        self: &Arc<Self>,
        policy: &impl AsPolicy,
        key: &str,
        options: &CheckOptions,
        timeout: Option<Duration>,
        waits: Waits,
    ) -> Result<HoldAnswer> {
        let plan = self.plan(policy, key)?;
        let id = self.hold_id();
        let operation = whole_operation("hold", options, &plan, id)?;
        let asked = AskedHold::new(self, &plan, key, id);
        let answer = self.wait_for(&plan, key, (&operation, rank(options, &plan)), timeout, waits).await;
        asked.answered();
        let (decision, began) = answer.inspect_err(|_| self.hold_renewer.remove(id))?;
        if !decision.allowed() {
            self.hold_renewer.remove(id);
            return Ok(HoldAnswer::Denied(decision));
        }
        Hold::new(self, id, decision, began, waits == Waits::Here).map(HoldAnswer::Held)
    }
}

/// A hold that the store was asked for. If it is dropped before the answer, it gives back the units that the store grants.
struct AskedHold<'a> {
    core: &'a Arc<LimiterCore>,
    plan: &'a Arc<Plan>,
    key: &'a str,
    id: HoldId,
    process: u64,
}

impl<'a> AskedHold<'a> {
    fn new(core: &'a Arc<LimiterCore>, plan: &'a Arc<Plan>, key: &'a str, id: HoldId) -> Self {
        if core.layers.is_some() {
            core.hold_renewer.ask(id, plan, key);
        }
        Self { core, plan, key, id, process: fork::generation() }
    }

    /// The answer has come, or an error.
    const fn answered(self) {
        std::mem::forget(self);
    }
}

impl Drop for AskedHold<'_> {
    fn drop(&mut self) {
        if self.process == fork::generation() {
            let _counted = self.core.counted();
            self.core.hold_renewer.remove(self.id);
            close(self.core, self.plan, self.key, self.id, None);
        }
    }
}

/// The answer to `hold`.
#[derive(Debug)]
#[must_use = "the units are given back when the hold is dropped"]
#[non_exhaustive]
pub enum HoldAnswer {
    /// There was room: the units are held.
    Held(Hold),
    /// A limit refused.
    Denied(Decision),
}

impl HoldAnswer {
    /// The hold, if there was room.
    pub fn held(self) -> Option<Hold> {
        match self {
            Self::Held(hold) => Some(hold),
            Self::Denied(_) => None,
        }
    }

    /// The Decision of the limits, in either case.
    #[must_use]
    pub const fn decision(&self) -> &Decision {
        match self {
            Self::Held(hold) => hold.decision(),
            Self::Denied(decision) => decision,
        }
    }
}
