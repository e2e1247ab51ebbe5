//! How long a hold can be relied on, by the results of its renewals.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crate::decision::Decision;
use crate::error::{Error, Result};
use crate::plan::Plan;
use crate::policy::Algorithm;
use crate::store::request::{Answer, Source};

/// The keeper of a hold's units.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Keeper {
    /// The store. No other answer renews it.
    Store,
    /// The fallback took the units, and renews them until the store is back.
    Fallback,
    /// Nothing keeps them: a shadow policy did not enforce its denial, or the policy has no `concurrency` limit.
    Nothing,
}

/// The result of a renewal.
pub(super) enum Renewed {
    /// The hold lasts another ttl.
    Kept,
    /// There is no such hold any more: it has expired, or its key was cleared.
    Gone,
    /// The store did not answer, for this reason.
    Failed(Option<Error>),
}

/// The time until which a hold can be relied on, and a mark if it is lost.
#[derive(Debug)]
pub(super) struct HoldLifetime {
    keeper: Keeper,
    /// It lasts at least until then, in microseconds of the renewer's time.
    until: AtomicU64,
    lost: AtomicBool,
}

impl HoldLifetime {
    /// The lifetime of a hold with a check that began at `began`, by the renewer's time.
    pub(super) fn new(decision: &Decision, began: Duration) -> Self {
        let ttl = ttl(decision.plan());
        let keeper = match decision.source() {
            _ if decision.shadow() || ttl.is_none() => Keeper::Nothing,
            Source::Fallback => Keeper::Fallback,
            _ => Keeper::Store,
        };
        let until = AtomicU64::new(micros(began + ttl.unwrap_or_default()));
        Self { keeper, until, lost: AtomicBool::new(false) }
    }

    /// Takes the answer to a renewal that was sent at `sent`. `plan` is the policy as it is now.
    pub(super) fn renewed(&self, plan: &Plan, sent: Duration, result: Result<Answer>) -> Renewed {
        match result {
            _ if self.keeper == Keeper::Nothing => Renewed::Kept,
            Ok(answer) if answer.source == Source::Fallback && self.keeper == Keeper::Store => Renewed::Failed(None),
            // A key with an override that holds nothing has nothing to lose.
            Ok(answer) if answer.applied || plan.overridden.is_some() && (plan.is_unlimited() || !plan.is_held) => {
                let ttl = ttl(plan).or_else(|| ttl(&plan.overridden.as_ref()?.base));
                self.until.store(micros(sent + ttl.unwrap_or_default()), Ordering::Relaxed);
                Renewed::Kept
            }
            Ok(_) => Renewed::Gone,
            Err(error) => Renewed::Failed(Some(error)),
        }
    }

    /// True if its time is over, because nothing has renewed it for its ttl.
    pub(super) fn is_over(&self, now: Duration) -> bool {
        self.keeper != Keeper::Nothing && micros(now) >= self.until.load(Ordering::Relaxed)
    }

    pub(super) fn is_lost(&self) -> bool {
        self.lost.load(Ordering::Relaxed)
    }

    /// Marks it as lost. True if it was not lost before.
    pub(super) fn lose(&self) -> bool {
        !self.lost.swap(true, Ordering::Relaxed)
    }
}

/// The time after which a hold of a policy expires. `None` if nothing expires.
pub(super) fn ttl(plan: &Plan) -> Option<Duration> {
    let limits = plan.policy.limits().iter().filter(|limit| limit.algorithm() == Algorithm::Concurrency);
    limits.map(|limit| Duration::from_micros(limit.period().micros())).min()
}

fn micros(time: Duration) -> u64 {
    time.as_micros() as u64
}
