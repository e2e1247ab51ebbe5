//! The turn of a call that goes out. The service that it goes to and its own limits let it pass, in this order.

use std::sync::Arc;
use std::time::Duration;

use once_cell::race::OnceBox;

use super::admission::{Admission, SERVICE};
use crate::decision::Decision;
use crate::error::{ErrorKind, Result};
use crate::http::{Observation, ObservationScope};
use crate::limiter::{
    Answered, AsPolicy, AsyncLimiter, Call, CheckOptions, HoldAnswer, Limiter, LimiterCore, PolicyRef, on_this_thread,
};
use crate::policy::Policy;
use crate::process::waits::Waits;

/// A call that goes out, as its limits are asked.
#[derive(Debug, Clone)]
pub struct OutgoingCall<P> {
    /// Its policy, with the margin of outgoing calls.
    pub policy: P,
    /// Its key.
    pub key: String,
    /// The key for waits that the service imposes on all its callers, if it differs from `key`.
    pub origin: Option<String>,
    /// Its cost and its class.
    pub options: CheckOptions,
}

/// The place of the call's own policy among those that may refuse it.
const OWN: usize = 0;

impl<P: AsPolicy> OutgoingCall<P> {
    /// Limits that are learned from responses know no classes, and a call takes one of each unit that they name.
    pub fn new(policy: P, key: String, origin: Option<String>, options: CheckOptions) -> Self {
        let is_plain = options.units.is_none();
        let mut call = Self { policy, key, origin, options };
        if call.is_learned() {
            call.options = CheckOptions::of_cost(if is_plain { call.options.cost } else { 1 });
        }
        call
    }

    /// True if only the responses of the service limit it.
    pub(crate) fn is_learned(&self) -> bool {
        let PolicyRef::Policy(policy) = self.policy.as_policy() else { return false };
        policy.asks()
    }
}

/// The policy of calls that only the responses of the service limit.
fn learned() -> Result<&'static Policy> {
    static LEARNED: OnceBox<Policy> = OnceBox::new();
    LEARNED.get_or_try_init(|| Policy::learned().map(Box::new))
}

#[doc(hidden)]
impl Limiter {
    /// The turn of a call that memory admits in one step. `None` if the call may have to wait.
    ///
    /// # Errors
    /// As [`Self::turn`].
    pub fn turn_at_once(&self, call: &OutgoingCall<impl AsPolicy>, announces: bool) -> Result<Option<Admission>> {
        let OutgoingCall { policy, key, origin, options } = call;
        if announces || origin.is_some() || self.core.plan(policy, key)?.is_held {
            return Ok(None);
        }
        let decision = self.core.acquire_at_once(policy, key, options)?;
        Ok(decision.map(|decision| Admission::of_turn(decision, None)))
    }

    /// As [`AsyncLimiter::turn`], on this thread.
    ///
    /// # Errors
    /// As `acquire` and `hold`.
    pub fn turn(
        &self,
        call: &OutgoingCall<impl AsPolicy>,
        timeout: Option<Duration>,
        announces: bool,
    ) -> Result<Admission> {
        on_this_thread(turn(&self.core, call, timeout, announces, Waits::Here))
    }

    /// As [`AsyncLimiter::refused_since`], on this thread.
    ///
    /// # Errors
    /// None.
    pub fn refused_since(&self, call: &OutgoingCall<impl AsPolicy>, given_at: Duration) -> Result<Option<Decision>> {
        on_this_thread(refused_since(&self.core, call, given_at, Waits::Here))
    }

    /// As [`AsyncLimiter::learn`], on this thread.
    ///
    /// # Errors
    /// As `check`.
    pub fn learn(
        &self,
        call: &OutgoingCall<impl AsPolicy>,
        observations: Vec<Observation>,
        answered: Option<Answered>,
    ) -> Result<()> {
        on_this_thread(learn(&self.core, call, observations, answered, Waits::Here))
    }
}

#[doc(hidden)]
impl AsyncLimiter {
    /// Waits until a call may go out, at most for `timeout`. An [`Admission`] that [waits](Admission::waits) asks the host to wait
    /// and to ask again. With `announces` the host is also told before the call waits for its own limits. Then it asks
    /// again at once, without `announces`.
    ///
    /// # Errors
    /// As `acquire` and `hold`.
    pub async fn turn(
        &self,
        call: &OutgoingCall<impl AsPolicy>,
        timeout: Option<Duration>,
        announces: bool,
    ) -> Result<Admission> {
        turn(&self.core, call, timeout, announces, Waits::TASK).await
    }

    /// The refusal of the service since a turn was given at that time of the store. A host asks for it if it comes late to a turn, as
    /// a busy event loop does. It asks once, because the second turn may have been refused for the charge of the first.
    ///
    /// # Errors
    /// None.
    pub async fn refused_since(
        &self,
        call: &OutgoingCall<impl AsPolicy>,
        given_at: Duration,
    ) -> Result<Option<Decision>> {
        refused_since(&self.core, call, given_at, Waits::TASK).await
    }

    /// Learns the limits in the response to a call, for the call's key, and for all callers of the service if it says so. A store that is
    /// lost is no error, because the response stands.
    ///
    /// # Errors
    /// As `check`.
    pub async fn learn(
        &self,
        call: &OutgoingCall<impl AsPolicy>,
        observations: Vec<Observation>,
        answered: Option<Answered>,
    ) -> Result<()> {
        learn(&self.core, call, observations, answered, Waits::TASK).await
    }
}

async fn turn(
    core: &Arc<LimiterCore>,
    call: &OutgoingCall<impl AsPolicy>,
    timeout: Option<Duration>,
    announces: bool,
    waits: Waits,
) -> Result<Admission> {
    let OutgoingCall { policy, key, origin, options } = call;
    if let Some(origin) = origin {
        let seen = peek(core, learned()?, origin, CheckOptions::of_cost(1), waits).await?;
        if let Some(wait) = wait_of(&seen) {
            return Ok(Admission::before_turn(seen, SERVICE, timeout.is_none_or(|left| wait <= left)));
        }
    }
    if announces {
        let seen = peek(core, policy, key, options.clone(), waits).await?;
        if wait_of(&seen).is_some() {
            return Ok(Admission::before_turn(seen, OWN, true));
        }
    }
    if core.plan(policy, key)?.is_held {
        return Ok(match core.hold(policy, key, options, timeout, waits).await? {
            HoldAnswer::Held(hold) => Admission::of_turn(hold.decision().clone(), Some(hold)),
            HoldAnswer::Denied(denial) => Admission::before_turn(denial, OWN, false),
        });
    }
    let decision = core.acquire(policy, key, options, timeout, waits).await?;
    Ok(if decision.allowed() {
        Admission::of_turn(decision, None)
    } else {
        Admission::before_turn(decision, OWN, false)
    })
}

async fn peek(
    core: &Arc<LimiterCore>,
    policy: &impl AsPolicy,
    key: &str,
    options: CheckOptions,
    waits: Waits,
) -> Result<Decision> {
    core.call_of(policy, key, &Call::peek(options), waits).await
}

/// How long a denied call has to wait.
fn wait_of(seen: &Decision) -> Option<Duration> {
    seen.retry_after().filter(|_| !seen.allowed())
}

/// A store that fails here does not end the turn that it gave before.
async fn refused_since(
    core: &Arc<LimiterCore>,
    call: &OutgoingCall<impl AsPolicy>,
    given_at: Duration,
    waits: Waits,
) -> Result<Option<Decision>> {
    let OutgoingCall { policy, key, origin, options } = call;
    let refusal = |seen: Result<Decision>| seen.ok().filter(|seen| !seen.allowed() && seen.learned());
    if core.may_be_refused_since(key, given_at)
        && let Some(refusal) = refusal(peek(core, policy, key, options.clone(), waits).await)
    {
        return Ok(Some(refusal));
    }
    Ok(match origin {
        Some(origin) if core.may_be_refused_since(origin, given_at) => {
            refusal(peek(core, learned()?, origin, CheckOptions::of_cost(1), waits).await)
        }
        _ => None,
    })
}

async fn learn(
    core: &Arc<LimiterCore>,
    call: &OutgoingCall<impl AsPolicy>,
    observations: Vec<Observation>,
    answered: Option<Answered>,
    waits: Waits,
) -> Result<()> {
    let told = observations.iter().filter(|said| said.scope == ObservationScope::All);
    let told = told.filter_map(|said| said.retry_after).max();
    let of_key = core.call_of(&call.policy, &call.key, &Call::answered(observations, answered), waits).await;
    unless_lost(of_key)?;
    if let (Some(wait), Some(origin)) = (told, &call.origin) {
        let observation = Observation { retry_after: Some(wait), ..Observation::default() };
        unless_lost(core.call_of(learned()?, origin, &Call::answered(vec![observation], None), waits).await)?;
    }
    Ok(())
}

/// The response stands even if its limits are not learned. The limiter has already reported that a store is lost.
fn unless_lost(learned: Result<Decision>) -> Result<()> {
    match learned {
        Err(error) if !error.kind().is_store() && error.kind() != ErrorKind::Closed => Err(error),
        _ => Ok(()),
    }
}
