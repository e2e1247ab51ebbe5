//! Converts JavaScript's numbers. The core checks the allowed values. Here a number only has to be a whole one.

use std::collections::HashMap;
use std::time::Duration;

use napi::bindgen_prelude::Uint8Array;
use tidegate::{CheckOptions, Cost, Error, ErrorKind, Result, Units, host};

/// The first whole number that a double cannot distinguish from the next one.
const TWO_53: f64 = 9_007_199_254_740_992.0;

/// A number as JavaScript writes it.
pub(crate) fn shown(number: f64) -> String {
    number.to_string().replace("inf", "Infinity")
}

fn whole(number: f64) -> Option<u64> {
    (number.fract() == 0.0 && (0.0..=TWO_53).contains(&number)).then_some(number as u64)
}

fn checked(number: Option<u64>, kind: ErrorKind, message: impl FnOnce() -> String) -> Result<u64> {
    number.ok_or_else(|| Error::new(kind, message()))
}

pub(crate) fn cost(number: f64) -> Result<u64> {
    checked(whole(number), ErrorKind::CostInvalid, || {
        format!("a cost of {} is out of range: it must be a whole number from 1 to 2^53 - 1", shown(number))
    })
}

/// The cost of a call: a number, or numbers by the names of units.
pub(crate) fn cost_of(number: f64, units: Option<HashMap<String, f64>>) -> Result<Cost> {
    match units {
        None => cost(number).map(Cost::from),
        Some(units) => Ok(self::units(units)?.into()),
    }
}

/// The options of a call that crosses alone.
pub(crate) fn options(
    number: f64,
    units: Option<HashMap<String, f64>>,
    meta: Option<Uint8Array>,
    priority: Option<String>,
) -> Result<CheckOptions> {
    let meta = meta.map(|meta| meta.to_vec());
    Ok(CheckOptions { meta, priority, ..cost_of(number, units)?.into() })
}

fn units(given: HashMap<String, f64>) -> Result<Units> {
    let unit = |(name, number): (String, f64)| {
        let units = checked(whole(number), ErrorKind::CostInvalid, || {
            let name = host::quoted(&name);
            format!("a cost of {} {name} is out of range: it must be a whole number from 0 to 2^53 - 1", shown(number))
        });
        Ok((name, units?))
    };
    given.into_iter().map(unit).collect()
}

/// A number of a limit or a policy.
pub(crate) fn count(what: &str, number: f64) -> Result<u64> {
    checked(whole(number), ErrorKind::PolicyInvalid, || format!("{what} must be a whole number, not {}", shown(number)))
}

/// A number of a limit or a policy that has 32 bits in the core.
pub(crate) fn small(what: &str, number: f64) -> Result<u32> {
    let number = count(what, number)?;
    u32::try_from(number)
        .map_err(|_| Error::new(ErrorKind::PolicyInvalid, format!("{what} must be at most {}, not {number}", u32::MAX)))
}

/// A duration in milliseconds.
pub(crate) fn milliseconds(what: &str, number: f64) -> Result<Duration> {
    // The core checks how long each length may be, and none may be longer than microseconds can express.
    let length = (number <= TWO_53).then(|| micros(number.min(TWO_53 / 1_000.0))).flatten();
    let length = checked(length, ErrorKind::ConfigInvalid, || {
        format!("{what} must be a number of milliseconds from 0 to 2^53 - 1, not {}", shown(number))
    });
    length.map(Duration::from_micros)
}

/// Milliseconds as microseconds, rounded to the nearest.
pub(crate) fn micros(milliseconds: f64) -> Option<u64> {
    whole((milliseconds * 1_000.0).round())
}

/// A number of callers.
pub(crate) fn callers(what: &str, number: f64) -> Result<usize> {
    let callers = checked(whole(number), ErrorKind::ConfigInvalid, || {
        format!("{what} must be a whole number from 1 on, not {}", shown(number))
    });
    callers.map(|callers| callers as usize)
}
