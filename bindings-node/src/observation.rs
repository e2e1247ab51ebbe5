//! What the responses of other services say of their limits.

use napi::bindgen_prelude::{Either, Uint8Array};
use napi_derive::napi;
use tidegate::Result;
use tidegate::http::{MAX_LEARNED_WAIT, ResponseReader};

use crate::error_value::{ErrorValue, crossing};
use crate::number::milliseconds;

/// What a response says of one limit, or how long it tells to wait.
#[napi(object)]
pub struct Observation {
    /// The name that the response gives the limit.
    pub name: Option<String>,
    /// The count of the limit.
    pub limit: Option<f64>,
    /// The length of time for which the count holds.
    pub window_ms: Option<f64>,
    /// What the limit counts.
    pub unit: Option<String>,
    /// The units that are left.
    pub remaining: Option<f64>,
    /// The time until the limit is reset.
    pub reset_after_ms: Option<f64>,
    /// The time until the request may be made again.
    pub retry_after_ms: Option<f64>,
    /// Whom that wait concerns.
    pub scope: String,
}

impl From<tidegate::http::Observation> for Observation {
    fn from(said: tidegate::http::Observation) -> Self {
        let ms = |length: std::time::Duration| length.as_micros() as f64 / 1e3;
        Self {
            name: said.name,
            limit: said.limit.map(|count| count as f64),
            window_ms: said.window.map(ms),
            unit: said.unit.map(|unit| unit.to_string()),
            remaining: said.remaining.map(|count| count as f64),
            reset_after_ms: said.reset_after.map(ms),
            retry_after_ms: said.retry_after.map(ms),
            scope: said.scope.name().to_owned(),
        }
    }
}

/// What a response says.
#[napi(object)]
pub struct ReadResponse {
    /// An Observation for each limit.
    pub observations: Vec<Observation>,
    /// The number of values that were not believed.
    pub ignored: u32,
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
    let read = reader.read(fields.chunks_exact(2).map(|field| (&*field[0], &*field[1])), body);
    let observations = read.observations.into_iter().map(Observation::from).collect();
    Ok(ReadResponse { observations, ignored: read.ignored })
}
