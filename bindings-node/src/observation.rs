//! The limits that the responses of other services announce.

use std::time::Duration;

use napi::bindgen_prelude::{Either, Uint8Array};
use napi_derive::napi;
use tidegate::http::{MAX_LEARNED_WAIT, ObservationScope, ResponseReader};
use tidegate::{Error, ErrorKind, Result, Unit};

use crate::error_value::{ErrorValue, crossing};
use crate::number::milliseconds;

/// One limit that a response reports, or a wait that it asks for.
#[napi(object)]
pub struct Observation {
    /// The name that the response gives the limit.
    pub name: Option<String>,
    /// The count of the limit.
    pub limit: Option<f64>,
    /// The length of time for which the count holds.
    pub window_ms: Option<f64>,
    /// The unit that the limit counts.
    pub unit: Option<String>,
    /// The units that are left.
    pub remaining: Option<f64>,
    /// The time until the limit is reset.
    pub reset_after_ms: Option<f64>,
    /// The time until the request may be made again.
    pub retry_after_ms: Option<f64>,
    /// The scope of that wait: the key, or all calls.
    pub scope: Option<String>,
}

impl From<tidegate::http::Observation> for Observation {
    fn from(said: tidegate::http::Observation) -> Self {
        Self {
            name: said.name,
            limit: said.limit.map(|count| count as f64),
            window_ms: said.window.map(in_ms),
            unit: said.unit.map(|unit| unit.to_string()),
            remaining: said.remaining.map(|count| count as f64),
            reset_after_ms: said.reset_after.map(in_ms),
            retry_after_ms: said.retry_after.map(in_ms),
            scope: Some(said.scope.name().to_owned()),
        }
    }
}

fn in_ms(length: Duration) -> f64 {
    length.as_micros() as f64 / 1e3
}

/// Converts an observation that JavaScript passes.
impl TryFrom<Observation> for tidegate::http::Observation {
    type Error = Error;

    fn try_from(given: Observation) -> Result<Self> {
        let count = |name: &str, count: Option<f64>| match count {
            None => Ok(None),
            Some(count) if count >= 0.0 && count.fract() == 0.0 => Ok(Some(count.min(MAX_NUMBER) as u64)),
            Some(_) => Err(wrong(name, "a whole number from 0 on")),
        };
        let length = |name: &str, ms: Option<f64>| ms.map(|ms| milliseconds(name, ms)).transpose();
        let mut said = Self::default();
        said.name = given.name;
        said.limit = count("limit", given.limit)?;
        said.window = length("windowMs", given.window_ms)?;
        said.unit = given.unit.as_deref().map(Unit::new).transpose()?;
        said.remaining = count("remaining", given.remaining)?;
        said.reset_after = length("resetAfterMs", given.reset_after_ms)?;
        said.retry_after = length("retryAfterMs", given.retry_after_ms)?;
        said.scope = match given.scope.as_deref() {
            None | Some("key") => ObservationScope::Key,
            Some("all") => ObservationScope::All,
            Some(_) => return Err(wrong("scope", "'key' or 'all'")),
        };
        Ok(said)
    }
}

/// The largest number that JavaScript holds exactly.
const MAX_NUMBER: f64 = 9_007_199_254_740_991.0;

fn wrong(name: &str, expected: &str) -> Error {
    Error::new(ErrorKind::ConfigInvalid, format!("{name} of an observation must be {expected}"))
}

/// The limits that a response reports.
#[napi(object)]
pub struct ReadResponse {
    /// An Observation for each limit.
    pub observations: Vec<Observation>,
    /// The number of impossible values, which are ignored.
    pub ignored: u32,
    /// The time until the call may be made again, if it may.
    pub retry_wait_ms: Option<f64>,
    /// True if only the body can name that time.
    pub needs_body: bool,
}

/// A regular expression for the names, in lower case, of the fields that report limits.
#[napi(catch_unwind)]
pub fn speaking_fields() -> String {
    ResponseReader::speaking_fields()
}

/// Reads a response that came at that time. Names and values of fields take turns.
#[napi(catch_unwind)]
pub fn read_response(
    fields: Vec<String>,
    now_ms: f64,
    status: Option<f64>,
    body: Option<Uint8Array>,
    longest_ms: Option<f64>,
) -> Either<ReadResponse, ErrorValue> {
    crossing(read(&fields, now_ms, status, body.as_deref().unwrap_or_default(), longest_ms))
}

fn read(
    fields: &[String],
    now_ms: f64,
    status: Option<f64>,
    body: &[u8],
    longest_ms: Option<f64>,
) -> Result<ReadResponse> {
    let longest = longest_ms.map_or(Ok(MAX_LEARNED_WAIT), |longest| milliseconds("maxLearnedWaitMs", longest))?;
    let reader = ResponseReader::new(milliseconds("dateMs", now_ms)?).max_learned_wait(longest);
    let reader = status.map_or(reader, |status| reader.status(status as u16));
    let fields: Vec<_> = fields.chunks_exact(2).map(|field| (&*field[0], &*field[1])).collect();
    let needs_body = reader.needs_body(&fields);
    let read = reader.read(fields, body);
    let is_retried = status.is_some_and(|status| ResponseReader::allows_retry(status as u16));
    let retry_wait_ms = read.wait().filter(|_| is_retried).map(in_ms);
    let observations = read.observations.into_iter().map(Observation::from).collect();
    Ok(ReadResponse { observations, ignored: read.ignored, retry_wait_ms, needs_body })
}
