//! The way of a call through a client of Rust. `flow/outgoing_turn.rs` decides when it may go.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use crate::process::lock::InheritedMutex;
use http::Method;
use http::header::CONTENT_ENCODING;

use super::call_turn::{CallCost, CallTurn};
use super::client_exchange::{ClientExchange, MadeFor, PacedRequest, PacedResponse};
use super::refused_call::{RateLimited, RefusedCall, never_fits};
use crate::decision::Decision;
use crate::error::{Error, ErrorKind, Result};
use crate::flow::{OutgoingCall, random_share};
use crate::http::named_policy::NamedPolicy;
use crate::http::{ObservedResponse, ResponseReader};
use crate::limiter::{Answered, AsPolicy, AsyncLimiter, CheckOptions, Cost, PolicyRef, PolicyUse};
use crate::policy::{Algorithm, Policy};
use crate::process::clock::Signal;

/// A function of the user.
pub(super) type Reads<T> = Box<dyn Fn(&PacedRequest<'_>) -> T + Send + Sync>;
pub(super) type ReadsCost = Box<dyn Fn(&PacedResponse<'_>) -> CallCost + Send + Sync>;
pub(super) type OnWait = Box<dyn Fn(&Decision, Duration) + Send + Sync>;

/// The policy of a request.
pub(super) enum PacedPolicy {
    /// Only the limits that responses announce.
    Learned,
    Named(NamedPolicy),
    Read(Reads<Option<NamedPolicy>>),
}

/// How the calls of one client ask a limiter.
pub(crate) struct Pacing {
    pub(super) limiter: AsyncLimiter,
    pub(super) policy: PacedPolicy,
    /// With `None` the key is the origin of the request.
    pub(super) key: Option<Reads<String>>,
    pub(super) cost: Option<Reads<Cost>>,
    pub(super) priority: Option<Reads<Option<String>>>,
    pub(super) settle: Option<ReadsCost>,
    pub(super) on_wait: Option<OnWait>,
    pub(super) timeout: Option<Duration>,
    pub(super) retries: u32,
    pub(super) learn: bool,
    pub(super) margin: Duration,
    pub(super) max_learned_wait: Duration,
    pub(super) prefix: String,
    pub(super) respond: bool,
    /// The policy that all requests have, as of the newest reload.
    pub(super) prepared: InheritedMutex<Option<Arc<PreparedPolicy>>>,
    pub(super) _use: Option<PolicyUse>,
}

/// A policy with the margin of outgoing calls, and the generation of policies that it was made in.
pub(super) struct PreparedPolicy {
    generation: u64,
    policy: Policy,
}

impl AsPolicy for Arc<PreparedPolicy> {
    fn as_policy(&self) -> PolicyRef<'_> {
        PolicyRef::Policy(&self.policy)
    }
}

type AskedCall = OutgoingCall<Arc<PreparedPolicy>>;

enum Turned {
    Came(Box<CallTurn>),
    Refused(Box<Decision>),
}

impl Pacing {
    /// Sends a request when its turn has come, repeats it as `retries` allows, and returns the response.
    pub(crate) async fn send<E: ClientExchange>(&self, mut exchange: E) -> std::result::Result<E::Response, E::Error> {
        let mut left = self.timeout;
        for attempt in 0_u32.. {
            let began = Instant::now();
            let asked = self.asked(&mut exchange).map_err(E::failed)?;
            let mut is_second = false;
            let turn = loop {
                let left = left.map(|left| left.saturating_sub(began.elapsed()));
                let turn = match self.turn(&asked, left).await.map_err(E::failed)? {
                    Turned::Came(turn) => *turn,
                    Turned::Refused(decision) => return self.refuse(&exchange, *decision),
                };
                // A turn that is dropped before it is sent was not used.
                exchange.ready().await?;
                // The second turn counts, because the first may have been refused for its own charge.
                let refusal = self.limiter.refused_since(&asked, turn.decision().at()).await.map_err(E::failed)?;
                if is_second || refusal.is_none() {
                    break turn;
                }
                turn.give_back().await;
                is_second = true;
            };
            left = left.map(|left| left.saturating_sub(began.elapsed()));
            let may_repeat = attempt < self.retries && is_repeatable(&exchange.request());
            let response = Self::exchanged(&mut exchange, turn, may_repeat).await;
            let (turn, response) = response?;
            let (wait, response) = match exchange.redirected_to(&response) {
                None => self.observe::<E>(&asked, Some(turn.decision()), response).await,
                Some(origin) => {
                    let target = self.redirected(asked, &origin).await;
                    self.observe::<E>(&target, None, response).await
                }
            };
            let again = wait.filter(|wait| {
                let is_again = ResponseReader::allows_retry(E::head(&response).status.as_u16());
                is_again && may_repeat && exchange.is_kept() && left.is_none_or(|left| *wait <= left)
            });
            let cost = self.settle.as_ref().map_or(CallCost::Charged, |read| read(&E::head(&response)));
            let response = match turn.end_with(cost) {
                Some(end) => E::watch(response, end),
                None => response,
            };
            let Some(wait) = again else { return Ok(response) };
            drop(response);
            // Callers that were refused at the same moment come back at different ones.
            let pause = wait + wait.mul_f64(random_share() / 10.0);
            let pause = left.map_or(pause, |left| pause.min(left));
            sleep(pause).await;
            left = left.map(|left| left.saturating_sub(pause));
        }
        unreachable!("a call has fewer than 2^32 attempts")
    }

    /// Sends a request whose turn has come.
    async fn exchanged<E: ClientExchange>(
        exchange: &mut E,
        mut turn: CallTurn,
        keep: bool,
    ) -> std::result::Result<(CallTurn, E::Response), E::Error> {
        turn.sent();
        match exchange.send(keep).await {
            Ok(response) => Ok((turn, response)),
            Err(error) => {
                if E::never_arrived(&error) {
                    turn.give_back().await;
                }
                Err(error)
            }
        }
    }

    fn refuse<E: ClientExchange>(
        &self,
        exchange: &E,
        decision: Decision,
    ) -> std::result::Result<E::Response, E::Error> {
        let misfit = never_fits(&decision);
        if self.respond {
            return Ok(exchange.made(RefusedCall::of(&decision, misfit.as_ref())));
        }
        Err(misfit.map_or_else(|| E::failed(RateLimited::new(decision)), E::failed))
    }

    fn asked<E: ClientExchange>(&self, exchange: &mut E) -> Result<AskedCall> {
        let request = exchange.request();
        let policy = match &self.policy {
            PacedPolicy::Learned => self.prepare(None)?,
            PacedPolicy::Named(policy) => self.prepared(policy)?,
            PacedPolicy::Read(read) => self.prepare(read(&request).as_ref().map(NamedPolicy::as_policy))?,
        };
        let origin = exchange.origin();
        let (key, origin) = match &self.key {
            Some(read) => (read(&request), origin),
            None => {
                let text =
                    "the request names no origin: give one with its URL or the field host, or give the layer a key";
                (origin.ok_or_else(|| Error::config(text))?, None)
            }
        };
        let named = |key: String| format!("{}{key}", self.prefix);
        let cost = self.cost.as_ref().map_or_else(|| 1.into(), |read| read(&request));
        let priority = self.priority.as_ref().and_then(|read| read(&request));
        let options = CheckOptions { priority, ..cost.into() };
        let (mut key, mut origin) = (named(key), origin.map(named));
        if let (Some(asked), Some(made_for)) = (&origin, exchange.made_for()) {
            let first = made_for.get_or_insert_with(|| MadeFor { origin: asked.clone(), key: key.clone() });
            if first.origin != *asked && first.key == key {
                // The key is that of the origin that redirected the call.
                (key, origin) = (asked.clone(), None);
            }
        }
        Ok(AskedCall::new(policy, key, origin, options))
    }

    /// The policy of all requests. A reload may have changed it.
    fn prepared(&self, policy: &NamedPolicy) -> Result<Arc<PreparedPolicy>> {
        let mut prepared = self.prepared.lock();
        let generation = self.limiter.policy_generation();
        match &*prepared {
            Some(known) if known.generation == generation => Ok(Arc::clone(known)),
            _ => {
                let made = self.prepare(Some(policy.as_policy()))?;
                *prepared = Some(Arc::clone(&made));
                Ok(made)
            }
        }
    }

    /// # Errors
    /// `policy_unknown`, `policy_invalid`, and `config_invalid` for a policy that queues calls itself.
    pub(super) fn prepare(&self, policy: Option<PolicyRef<'_>>) -> Result<Arc<PreparedPolicy>> {
        let generation = self.limiter.policy_generation();
        let Some(policy) = policy else {
            return Ok(Arc::new(PreparedPolicy { generation, policy: Policy::learned()? }));
        };
        let policy = self.limiter.policy(policy)?;
        if policy.limits().iter().any(|limit| limit.algorithm() == Algorithm::LeakyBucket) {
            return Err(Error::config(format!(
                "the policy {:?} is a leaky-bucket, which queues calls itself: a request waits here for its turn. For the same \
                 pace write gcra with a burst of 1, as in \"gcra 10/s burst 1\"",
                policy.name()
            )));
        }
        Ok(Arc::new(PreparedPolicy { generation, policy: policy.paced(self.margin)? }))
    }

    async fn turn(&self, asked: &AskedCall, mut left: Option<Duration>) -> Result<Turned> {
        let mut announces = self.on_wait.is_some();
        loop {
            let mut answer = self.limiter.turn(asked, left, announces).await?;
            let decision = answer.decision().clone();
            let wait = decision.retry_after().filter(|_| answer.waits());
            let Some(wait) = wait else {
                let hold = answer.take_holds().pop().map(|(_, hold)| hold);
                return Ok(match answer.refused_by() {
                    None => Turned::Came(Box::new(CallTurn::new(self.limiter.clone(), decision, hold))),
                    Some(_) => Turned::Refused(Box::new(decision)),
                });
            };
            if let Some(on_wait) = &self.on_wait {
                on_wait(&decision, wait);
            }
            if answer.is_refused_by_service() {
                sleep(wait).await;
                left = left.map(|left| left.saturating_sub(wait));
            } else {
                announces = false;
            }
        }
    }

    /// Charges one more call to the origin that has answered, because the client has followed a redirect by itself.
    async fn redirected(&self, asked: AskedCall, origin: &str) -> AskedCall {
        let named = format!("{}{origin}", self.prefix);
        // A key counts for the origin that was asked.
        let target =
            if asked.origin.as_ref() == Some(&named) { asked } else { AskedCall { key: named, origin: None, ..asked } };
        let cost = Cost::from(target.options.clone());
        if let Err(error) = self.limiter.charge(&target.policy, &target.key, cost).await
            && !error.kind().is_store()
            && error.kind() != ErrorKind::Closed
        {
            tracing::warn!(target: "tidegate", %error, "a redirect was not charged");
        }
        target
    }

    /// Learns the limits in a response, and returns the wait that it names.
    async fn observe<E: ClientExchange>(
        &self,
        asked: &AskedCall,
        answered: Option<&Decision>,
        response: E::Response,
    ) -> (Option<Duration>, E::Response) {
        if !(self.learn || self.retries > 0) {
            return (None, response);
        }
        let (mut said, needs_body) = self.read(&E::head(&response), b"");
        let mut response = response;
        if needs_body {
            let (body, read) = E::read(response).await;
            response = read;
            (said, _) = self.read(&E::head(&response), &body.unwrap_or_default());
        }
        let wait = said.wait();
        // If a service states no limit, the next call goes once Tidegate knows that this one was served.
        let is_asked = asked.is_learned() && answered.is_some_and(Decision::learned);
        if self.learn
            && (!said.observations.is_empty() || is_asked)
            && let Err(error) = self.limiter.learn(asked, said.observations, answered.map(Answered::of)).await
        {
            tracing::warn!(target: "tidegate", %error, "the limits in a response were not learned");
        }
        (wait, response)
    }

    /// The limits in a response, and true if its body has to be read for them first.
    fn read(&self, head: &PacedResponse<'_>, body: &[u8]) -> (ObservedResponse, bool) {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let reader = ResponseReader::new(now).max_learned_wait(self.max_learned_wait).status(head.status.as_u16());
        let fields = head.headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes()));
        let fields: Vec<_> = fields.filter(|(name, _)| ResponseReader::reads_field(name)).collect();
        let coding = head.headers.get(CONTENT_ENCODING);
        let is_plain = coding.is_none_or(|coding| coding.as_bytes().eq_ignore_ascii_case(b"identity"));
        let needs_body = is_plain && reader.needs_body(&fields);
        (reader.read(fields, body), needs_body)
    }
}

/// True if it does no harm when a request arrives twice.
fn is_repeatable(request: &PacedRequest<'_>) -> bool {
    let safe = [Method::GET, Method::HEAD, Method::OPTIONS, Method::TRACE, Method::PUT, Method::DELETE];
    safe.contains(request.method) || request.headers.contains_key("idempotency-key")
}

async fn sleep(length: Duration) {
    let signal = Arc::new(Signal::default());
    signal.wait_async(signal.count(), Some(length)).await;
}
