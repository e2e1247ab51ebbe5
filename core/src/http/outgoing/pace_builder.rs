//! The options of calls that go out, the same for each client.

use std::fmt;
use std::marker::PhantomData;
use std::time::Duration;

use crate::process::lock::InheritedMutex;

use super::call_turn::{CallCost, SettleReader};
use super::client_exchange::{PacedRequest, PacedResponse};
use super::pacing::{PacedPolicy, Pacing};
use crate::decision::Decision;
use crate::error::{Error, Result};
use crate::http::MAX_LEARNED_WAIT;
use crate::http::named_policy::NamedPolicy;
use crate::limiter::{AsPolicy, AsyncLimiter, CheckOptions, Cost};

/// The longest time that a request waits, unless the user gives another.
const TIMEOUT: Duration = Duration::from_secs(30);
/// How much the time to reach a service may differ, unless the user gives another margin.
const MARGIN: Duration = Duration::from_millis(50);

/// Makes a client's layer or middleware with options.
///
/// Each function gets the head of the request or of the response. Without a policy, only the limits that responses announce apply.
#[must_use]
pub struct PaceBuilder<T> {
    pacing: Pacing,
    /// The cost and the class of all requests, if they are the same for all.
    cost: Option<Cost>,
    class: Option<String>,
    /// The most redirects that a client follows, if it follows any.
    pub(crate) redirects: u32,
    client: PhantomData<fn() -> T>,
}

impl<T> PaceBuilder<T> {
    pub(crate) fn new(limiter: &AsyncLimiter) -> Self {
        let pacing = Pacing {
            limiter: limiter.clone(),
            policy: PacedPolicy::Learned,
            key: None,
            cost: None,
            priority: None,
            settle: None,
            on_wait: None,
            timeout: Some(TIMEOUT),
            retries: 0,
            learn: true,
            margin: MARGIN,
            max_learned_wait: MAX_LEARNED_WAIT,
            prefix: "out:".to_owned(),
            respond: false,
            prepared: InheritedMutex::new(None),
            _use: None,
        };
        Self { pacing, cost: Some(1.into()), class: None, redirects: 0, client: PhantomData }
    }

    /// Sets the policy of all requests: a name, a notation, or a `Policy`.
    pub fn policy(mut self, policy: impl AsPolicy) -> Self {
        self.pacing.policy = PacedPolicy::Named(NamedPolicy::of(&policy));
        self
    }

    /// Sets a function for the policy of a request. With `None` only the limits that responses announce apply.
    pub fn policy_by<P: AsPolicy>(
        mut self,
        read: impl Fn(&PacedRequest<'_>) -> Option<P> + Send + Sync + 'static,
    ) -> Self {
        self.pacing.policy =
            PacedPolicy::Read(Box::new(move |request| read(request).map(|policy| NamedPolicy::of(&policy))));
        self
    }

    /// Sets the key of all requests. By default the key of a request is its origin, such as `https://api.example.com`. If the
    /// client follows a redirect here, the key of the next request is the new origin.
    pub fn key(self, key: impl Into<String>) -> Self {
        let key = key.into();
        self.key_by(move |_| key.clone())
    }

    /// Sets a function for the key of a request. After a redirect to another origin its key counts only if it is a new one.
    pub fn key_by(mut self, read: impl Fn(&PacedRequest<'_>) -> String + Send + Sync + 'static) -> Self {
        self.pacing.key = Some(Box::new(read));
        self
    }

    /// Sets the prefix of each key. The default is `out:`.
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.pacing.prefix = prefix.into();
        self
    }

    /// Sets the units that each request takes. The default is 1. Write numbers by the names of units as
    /// `Cost::from([("tokens", 1_200)])`.
    pub fn cost(mut self, cost: impl Into<Cost>) -> Self {
        let cost = cost.into();
        self.cost = Some(cost.clone());
        self.pacing.cost = Some(Box::new(move |_| cost.clone()));
        self
    }

    /// Sets a function for the units that a request takes.
    pub fn cost_by<C: Into<Cost>>(mut self, read: impl Fn(&PacedRequest<'_>) -> C + Send + Sync + 'static) -> Self {
        self.cost = None;
        self.pacing.cost = Some(Box::new(move |request| read(request).into()));
        self
    }

    /// Sets the class of all requests, one of the [`priorities`](crate::Options::priorities) of the policy.
    pub fn priority(mut self, class: impl Into<String>) -> Self {
        let class = class.into();
        self.class = Some(class.clone());
        self.pacing.priority = Some(Box::new(move |_| Some(class.clone())));
        self
    }

    /// Sets a function for the class of a request. `None` is no class.
    pub fn priority_by(mut self, read: impl Fn(&PacedRequest<'_>) -> Option<String> + Send + Sync + 'static) -> Self {
        self.class = None;
        self.pacing.priority = Some(Box::new(read));
        self
    }

    /// Sets a function for the actual cost of a call. It gets the head of the response, and the call is settled at the end of the
    /// body. `None` leaves the charge as it is.
    pub fn settle<C: Into<Cost>>(
        mut self,
        read: impl Fn(&PacedResponse<'_>) -> Option<C> + Send + Sync + 'static,
    ) -> Self {
        self.pacing.settle = Some(Box::new(move |response| {
            read(response).map_or(CallCost::Charged, |cost| CallCost::Known(cost.into()))
        }));
        self
    }

    /// Sets a function for the reader that finds the actual cost in the body while the caller reads it. `None` leaves the charge as it is.
    pub fn settle_by_body<R: SettleReader + 'static>(
        mut self,
        read: impl Fn(&PacedResponse<'_>) -> Option<R> + Send + Sync + 'static,
    ) -> Self {
        self.pacing.settle = Some(Box::new(move |response| {
            read(response).map_or(CallCost::Charged, |reader| CallCost::Read(Box::new(reader)))
        }));
        self
    }

    /// Sets the longest time that a request waits, for its turns and between its attempts. The default is 30 seconds. With `None` it
    /// waits for as long as it takes.
    pub fn timeout(mut self, timeout: impl Into<Option<Duration>>) -> Self {
        self.pacing.timeout = timeout.into();
        self
    }

    pub(crate) fn sent_again(mut self, retries: u32) -> Self {
        self.pacing.retries = retries;
        self
    }

    /// Set it to `false` to ignore the limits that responses announce. The default is `true`.
    pub const fn learn(mut self, learn: bool) -> Self {
        self.pacing.learn = learn;
        self
    }

    /// Sets how much the time to reach the service may differ between two requests. The windows of the policy grow by twice that. The
    /// default is 50 ms.
    pub const fn margin(mut self, margin: Duration) -> Self {
        self.pacing.margin = margin;
        self
    }

    /// Sets the longest wait that a response may ask for. The default is an hour.
    pub const fn max_learned_wait(mut self, wait: Duration) -> Self {
        self.pacing.max_learned_wait = wait;
        self
    }

    /// Sets a function that is called with the Decision and its wait before a request waits.
    pub fn on_wait(mut self, listen: impl Fn(&Decision, Duration) + Send + Sync + 'static) -> Self {
        self.pacing.on_wait = Some(Box::new(listen));
        self
    }

    /// Set it to `true` to get a response with 429 and `x-should-retry: false` for a refusal, instead of an error.
    pub const fn respond(mut self, respond: bool) -> Self {
        self.pacing.respond = respond;
        self
    }

    /// Uses the same options for another client.
    pub(crate) fn of_client<U>(self) -> PaceBuilder<U> {
        PaceBuilder {
            pacing: self.pacing,
            cost: self.cost,
            class: self.class,
            redirects: self.redirects,
            client: PhantomData,
        }
    }

    pub(crate) fn pacing(self, owner: &str) -> Result<Pacing> {
        let Self { mut pacing, cost, class, .. } = self;
        match &pacing.policy {
            PacedPolicy::Learned if !pacing.learn => {
                return Err(Error::config(
                    "without a policy and with learn false nothing is limited: give a policy, or leave learn out",
                ));
            }
            PacedPolicy::Named(policy) => {
                let policy = policy.as_policy();
                pacing.prepare(Some(policy))?;
                let in_force = pacing.limiter.find_policy(&policy, "")?;
                let cost = cost.unwrap_or_else(|| Cost::of_each(&in_force, 1));
                in_force.check_options(&CheckOptions { priority: class, ..cost.into() })?;
                pacing._use = Some(pacing.limiter.use_policy(policy, owner)?);
            }
            PacedPolicy::Learned | PacedPolicy::Read(_) => {}
        }
        Ok(pacing)
    }
}

impl<T> fmt::Debug for PaceBuilder<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PaceBuilder").finish_non_exhaustive()
    }
}
