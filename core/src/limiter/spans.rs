//! Spans of `tracing` for calls that a shared store answers, with the names and attributes of the spans of Python and Node. They and the
//! event of a denial have the level DEBUG and the target `tidegate`, so that nothing is made where no subscriber asks for them.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;

use tracing::field::Empty;
use tracing::metadata::Kind;
use tracing::{Level, Span, debug, debug_span, enabled};

use super::LimiterCore;
use super::policy_ref::AsPolicy;
use crate::algorithm::AlgorithmKind;
use crate::decision::Decision;
use crate::error::Result;
use crate::process::waits::Waits;

/// The calls that decide.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SpanName {
    Check,
    Charge,
    CheckAll,
    Acquire,
    Hold,
}

impl SpanName {
    /// Begins a span. Its name is part of its call site, so each name has one.
    fn begin(self, store: &str) -> Span {
        macro_rules! span {
            ($name:literal) => {
                debug_span!(
                    target: "tidegate",
                    $name,
                    "otel.kind" = "client",
                    "tidegate.policy" = Empty,
                    "tidegate.outcome" = Empty,
                    "tidegate.source" = Empty,
                    "tidegate.store" = store,
                    "error.type" = Empty,
                    "otel.status_code" = Empty,
                )
            };
        }
        match self {
            Self::Check => span!("tidegate.check"),
            Self::Charge => span!("tidegate.charge"),
            Self::CheckAll => span!("tidegate.check_all"),
            Self::Acquire => span!("tidegate.acquire"),
            Self::Hold => span!("tidegate.hold"),
        }
    }
}

/// The answer of a call that decides.
pub(super) trait HasDecision {
    fn its_decision(&self) -> &Decision;
}

impl HasDecision for Decision {
    fn its_decision(&self) -> &Decision {
        self
    }
}

/// True if a subscriber may want spans.
#[inline(always)]
pub(super) fn may_be_on() -> bool {
    tracing::level_filters::LevelFilter::current() >= Level::DEBUG
}

/// Makes a call with a span from its first wait on. An answer that needs no waiting is of this process, and has none.
pub(super) async fn spanned<T: HasDecision>(
    core: &LimiterCore,
    name: SpanName,
    policy: impl FnOnce() -> String,
    waits: Waits,
    call: impl Future<Output = Result<T>>,
) -> Result<T> {
    let mut call = pin!(call);
    let mut first = None;
    if waits != Waits::Here {
        poll_fn(|cx| {
            first = Some(call.as_mut().poll(cx));
            Poll::Ready(())
        })
        .await;
    }
    let result = match first {
        Some(Poll::Ready(result)) => result,
        _ => {
            let span = core.begin_span(name);
            let result = poll_fn(|cx| {
                let _inside = span.enter();
                call.as_mut().poll(cx)
            })
            .await;
            end(&span, &result, policy);
            result
        }
    };
    tell_denial(&result);
    result
}

impl LimiterCore {
    /// Begins the span of a call. A store of this process has none.
    pub(super) fn begin_span(&self, name: SpanName) -> Span {
        let stores = self.layers.as_ref().map(|layers| layers.telemetry.conditions()).unwrap_or_default();
        if stores.is_empty() || !enabled!(kind: Kind::SPAN, target: "tidegate", Level::DEBUG) {
            return Span::none();
        }
        name.begin(&stores.into_keys().collect::<Vec<_>>().join(", "))
    }
}

impl LimiterCore {
    /// The name of the policy that a call names. Empty if there is none.
    pub(super) fn policy_name(&self, policy: &(impl AsPolicy + ?Sized)) -> String {
        self.policies.find(policy.as_policy()).map(|plan| plan.policy.name().to_owned()).unwrap_or_default()
    }
}

/// Records the answer of a call. `policy` is what an error does not tell: the names of the policies.
pub(super) fn end<T: HasDecision>(span: &Span, result: &Result<T>, policy: impl FnOnce() -> String) {
    if span.is_disabled() {
        return;
    }
    match result.as_ref().map(HasDecision::its_decision) {
        Ok(decision) => {
            let outcome = if decision.allowed() {
                "allowed"
            } else if decision.unavailable() {
                "unavailable"
            } else {
                "denied"
            };
            span.record("tidegate.policy", decision.policy());
            span.record("tidegate.outcome", outcome);
            span.record("tidegate.source", decision.source().name());
        }
        Err(error) => {
            span.record("tidegate.policy", policy());
            span.record("tidegate.outcome", "error");
            // Not the message: it may have an argument of the caller.
            span.record("error.type", error.kind().code());
            span.record("otel.status_code", "ERROR");
        }
    }
}

/// Adds the event of a denial to the span around the call, such as that of a request.
pub(super) fn tell_denial<T: HasDecision>(result: &Result<T>) {
    let Some(denied) = result.as_ref().ok().map(HasDecision::its_decision).filter(|decision| !decision.allowed())
    else {
        return;
    };
    debug!(
        target: "tidegate",
        { "tidegate.policy" = denied.policy(), "tidegate.limit" = limit_of(denied) },
        "tidegate.denied"
    );
}

/// The limit that refused, as its count and period in seconds. Held units have no period.
fn limit_of(denied: &Decision) -> String {
    let Some(refused) = denied.limits().find(|limit| limit.exceeded) else { return String::new() };
    let (algorithm, count) = (refused.algorithm, refused.limit);
    match refused.algorithm.kind() {
        AlgorithmKind::Held => format!("{algorithm} {count}"),
        _ => format!("{algorithm} {count}/{}s", refused.period.micros() as f64 / 1e6),
    }
}
