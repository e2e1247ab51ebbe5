//! One limit of a policy.

use napi::bindgen_prelude::Either;
use napi_derive::napi;
use tidegate::{Algorithm, Error, ErrorKind, Period, Result, host};

use crate::error_value::{ErrorValue, crossing};
use crate::number::{count, micros, shown, small};

/// A valid limit.
#[napi]
pub struct Limit {
    pub(crate) limit: tidegate::Limit,
}

/// A limit as JavaScript gives it.
#[napi(object)]
pub struct LimitSpec {
    /// The algorithm's name.
    pub algorithm: String,
    /// Units per period.
    pub count: f64,
    /// Milliseconds, or a text such as `10m`.
    pub period: Option<Either<f64, String>>,
    /// The most units that it admits at once.
    pub burst: Option<f64>,
    /// The tokens it starts with.
    pub initial: Option<f64>,
    /// Granules of a sliding window.
    pub precision: Option<f64>,
    /// The name of the unit that it counts.
    pub unit: Option<String>,
    /// The moment at which a calendar window begins.
    pub from: Option<String>,
    /// The time zone of a calendar.
    #[napi(js_name = "in")]
    pub zone: Option<String>,
}

/// The properties of a valid limit.
#[napi(object)]
pub struct LimitProperties {
    /// The algorithm's name.
    pub algorithm: String,
    /// Units per period.
    pub count: f64,
    /// The period. For `concurrency`, the ttl of holds.
    pub period_ms: f64,
    /// The burst, if one was given.
    pub burst: Option<f64>,
    /// The most it ever admits at once.
    pub capacity: f64,
    /// The tokens it starts with, if that was given.
    pub initial: Option<f64>,
    /// The granules of a sliding window.
    pub precision: Option<u32>,
    /// The unit that it counts, if it has one.
    pub unit: Option<String>,
    /// The moment at which a calendar window begins, if it is not the beginning of the period.
    pub from: Option<String>,
    /// The time zone of a calendar, if it is not UTC.
    #[napi(js_name = "in")]
    pub zone: Option<String>,
    /// The notation.
    pub notation: String,
}

fn build(spec: &LimitSpec) -> Result<tidegate::Limit> {
    let wrong = |message: String| Error::new(ErrorKind::PolicyInvalid, message);
    let algorithm = Algorithm::from_name(&spec.algorithm).ok_or_else(|| {
        let names: Vec<&str> = Algorithm::ALL.iter().map(|algorithm| algorithm.name()).collect();
        wrong(format!("there is no algorithm {}: use one of {}", host::quoted(&spec.algorithm), names.join(", ")))
    })?;
    let period = match &spec.period {
        Some(period) => self::period("period", period)?,
        None if algorithm == Algorithm::Concurrency => host::DEFAULT_TTL,
        None => return Err(wrong(format!("a {algorithm} limit needs a period: say how long, as in '1 minute'"))),
    };
    let mut limit = tidegate::Limit::new(algorithm, count("count", spec.count)?, period)?;
    if let Some(burst) = spec.burst {
        limit = limit.with_burst(count("burst", burst)?)?;
    }
    if let Some(initial) = spec.initial {
        limit = limit.with_initial(count("initial", initial)?)?;
    }
    if let Some(precision) = spec.precision {
        limit = limit.with_precision(small("precision", precision)?)?;
    }
    if let Some(unit) = &spec.unit {
        limit = limit.with_unit(unit)?;
    }
    if let Some(anchor) = &spec.from {
        limit = limit.with_anchor(anchor.parse()?)?;
    }
    if let Some(zone) = &spec.zone {
        limit = limit.with_zone(zone)?;
    }
    Ok(limit)
}

pub(crate) fn period(what: &str, given: &Either<f64, String>) -> Result<Period> {
    match given {
        Either::A(number) => micros(*number)
            .ok_or_else(|| {
                Error::new(
                    ErrorKind::PolicyInvalid,
                    format!(
                        "a {what} of {} milliseconds is out of range: it must be from 1 ms to 10 years",
                        shown(*number)
                    ),
                )
            })
            .and_then(Period::from_micros),
        Either::B(text) => text.parse(),
    }
}

/// Makes a limit.
#[napi(catch_unwind)]
pub fn limit(spec: LimitSpec) -> Either<Limit, ErrorValue> {
    crossing(build(&spec).map(|limit| Limit { limit }))
}

#[napi]
impl Limit {
    /// Its properties.
    #[napi(catch_unwind)]
    pub fn properties(&self) -> LimitProperties {
        let limit = &self.limit;
        LimitProperties {
            algorithm: limit.algorithm().name().to_owned(),
            count: limit.count() as f64,
            period_ms: limit.period().micros() as f64 / 1_000.0,
            burst: limit.burst().map(|burst| burst as f64),
            capacity: limit.capacity() as f64,
            initial: limit.initial().map(|initial| initial as f64),
            precision: (limit.algorithm() == Algorithm::SlidingWindow).then(|| limit.precision()),
            unit: limit.unit().map(|unit| unit.name().to_owned()),
            from: limit.anchor().map(ToString::to_string),
            zone: limit.zone().map(ToOwned::to_owned),
            notation: limit.to_string(),
        }
    }
}

/// The names of the algorithms, in the order of their numbers in answers.
#[napi(catch_unwind)]
pub fn algorithms() -> Vec<String> {
    Algorithm::ALL.iter().map(|algorithm| algorithm.name().to_owned()).collect()
}
