//! Converts JavaScript's numbers. The core says which values are allowed; here a number only has to be a whole one.

use std::time::Duration;

use tidegate::{Error, ErrorKind, Result};

/// The first whole number that a double cannot tell from the next one.
const TWO_53: f64 = 9_007_199_254_740_992.0;

fn whole(number: f64) -> Option<u64> {
    (number.fract() == 0.0 && (0.0..=TWO_53).contains(&number)).then_some(number as u64)
}

/// A cost.
pub(crate) fn cost(number: f64) -> Result<u64> {
    whole(number).ok_or_else(|| {
        Error::new(
            ErrorKind::CostInvalid,
            format!("a cost of {number} is out of range: it must be a whole number from 1 to 2^53 - 1"),
        )
    })
}

/// A number of a limit or a policy.
pub(crate) fn count(what: &str, number: f64) -> Result<u64> {
    whole(number).ok_or_else(|| {
        Error::new(ErrorKind::PolicyInvalid, format!("{what} {number} cannot be used: it must be a whole number"))
    })
}

/// A number of a limit or a policy for which the core takes 32 bits.
pub(crate) fn small(what: &str, number: f64) -> Result<u32> {
    let number = count(what, number)?;
    u32::try_from(number)
        .map_err(|_| Error::new(ErrorKind::PolicyInvalid, format!("{what} {number} cannot be used: it is too large")))
}

/// A duration in milliseconds.
pub(crate) fn milliseconds(what: &str, number: f64) -> Result<Duration> {
    micros(number).map(Duration::from_micros).ok_or_else(|| {
        Error::new(
            ErrorKind::ConfigInvalid,
            format!("{what} cannot be {number}: it must be a number of milliseconds, not negative and not endless"),
        )
    })
}

/// Milliseconds as microseconds, rounded to the nearest.
pub(crate) fn micros(milliseconds: f64) -> Option<u64> {
    whole((milliseconds * 1_000.0).round())
}

/// A number of callers.
pub(crate) fn callers(what: &str, number: f64) -> Result<usize> {
    whole(number).map(|number| number as usize).ok_or_else(|| {
        Error::new(ErrorKind::ConfigInvalid, format!("{what} cannot be {number}: it must be a whole number from 1 on"))
    })
}
