//! The error for a call whose turn does not come in time, or the response in its place.

use std::fmt;

use http::{HeaderValue, Response, StatusCode};

use crate::decision::Decision;
use crate::error::{Error, ErrorKind};
use crate::http::{MEDIA_TYPE, Refusal};

/// A call whose turn does not come in time. Nothing was sent.
#[derive(Debug, Clone)]
pub struct RateLimited {
    decision: Box<Decision>,
}

impl RateLimited {
    pub(super) fn new(decision: Decision) -> Self {
        Self { decision: Box::new(decision) }
    }

    /// The denial. Its `retry_after` is the time until a turn would come.
    #[must_use]
    pub const fn decision(&self) -> &Decision {
        &self.decision
    }
}

impl fmt::Display for RateLimited {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (policy, key) = (self.decision.policy(), self.decision.key());
        match self.decision.retry_after() {
            Some(wait) => write!(f, "{policy:?} denies {key:?}: try again in {:.3} s", wait.as_secs_f64()),
            None => write!(f, "{policy:?} denies {key:?}: it will never be admitted"),
        }
    }
}

impl std::error::Error for RateLimited {}

/// The error of a call that its policy never admits, because it costs more than a limit ever has. `None` for any other Decision, also
/// if the limit admits nothing at all.
pub(super) fn never_fits(decision: &Decision) -> Option<Error> {
    let limits = || decision.limits().filter(|state| state.exceeded && state.retry_after.is_none() && state.limit > 0);
    let state = limits().next().filter(|_| !decision.allowed())?;
    let unit = state.unit.as_ref().map_or("units", |unit| unit.name());
    let part = if state.cost <= state.limit { ", and the class of the call leaves a part of it free" } else { "" };
    let text = format!(
        "{:?} never admits a call of {} {unit}: its limit has at most {} at once{part}. Make the call smaller, or raise the limit",
        decision.policy(),
        state.cost,
        state.limit,
    );
    Some(Error::new(ErrorKind::CostInvalid, text))
}

/// A response in the place of a call that may not be sent.
#[derive(Debug)]
pub(crate) struct RefusedCall {
    status: u16,
    fields: Vec<(&'static str, String)>,
    body: String,
}

impl RefusedCall {
    /// `x-should-retry` keeps SDKs from a retry. They show the message of an error, and no detail of a problem.
    pub(super) fn of(decision: &Decision, misfit: Option<&Error>) -> Self {
        let refusal = Refusal::of(decision);
        let (status, problem) = match misfit {
            None => (refusal.status(), refusal.problem()),
            Some(error) => (413, too_large(error.message())),
        };
        let mut body: serde_json::Value = serde_json::from_str(&problem).unwrap_or_default();
        body["error"] = serde_json::json!({ "message": body["detail"] });
        let mut fields = vec![
            ("cache-control", "no-store".to_owned()),
            ("content-type", MEDIA_TYPE.to_owned()),
            ("x-should-retry", "false".to_owned()),
        ];
        fields.extend(refusal.wait.filter(|_| misfit.is_none()).map(|wait| ("retry-after", wait.to_string())));
        Self { status, fields, body: body.to_string() }
    }

    pub(crate) fn into_response(self) -> Response<String> {
        let mut response = Response::new(self.body);
        *response.status_mut() = StatusCode::from_u16(self.status).unwrap_or(StatusCode::TOO_MANY_REQUESTS);
        for (name, value) in self.fields {
            if let Ok(value) = HeaderValue::try_from(value) {
                response.headers_mut().insert(name, value);
            }
        }
        response
    }
}

fn too_large(detail: &str) -> String {
    serde_json::json!({ "type": "about:blank", "title": "Content Too Large", "status": 413, "detail": detail })
        .to_string()
}
