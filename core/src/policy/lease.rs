//! The number of units that a process may take in advance.

use std::fmt;

use crate::algorithm::{Limit, MAX_COUNT};
use crate::error::{Error, Result};

/// The shortest life of a lease that is worth its call, in microseconds.
pub(crate) const SHORTEST_LEASE: u64 = 5_000;

/// Hundredths of a percent in the whole.
pub(super) const WHOLE: u64 = 10_000;

/// The number of units of a policy and key that a process may take in advance, to spend them without the network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lease(Share);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Share {
    Units(u64),
    /// In hundredths of a percent.
    Part(u64),
}

impl Lease {
    /// At most that many units.
    ///
    /// # Errors
    /// `policy_invalid` for 0 and above 10^12.
    pub fn units(units: u64) -> Result<Self> {
        if (1..=MAX_COUNT).contains(&units) {
            return Ok(Self(Share::Units(units)));
        }
        Err(Error::policy(format!("lease {units}: it must be from 1 to {MAX_COUNT} units, or a part as in `5%`")))
    }

    /// At most that part of the units of each limit, in percent.
    ///
    /// # Errors
    /// `policy_invalid` below 0.01 and above 100.
    pub fn percent(percent: f64) -> Result<Self> {
        let part = (percent * 100.0).round();
        if (1.0..=WHOLE as f64).contains(&part) {
            return Ok(Self(Share::Part(part as u64)));
        }
        Err(Error::policy(format!("lease {percent}%: it must be from 0.01% to 100%, or a number of units")))
    }

    /// Parses a text such as `5%` or `200`.
    ///
    /// # Errors
    /// `policy_invalid` with a description of the expected text.
    pub fn parse(text: &str) -> Result<Self> {
        let wrong = || {
            let shown: String = text.chars().take(40).collect();
            Error::policy(format!("lease {shown:?}: it must be a part such as `5%`, or a number of units"))
        };
        let trimmed = text.trim();
        match trimmed.strip_suffix('%') {
            Some(percent) => Self::percent(hundredths(percent).ok_or_else(wrong)? as f64 / 100.0),
            None => Self::units(trimmed.parse().map_err(|_| wrong())?),
        }
    }

    /// The number of units. `None` for a percentage.
    #[must_use]
    pub const fn as_units(self) -> Option<u64> {
        match self.0 {
            Share::Units(units) => Some(units),
            Share::Part(_) => None,
        }
    }

    /// The most units that a process takes of these limits.
    pub(crate) fn share_of(self, limits: &[Limit]) -> u64 {
        let share = |limit: &Limit| match self.0 {
            Share::Units(units) => units.min(limit.capacity()),
            Share::Part(part) => (u128::from(limit.capacity()) * u128::from(part) / u128::from(WHOLE)) as u64,
        };
        limits.iter().map(share).min().unwrap_or(0)
    }
}

/// The number before a `%`, in hundredths.
pub(super) fn hundredths(percent: &str) -> Option<u64> {
    let digits = percent.trim_end();
    let plain = !digits.is_empty() && digits.chars().all(|c| c.is_ascii_digit() || c == '.');
    let percent = digits.parse::<f64>().ok().filter(|_| plain)?;
    Some((percent * 100.0).round() as u64)
}

impl fmt::Display for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Share::Units(units) => write!(f, "{units}"),
            Share::Part(part) => write!(f, "{}%", part as f64 / 100.0),
        }
    }
}

impl std::str::FromStr for Lease {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        Self::parse(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::Policy;

    #[test]
    fn a_share_is_a_part_or_a_number() {
        let limits = |text: &str| Policy::parse(text).expect("a notation").limits().to_vec();
        for (text, units) in [("5%", 50), ("0.5 %", 5), ("2.55%", 25), ("100%", 1_000), ("7", 7), (" 2000 ", 1_000)] {
            assert_eq!(Lease::parse(text).expect(text).share_of(&limits("1000/minute")), units, "{text}");
        }
        let lease = Lease::parse("5%").expect("a lease");
        assert_eq!(lease.share_of(&limits("1000/minute; gcra 10/s burst 100")), 5, "the least of all limits");
        assert_eq!((lease.to_string(), Lease::units(9).expect("units").to_string()), ("5%".into(), "9".into()));
        for text in
            ["", "%", "0%", "101%", "-1%", "0", "-5", "5 percent", "1e3%", "nan%", "inf%", "1.5", "9999999999999"]
        {
            let error = Lease::parse(text).expect_err(text);
            assert_eq!(error.code(), "policy_invalid");
        }
    }
}
