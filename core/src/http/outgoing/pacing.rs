//! The way of a call.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use crate::process::lock::InheritedMutex;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE, HeaderMap};
use http::{Method, StatusCode};

use super::call_turn::{CallCost, CallTurn};
use super::client_exchange::{ClientExchange, MadeFor, PacedRequest, PacedResponse};
use super::refused_call::{RateLimited, RefusedCall, never_fits};
use crate::decision::Decision;
use crate::error::{Error, ErrorKind, Result};
use crate::http::named_policy::NamedPolicy;
use crate::http::{Observation, ObservationScope, ResponseReader};
use crate::limiter::{AsPolicy, AsyncLimiter, CheckOptions, Cost, Hold, HoldAnswer, PolicyRef, PolicyUse};
use crate::policy::{Algorithm, Policy};
use crate::process::clock::Signal;

/// A function of the user.
pub(super) type Reads<T> = Box<dyn Fn(&PacedRequest<'_>) -> T + Send + Sync>;
pub(super) type ReadsCost = Box<dyn Fn(&PacedResponse<'_>) -> CallCost + Send + Sync>;
pub(super) type OnWait = Box<dyn Fn(&Decision, Duration) + Send + Sync>;

/// Which policy a request has.
pub(super) enum PacedPolicy {
    /// None but what responses say.
    Learned,
    Named(NamedPolicy),
    Read(Reads<Option<NamedPolicy>>),
}

/// What the calls of one client ask of a limiter.
pub(crate) struct Pacing {
    pub(super) limiter: AsyncLimiter,
    pub(super) policy: PacedPolicy,
    /// `None` is the origin of the request.
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

/// A policy as calls that go out keep it.
pub(super) struct PreparedPolicy {
    generation: u64,
    policy: Policy,
    holds: bool,
    /// Whether nothing but what responses say limits its calls.
    is_learned: bool,
}

/// What a request asks for.
struct AskedCall {
    policy: Arc<PreparedPolicy>,
    key: String,
    /// The key of what the service tells all its callers, where it is another one.
    origin: Option<String>,
    options: CheckOptions,
}

enum Turned {
    Came(Box<CallTurn>),
    Refused(Box<Decision>),
}

impl Pacing {
    /// Sends a request when its turn has come, and again where that is wanted; returns its response.
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
                // The second one counts: the first may have been refused for what it took itself.
                if is_second || !self.is_over(&asked, turn.decision()).await {
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
                let is_again = matches!(E::head(&response).status, TOO_MANY | UNAVAILABLE);
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
        let (policy, is_learned) = match &self.policy {
            PacedPolicy::Learned => (self.prepare(None)?, true),
            PacedPolicy::Named(policy) => (self.prepared(policy)?, false),
            PacedPolicy::Read(read) => match read(&request) {
                None => (self.prepare(None)?, true),
                Some(policy) => (self.prepare(Some(policy.as_policy()))?, false),
            },
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
        let mut cost = self.cost.as_ref().map_or_else(|| 1.into(), |read| read(&request));
        let mut priority = self.priority.as_ref().and_then(|read| read(&request));
        if is_learned {
            // What responses say knows no classes, and a call takes one of each unit that they name.
            priority = None;
            cost = if cost.is_number() { cost } else { 1.into() };
        }
        let options = CheckOptions { priority, ..cost.into() };
        let (mut key, mut origin) = (named(key), origin.map(named));
        if let (Some(asked), Some(made_for)) = (&origin, exchange.made_for()) {
            let first = made_for.get_or_insert_with(|| MadeFor { origin: asked.clone(), key: key.clone() });
            if first.origin != *asked && first.key == key {
                // The key is that of the origin that redirected the call.
                (key, origin) = (asked.clone(), None);
            }
        }
        Ok(AskedCall { policy, key, origin, options })
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
            return Ok(Arc::new(PreparedPolicy {
                generation,
                policy: Policy::learned()?,
                holds: false,
                is_learned: true,
            }));
        };
        let policy = self.limiter.policy(policy)?;
        let has = |algorithm| policy.limits().iter().any(|limit| limit.algorithm() == algorithm);
        if has(Algorithm::LeakyBucket) {
            return Err(Error::config(format!(
                "the policy {:?} is a leaky-bucket, which queues calls itself: a request waits here for its turn. For the same \
                 pace write gcra with a burst of 1, as in \"gcra 10/s burst 1\"",
                policy.name()
            )));
        }
        let holds = has(Algorithm::Concurrency);
        Ok(Arc::new(PreparedPolicy { generation, policy: policy.paced(self.margin)?, holds, is_learned: false }))
    }

    async fn turn(&self, asked: &AskedCall, left: Option<Duration>) -> Result<Turned> {
        let AskedCall { policy, key, options, .. } = asked;
        let (told, left) = self.cool_down(asked.origin.as_deref(), left).await?;
        if let Some(told) = told {
            return Ok(Turned::Refused(Box::new(told)));
        }
        if self.on_wait.is_some() {
            let seen = self.limiter.peek_with(&policy.policy, key, options).await?;
            if let Some(wait) = seen.retry_after().filter(|_| !seen.allowed()) {
                self.waits(&seen, wait);
            }
        }
        let came = |decision, hold| Turned::Came(Box::new(CallTurn::new(self.limiter.clone(), decision, hold)));
        if policy.holds {
            let answer = self.limiter.hold_within(&policy.policy, key, options, left).await?;
            return Ok(match answer {
                HoldAnswer::Held(hold) => came(Hold::decision(&hold).clone(), Some(hold)),
                denied => Turned::Refused(Box::new(denied.decision().clone())),
            });
        }
        let decision = self.limiter.acquire_with(&policy.policy, key, options, left).await?;
        Ok(if decision.allowed() { came(decision, None) } else { Turned::Refused(Box::new(decision)) })
    }

    /// Whether the service refuses calls since that turn was given. A client can take long until it is ready.
    async fn is_over(&self, asked: &AskedCall, given: &Decision) -> bool {
        let AskedCall { policy, key, options, origin } = asked;
        let is_refused = |seen: Result<Decision>| seen.is_ok_and(|seen| !seen.allowed() && seen.learned());
        let may_be_over = |key| self.limiter.may_be_refused_since(key, given.at());
        if may_be_over(key) && is_refused(self.limiter.peek_with(&policy.policy, key, options).await) {
            return true;
        }
        let Some(origin) = origin.as_deref().filter(|origin| may_be_over(origin)) else { return false };
        let Ok(learned) = Policy::learned() else { return false };
        is_refused(self.limiter.peek(&learned, origin, 1).await)
    }

    fn waits(&self, decision: &Decision, wait: Duration) {
        if let Some(on_wait) = &self.on_wait {
            on_wait(decision, wait);
        }
    }

    /// Waits for as long as the service has told all its callers to wait; a denial where that is too long. Returns what is left of the
    /// timeout.
    async fn cool_down(
        &self,
        origin: Option<&str>,
        mut left: Option<Duration>,
    ) -> Result<(Option<Decision>, Option<Duration>)> {
        let Some(origin) = origin else { return Ok((None, left)) };
        let learned = Policy::learned()?;
        loop {
            let seen = self.limiter.peek(&learned, origin, 1).await?;
            let Some(wait) = seen.retry_after().filter(|_| !seen.allowed()) else { return Ok((None, left)) };
            if left.is_some_and(|left| wait > left) {
                return Ok((Some(seen), left));
            }
            self.waits(&seen, wait);
            sleep(wait).await;
            left = left.map(|left| left.saturating_sub(wait));
        }
    }

    /// A redirect that the client has followed by itself is one more call, to the origin that has answered.
    async fn redirected(&self, asked: AskedCall, origin: &str) -> AskedCall {
        let named = format!("{}{origin}", self.prefix);
        // A key is that of the origin that was asked.
        let target =
            if asked.origin.as_ref() == Some(&named) { asked } else { AskedCall { key: named, origin: None, ..asked } };
        let cost = Cost::from(target.options.clone());
        unless_lost(self.limiter.charge(&target.policy.policy, &target.key, cost).await, "a redirect was not charged");
        target
    }

    /// Tells the limiter what a response says, and returns the wait that it says.
    async fn observe<E: ClientExchange>(
        &self,
        asked: &AskedCall,
        answered: Option<&Decision>,
        response: E::Response,
    ) -> (Option<Duration>, E::Response) {
        if !(self.learn || self.retries > 0) {
            return (None, response);
        }
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let reader = ResponseReader::new(now).max_learned_wait(self.max_learned_wait);
        let read = |reader: ResponseReader, head: &PacedResponse<'_>, body: &[u8]| {
            let fields = head.headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes()));
            reader.read(fields, body).observations
        };
        let longest_wait = |said: &[Observation]| said.iter().filter_map(wait_of).max();
        // A head that names a wait is learned at once.
        let is_read = {
            let head = E::head(&response);
            is_telling(&head) && longest_wait(&read(reader, &head, b"")).is_none()
        };
        let (body, response) = if is_read { E::read(response).await } else { (None, response) };
        let said = {
            let head = E::head(&response);
            read(reader.status(head.status.as_u16()), &head, &body.unwrap_or_default())
        };
        let wait = longest_wait(&said);
        // Of a service that states no limit the next call goes when it is known that this one was served.
        let is_asked = asked.policy.is_learned && answered.is_some_and(Decision::learned);
        if self.learn && (!said.is_empty() || is_asked) {
            let told =
                said.iter().filter(|said| said.scope == ObservationScope::All).filter_map(|said| said.retry_after);
            let told = told.max().map(|wait| Observation { retry_after: Some(wait), ..Observation::default() });
            let learned = self.limiter.observe(&asked.policy.policy, &asked.key, said, answered).await;
            unless_lost(learned, NOT_LEARNED);
            if let (Some(told), Some(origin), Ok(learned)) = (told, &asked.origin, Policy::learned()) {
                unless_lost(self.limiter.observe(&learned, origin, vec![told], None).await, NOT_LEARNED);
            }
        }
        (wait, response)
    }
}

const NOT_LEARNED: &str = "what a response says was not learned";

/// The response is there all the same. Of a store that is lost the limiter has said so.
fn unless_lost(done: Result<Decision>, what: &str) {
    if let Err(error) = done
        && !error.kind().is_store()
        && error.kind() != ErrorKind::Closed
    {
        tracing::warn!(target: "tidegate", %error, "{what}");
    }
}

const TOO_MANY: StatusCode = StatusCode::TOO_MANY_REQUESTS;
const UNAVAILABLE: StatusCode = StatusCode::SERVICE_UNAVAILABLE;

/// Whether a body may say something: JSON that is not encoded.
fn is_telling(head: &PacedResponse<'_>) -> bool {
    let is_json = text_of(head.headers, &CONTENT_TYPE).is_some_and(|kind| kind.to_ascii_lowercase().contains("json"));
    let is_plain =
        text_of(head.headers, &CONTENT_ENCODING).is_none_or(|coding| coding.eq_ignore_ascii_case("identity"));
    ResponseReader::reads_body(head.status.as_u16()) && is_json && is_plain
}

fn text_of<'a>(headers: &'a HeaderMap, name: &http::HeaderName) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}

/// How long a response tells to wait: what it says, or until something is left again.
fn wait_of(said: &Observation) -> Option<Duration> {
    said.retry_after.max(said.reset_after.filter(|_| said.remaining == Some(0)))
}

/// Whether it does no harm when a request arrives twice.
fn is_repeatable(request: &PacedRequest<'_>) -> bool {
    let safe = [Method::GET, Method::HEAD, Method::OPTIONS, Method::TRACE, Method::PUT, Method::DELETE];
    safe.contains(request.method) || request.headers.contains_key("idempotency-key")
}

/// From 0 to 1, another one each time.
fn random_share() -> f64 {
    RandomState::new().hash_one(0_u8) as f64 / u64::MAX as f64
}

async fn sleep(length: Duration) {
    let signal = Arc::new(Signal::default());
    signal.wait_async(signal.count(), Some(length)).await;
}
