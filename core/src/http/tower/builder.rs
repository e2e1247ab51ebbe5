//! The options of a layer.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use http::request::Parts;
use http::{Extensions, Method, Response, response};

use super::notation_place;
use super::peer::{PeerAddress, known_peer};
use super::request_key::RequestKey;
use super::request_limits::{RequestCost, RequestLimits, each_once, is_in_place};
use super::service::RateLimitLayer;
use crate::decision::Decision;
use crate::error::{Error, Result};
use crate::http::Headers;
use crate::http::named_policy::NamedPolicy;
use crate::limiter::{AsPolicy, AsyncLimiter, Cost, Units};
use crate::policy::Policy;

/// Turns the limits off in a whole process, for tests: `TIDEGATE_ENABLED=false`.
const ENABLED: &str = "TIDEGATE_ENABLED";

impl RateLimitLayer {
    /// Limits each client address: `RateLimitLayer::new(&limiter, "gcra 2/s burst 5")`.
    ///
    /// # Errors
    /// As [`RateLimitLayerBuilder::build`].
    pub fn new(limiter: &AsyncLimiter, policy: impl AsPolicy) -> Result<Self> {
        Self::builder(limiter).policy(policy).build()
    }

    /// A layer with options.
    pub fn builder(limiter: &AsyncLimiter) -> RateLimitLayerBuilder {
        RateLimitLayerBuilder::new(limiter)
    }
}

/// Makes a [`RateLimitLayer`] with options. Every function gets the head of the request or of the response.
///
/// ```
/// use tidegate::Limiter;
/// use tidegate::http::tower::{RateLimitLayer, RequestKey};
///
/// let limiter = Limiter::builder().policy("address", "100/minute")?.policy("key", "10/s")?.build_async()?;
/// // Both are asked in one round trip, and charged together or not at all.
/// let layer = RateLimitLayer::builder(&limiter)
///     .policy_with_key("key", RequestKey::header("X-API-Key")?)
///     .policy("address")
///     .key(RequestKey::client_ip_behind(["10.0.0.0/8"])?)
///     .cost_by(|request| if request.uri.path().ends_with("/export") { 10 } else { 1 })
///     .skip(|request| request.uri.path() == "/health")
///     .build()?;
/// # let _ = layer;
/// # Ok::<(), tidegate::Error>(())
/// ```
#[must_use]
pub struct RateLimitLayerBuilder {
    limits: RequestLimits,
    enabled: Option<bool>,
    /// The class of all requests.
    class: Option<String>,
}

impl fmt::Debug for RateLimitLayerBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RateLimitLayerBuilder").field("limiter", &self.limits.limiter).finish_non_exhaustive()
    }
}

impl RateLimitLayerBuilder {
    fn new(limiter: &AsyncLimiter) -> Self {
        let limits = RequestLimits {
            limiter: limiter.clone(),
            policies: Vec::new(),
            policies_by: None,
            key: RequestKey::default(),
            peer: Box::new(known_peer),
            cost: RequestCost::Fixed(1.into()),
            priority: None,
            meta: None,
            skip: None,
            methods: None,
            headers: Headers::default(),
            on_denied: None,
            refund_when: None,
            settle: None,
            settle_at_end: None,
            place: None,
            enabled: true,
            _places: Vec::new(),
        };
        Self { limits, enabled: None, class: None }
    }

    /// Adds a policy: the name of one, a notation, or a `Policy`. A request must be admitted by all its policies. Then
    /// all are charged, else none is.
    pub fn policy(mut self, policy: impl AsPolicy) -> Self {
        self.limits.policies.push((NamedPolicy::of(&policy), None));
        self
    }

    /// Adds a policy with its own key.
    pub fn policy_with_key(mut self, policy: impl AsPolicy, key: RequestKey) -> Self {
        self.limits.policies.push((NamedPolicy::of(&policy), Some(key)));
        self
    }

    /// Adds the policies that a function names for a request: `None` for no limit, one, or several. So a plan or a tier
    /// of the caller can decide. A name that the limiter does not have is an error: 500, and a line in the log.
    ///
    /// The function cannot wait. If it needs something from a database, an outer layer loads it and leaves it in the
    /// extensions of the request:
    ///
    /// ```
    /// use tidegate::http::tower::RateLimitLayer;
    /// use tidegate::{Limiter, Policy};
    ///
    /// #[derive(Clone)]
    /// struct Tenant {
    ///     policy: Policy,
    /// }
    ///
    /// let limiter = Limiter::builder().build_async()?;
    /// let layer = RateLimitLayer::builder(&limiter)
    ///     .policy_by(|request| request.extensions.get::<Tenant>().map(|tenant| tenant.policy.clone()))
    ///     .build()?;
    /// # let _ = layer;
    /// # Ok::<(), tidegate::Error>(())
    /// ```
    pub fn policy_by<P, L>(mut self, read: impl Fn(&Parts) -> L + Send + Sync + 'static) -> Self
    where
        P: AsPolicy,
        L: IntoIterator<Item = P>,
    {
        self.limits.policies_by =
            Some(Box::new(move |request| read(request).into_iter().map(|policy| NamedPolicy::of(&policy)).collect()));
        self
    }

    /// The budget that a request uses. The default is that of the client address.
    pub fn key(mut self, key: RequestKey) -> Self {
        self.limits.key = key;
        self
    }

    /// Reads the address of the client from the request's extensions, where the server left it. Without this function the
    /// layer knows `SocketAddr` and [`PeerAddress`], and with the features `axum` and `tonic` the types of these frameworks.
    pub fn peer<P: Into<PeerAddress>>(
        mut self,
        read: impl Fn(&Extensions) -> Option<P> + Send + Sync + 'static,
    ) -> Self {
        self.limits.peer = Box::new(move |extensions| read(extensions).map(Into::into));
        self
    }

    /// The units that a request consumes. The default is 1. If you give numbers by the names of units, as in
    /// `Cost::from([("tokens", 1_200)])`, each policy takes those that it counts. A limit without a unit takes the
    /// number for `cost`, or 1.
    pub fn cost(mut self, cost: impl Into<Cost>) -> Self {
        self.limits.cost = RequestCost::Fixed(cost.into());
        self
    }

    /// The units that a request consumes, by request. A request that costs 0, such as an empty batch, is not limited.
    pub fn cost_by(mut self, read: impl Fn(&Parts) -> u64 + Send + Sync + 'static) -> Self {
        self.limits.cost = RequestCost::Read(Box::new(move |request| read(request).into()));
        self
    }

    /// The numbers by the names of units, by request, as for [`RateLimitLayerBuilder::cost`].
    pub fn units_by(mut self, read: impl Fn(&Parts) -> Units + Send + Sync + 'static) -> Self {
        self.limits.cost = RequestCost::Read(Box::new(move |request| read(request).into()));
        self
    }

    /// The class of all requests, one of the [`priorities`](crate::Options::priorities) of a policy. With several
    /// policies it is for those that have classes.
    pub fn priority(mut self, class: impl Into<String>) -> Self {
        self.class = Some(class.into());
        self
    }

    /// The class of a request. `None` if it has none.
    pub fn priority_by(mut self, read: impl Fn(&Parts) -> Option<String> + Send + Sync + 'static) -> Self {
        self.limits.priority = Some(Box::new(read));
        self
    }

    /// A note about a request, which the journal of a policy keeps.
    pub fn meta<M: Into<Vec<u8>>>(mut self, read: impl Fn(&Parts) -> Option<M> + Send + Sync + 'static) -> Self {
        self.limits.meta = Some(Box::new(move |request| read(request).map(Into::into)));
        self
    }

    /// Requests for which this is true are not limited.
    pub fn skip(mut self, read: impl Fn(&Parts) -> bool + Send + Sync + 'static) -> Self {
        self.limits.skip = Some(Box::new(read));
        self
    }

    /// Only requests with these methods are limited. GET includes HEAD, because its handler answers both.
    pub fn methods(mut self, methods: impl IntoIterator<Item = Method>) -> Self {
        let mut methods: Vec<Method> = methods.into_iter().collect();
        if methods.contains(&Method::GET) {
            methods.push(Method::HEAD);
        }
        self.limits.methods = Some(methods);
        self
    }

    /// The choice of fields that announce the limits.
    pub fn headers(mut self, headers: Headers) -> Self {
        self.limits.headers = headers;
        self
    }

    /// Answers a refused request in place of the problem document. `None` keeps that document. The fields of the limits
    /// are added. A response with the status 200, which is the default, gets the status of the refusal, except in gRPC.
    pub fn on_denied(
        mut self,
        answer: impl Fn(&Parts, &Decision) -> Option<Response<Bytes>> + Send + Sync + 'static,
    ) -> Self {
        self.limits.on_denied = Some(Box::new(answer));
        self
    }

    /// Responses for which this is true cost nothing: their units are given back. Nothing is given back if the service
    /// panics, or if the client leaves before there is a response.
    pub fn refund_when(mut self, read: impl Fn(&response::Parts) -> bool + Send + Sync + 'static) -> Self {
        self.limits.refund_when = Some(Box::new(read));
        self
    }

    /// The actual cost, once the head of the response is known. `None` leaves the charge.
    pub fn settle(mut self, read: impl Fn(&response::Parts) -> Option<u64> + Send + Sync + 'static) -> Self {
        self.limits.settle = Some(Box::new(move |response| read(response).map(Into::into)));
        self
    }

    /// The same by the names of units. A unit that is not named keeps its charge.
    pub fn settle_units(mut self, read: impl Fn(&response::Parts) -> Option<Units> + Send + Sync + 'static) -> Self {
        self.limits.settle = Some(Box::new(move |response| read(response).map(Into::into)));
        self
    }

    /// The actual cost, once the body of the response has ended or the client has gone. The handler leaves a counter in
    /// the extensions of its response. `None` leaves the charge. A request that [`RateLimitLayerBuilder::settle`] has
    /// settled is not settled again.
    pub fn settle_at_end(mut self, read: impl Fn(&response::Parts) -> Option<u64> + Send + Sync + 'static) -> Self {
        self.limits.settle_at_end = Some(Box::new(move |response| read(response).map(Into::into)));
        self
    }

    /// The same by the names of units. A unit that is not named keeps its charge.
    pub fn settle_units_at_end(
        mut self,
        read: impl Fn(&response::Parts) -> Option<Units> + Send + Sync + 'static,
    ) -> Self {
        self.limits.settle_at_end = Some(Box::new(move |response| read(response).map(Into::into)));
        self
    }

    /// The name under which this layer counts notations. It is the same in every process and after a deploy. The key of a
    /// client is then `<place> <key>`, for `clear` and `peek`. Policies with a name are one limit wherever they are used.
    pub fn place(mut self, place: impl Into<String>) -> Self {
        self.limits.place = Some(place.into());
        self
    }

    /// `false` turns the layer off, for tests. Without it the environment variable `TIDEGATE_ENABLED` decides.
    pub const fn enabled(mut self, enabled: bool) -> Self {
        self.enabled = Some(enabled);
        self
    }

    /// The layer.
    ///
    /// # Errors
    /// `policy_unknown` and `policy_invalid`. `cost_invalid` for a cost of 0, for a policy that counts units which the
    /// cost does not name, and for a unit that no policy counts. `config_invalid` for a layer without a policy, an
    /// empty list of methods, an unknown value of `TIDEGATE_ENABLED`, and a notation that another layer of the limiter
    /// counts under the same name.
    pub fn build(self) -> Result<RateLimitLayer> {
        let mut limits = self.limits;
        limits.enabled = match self.enabled {
            Some(enabled) => enabled,
            None => enabled_by_environment()?,
        };
        if limits.policies.is_empty() && limits.policies_by.is_none() {
            return Err(Error::config("the layer has no policy, so it would limit nothing: add .policy(\"5/minute\")"));
        }
        if limits.methods.as_ref().is_some_and(Vec::is_empty) {
            return Err(Error::config(
                "the list of methods is empty, so the layer would limit nothing: name a method, or leave the list out",
            ));
        }
        if limits.place.as_ref().is_some_and(String::is_empty) {
            return Err(Error::config("the place of the layer is an empty text: give it a name, or leave it out"));
        }
        let limiter = Arc::as_ptr(&limits.limiter.core) as usize;
        let policies: Vec<Policy> =
            limits.policies.iter().map(|(policy, _)| limits.limiter.policy(policy)).collect::<Result<_>>()?;
        let sharing = limits.policies.iter().zip(&policies).filter(|((_, own), _)| own.is_none());
        each_once(sharing.map(|(_, policy)| policy))?;
        if let RequestCost::Fixed(cost) = &limits.cost {
            can_be_asked(cost, &policies, limits.policies_by.is_some())?;
        }
        if let Some(class) = self.class {
            if limits.policies_by.is_none() {
                has_class(&class, &policies)?;
            }
            limits.priority = Some(Box::new(move |_| Some(class.clone())));
        }
        for policy in policies {
            if is_in_place(&policy) {
                limits._places.push(notation_place::claim(
                    limiter,
                    limits.place.as_deref().unwrap_or_default(),
                    policy.name(),
                )?);
            }
        }
        Ok(RateLimitLayer::of(limits))
    }
}

/// # Errors
/// `config_invalid` for a class that no request could have.
fn has_class(class: &str, policies: &[Policy]) -> Result<()> {
    let mut classed =
        policies.iter().filter_map(|policy| Some((policy, policy.options().priorities.as_ref()?))).peekable();
    if classed.peek().is_none() {
        return Err(Error::config(format!(
            "the layer has the priority {class:?}, and no policy has classes: declare them with the option priorities"
        )));
    }
    classed.try_for_each(|(policy, priorities)| priorities.part_of(class, policy.name()).map(drop))
}

/// # Errors
/// `cost_invalid`, with advice, if every request would be refused for its cost. `more` is true if a request may have more policies.
fn can_be_asked(cost: &Cost, policies: &[Policy], more: bool) -> Result<()> {
    if !more {
        cost.check_counted(policies.iter())?;
    }
    for policy in policies {
        crate::limiter::check_cost(policy, &cost.share_of(policy)).map_err(|error| {
            let message = format!(
                "{}: give the layer such a cost, as in .cost([(\"tokens\", 1_200)]), or a function of the request with .units_by",
                error.message()
            );
            Error::new(error.kind(), message)
        })?;
    }
    if policies.is_empty() && cost.is_number() { crate::limiter::valid_cost(cost.number()).map(drop) } else { Ok(()) }
}

fn enabled_by_environment() -> Result<bool> {
    let Some(value) = std::env::var_os(ENABLED) else { return Ok(true) };
    match value.to_string_lossy().trim().to_ascii_lowercase().as_str() {
        "" | "1" | "true" | "yes" | "on" => Ok(true),
        "0" | "false" | "no" | "off" => Ok(false),
        other => {
            let shown: String = other.chars().take(80).collect();
            Err(Error::config(format!("{ENABLED} is {shown:?}: write true or false")))
        }
    }
}
