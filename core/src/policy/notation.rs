//! The notation: `20/minute; 5/3s`, `gcra 100/s burst 200`, `concurrency 8 ttl 30s`.
//!
//! A hand-written scanner, because its errors are the product: each shows the text, points at the column and says
//! what was expected there.

mod fault;

pub(super) use self::fault::{Fault, clip};
use self::fault::{is_blank, printable};
use super::MAX_LIMITS;
use super::limit::{Algorithm, Limit, MAX_COUNT};
use super::nearest::did_you_mean;
use super::period::{Period, Unit};
use crate::error::Result;

/// Every spelling of a unit, the common ones first. One letter has no plural: `ms` is a millisecond already.
const UNITS: [(&str, Unit); 26] = [
    ("second", Unit::Second),
    ("minute", Unit::Minute),
    ("hour", Unit::Hour),
    ("day", Unit::Day),
    ("week", Unit::Week),
    ("month", Unit::Month),
    ("year", Unit::Year),
    ("seconds", Unit::Second),
    ("minutes", Unit::Minute),
    ("hours", Unit::Hour),
    ("days", Unit::Day),
    ("weeks", Unit::Week),
    ("months", Unit::Month),
    ("years", Unit::Year),
    ("ms", Unit::Millisecond),
    ("s", Unit::Second),
    ("sec", Unit::Second),
    ("secs", Unit::Second),
    ("m", Unit::Minute),
    ("min", Unit::Minute),
    ("mins", Unit::Minute),
    ("h", Unit::Hour),
    ("hr", Unit::Hour),
    ("hrs", Unit::Hour),
    ("d", Unit::Day),
    ("w", Unit::Week),
];
const UNIT_WORDS: &str = "a unit: ms, s, minute, hour, day, week, month or year";
const PER_WORDS: &str = "`/` or `per` and a period, as in `20/minute` or `20 per 2 hours`";
const END_WORDS: &str = "`;` and another limit, or the end";
/// The ttl of a `concurrency` limit when nothing else is said, in seconds.
pub(super) const DEFAULT_TTL: u64 = 60;

/// The limits that a notation means.
pub(super) fn parse(text: &str) -> Result<Vec<Limit>> {
    scan(text).map_err(|fault| fault.error(text))
}

/// The length of time that a text such as `10m`, `1 day` or `month` means.
pub(super) fn parse_duration(text: &str) -> Result<Period> {
    scan_duration(text).map_err(|fault| fault.error(text))
}

/// [`parse`], for callers that know where in a file the text begins.
pub(super) fn scan(text: &str) -> Result<Vec<Limit>, Fault> {
    refuse_url(text, "limits, as in `20/minute; 5/3s`")?;
    Scanner { text, at: 0 }.policy()
}

/// [`parse_duration`], for callers that know where in a file the text begins.
pub(super) fn scan_duration(text: &str) -> Result<Period, Fault> {
    let expected = "a length of time, as in `10m` or `1 day`";
    refuse_url(text, expected)?;
    let mut scanner = Scanner { text, at: 0 };
    let period = scanner.period(expected)?;
    scanner.blanks();
    match scanner.peek() {
        None => Ok(period),
        Some(_) => Err(scanner.unexpected("the end")),
    }
}

/// Somebody mistook a store for a policy. Its password must not show up in the error.
fn refuse_url(text: &str, expected: &str) -> Result<(), Fault> {
    if !text.contains("://") {
        return Ok(());
    }
    Err(Fault::new(0, "unexpected URL", expected).without_text())
}

struct Scanner<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Scanner<'a> {
    fn policy(&mut self) -> Result<Vec<Limit>, Fault> {
        let mut limits = Vec::new();
        loop {
            self.blanks();
            let start = self.at;
            if limits.len() == MAX_LIMITS {
                return Err(Fault::new(start, format!("a policy has more than {MAX_LIMITS} limits"), "fewer limits"));
            }
            limits.push(self.limit()?);
            self.blanks();
            // The pattern of the `limits` package accepts a colon before a separator; texts in the wild may hold one.
            if self.peek() == Some(':') && self.rest().get(1..).is_some_and(|rest| rest.starts_with(is_separator)) {
                self.bump();
            }
            match self.peek() {
                None => return Ok(limits),
                Some(c) if is_separator(c) => self.bump(),
                Some(_) => return Err(self.misplaced()),
            }
        }
    }

    fn limit(&mut self) -> Result<Limit, Fault> {
        let start = self.at;
        let algorithm = match self.peek() {
            Some(c) if c.is_ascii_alphabetic() => self.algorithm()?,
            _ => Algorithm::SlidingWindow,
        };
        self.blanks();
        let count =
            self.count(if self.at == start { "a limit, as in `20/minute`" } else { "a count, as in `20/minute`" })?;
        self.blanks();
        if algorithm == Algorithm::Concurrency {
            return self.concurrency(count);
        }
        self.per()?;
        let period = self.period(UNIT_WORDS)?;
        let limit = Limit::new(algorithm, count, period).map_err(|error| Fault::new(start, error.message(), ""))?;
        self.blanks();
        let word_at = self.at;
        if !self.keyword("burst") {
            return Ok(limit);
        }
        if !algorithm.has_burst() {
            return Err(Fault::new(
                word_at,
                format!("{algorithm} has no burst: only token-bucket, gcra and leaky-bucket have one"),
                END_WORDS,
            ));
        }
        self.blanks();
        let burst_at = self.at;
        let burst = self.count("a count, as in `burst 200`")?;
        limit.with_burst(burst).map_err(|error| Fault::new(burst_at, error.message(), ""))
    }

    fn algorithm(&mut self) -> Result<Algorithm, Fault> {
        let start = self.at;
        let word = self.take(|c| c.is_ascii_alphabetic() || c == '-' || c == '_');
        Algorithm::from_name(word).ok_or_else(|| {
            let names = Algorithm::ALL.map(Algorithm::name);
            Fault::new(
                start,
                format!("unknown algorithm `{}`{}", clip(word), did_you_mean(word, names)),
                format!("a count, or one of {}", names.join(", ")),
            )
        })
    }

    fn concurrency(&mut self, count: u64) -> Result<Limit, Fault> {
        let at = self.at;
        let ttl = if self.keyword("ttl") {
            self.blanks();
            if !self.peek().is_some_and(|c| c.is_ascii_digit()) {
                return Err(self.unexpected("a length of time, as in `ttl 30s`"));
            }
            self.period(UNIT_WORDS)?
        } else if self.peek() == Some('/') || self.begins("per") {
            return Err(Fault::new(
                at,
                "concurrency counts what is in progress at the same time, so it has no period",
                "`ttl` and how long a hold lasts, as in `concurrency 8 ttl 30s`, or the end",
            ));
        } else {
            Period::new(DEFAULT_TTL, Unit::Second).map_err(|error| Fault::new(at, error.message(), ""))?
        };
        Limit::new(Algorithm::Concurrency, count, ttl).map_err(|error| Fault::new(at, error.message(), ""))
    }

    fn per(&mut self) -> Result<(), Fault> {
        if self.peek() == Some('/') {
            self.bump();
            return Ok(());
        }
        // Not a whole word: `10perhour` and `10 per2 hours` are fine.
        if self.begins("per") {
            self.at += 3;
            return Ok(());
        }
        let next = self.rest().chars().nth(1);
        if matches!(self.peek(), Some(',' | '_' | '\'')) && next.is_some_and(|c| c.is_ascii_digit()) {
            return Err(Fault::new(self.at, "a number is written without separators", "digits only, as in `1000/day`"));
        }
        if self.peek() == Some('.') {
            return Err(Fault::new(self.at, "a count is a whole number", PER_WORDS));
        }
        Err(self.unexpected(PER_WORDS))
    }

    /// `[multiple] unit`.
    fn period(&mut self, expected: &str) -> Result<Period, Fault> {
        self.blanks();
        let start = self.at;
        let multiple = match self.peek() {
            Some(c) if c.is_ascii_digit() => Some(self.number()),
            _ => None,
        };
        self.blanks();
        let unit_at = self.at;
        let word = self.take(|c| c.is_ascii_alphabetic());
        if word.is_empty() {
            if self.peek() == Some('.') && multiple.is_some() {
                return Err(Fault::new(
                    self.at,
                    "a period is a whole number of units",
                    "a smaller unit, as in `90m` for 1.5h",
                ));
            }
            return Err(self.unexpected(if multiple.is_some() { UNIT_WORDS } else { expected }));
        }
        let lower = word.to_ascii_lowercase();
        let Some(&(name, unit)) = UNITS.iter().find(|(name, _)| *name == lower) else {
            let near = did_you_mean(word, UNITS.iter().map(|(name, _)| *name));
            return Err(Fault::new(unit_at, format!("unknown unit `{}`{near}", clip(word)), UNIT_WORDS));
        };
        let multiple = match multiple {
            None => 1,
            // The `limits` package reads a multiple of 0 as 1, in the units that it knows.
            Some(Some(0)) if is_in_limits_package(name) => 1,
            Some(number) => number.unwrap_or(u64::MAX),
        };
        Period::new(multiple, unit).map_err(|error| {
            let what = if multiple == u64::MAX { "the period is too large" } else { error.message() };
            Fault::new(start, what, "a period from 1 ms to 10 years")
        })
    }

    fn count(&mut self, expected: &str) -> Result<u64, Fault> {
        let start = self.at;
        match self.peek() {
            Some(c) if c.is_ascii_digit() => {}
            Some('-') => return Err(Fault::new(start, "a count cannot be negative", expected)),
            Some(_) | None => return Err(self.unexpected(expected)),
        }
        self.number().filter(|number| *number <= MAX_COUNT).ok_or_else(|| {
            let digits = &self.text[start..self.at];
            Fault::new(
                start,
                format!("the number {} is too large", clip(digits)),
                "at most 10^12, which is 1000000000000",
            )
        })
    }

    /// The digits here; nothing when they pass 64 bits.
    fn number(&mut self) -> Option<u64> {
        let digits = self.take(|c| c.is_ascii_digit());
        digits.bytes().try_fold(0_u64, |sum, digit| sum.checked_mul(10)?.checked_add(u64::from(digit - b'0')))
    }

    /// What stands after a whole limit and neither separates nor ends.
    fn misplaced(&self) -> Fault {
        for (word, what) in [
            ("burst", "a burst is written once, after the period"),
            ("ttl", "only concurrency has a ttl"),
            ("per", "a limit has one period"),
        ] {
            if self.begins(word) {
                return Fault::new(self.at, what, END_WORDS);
            }
        }
        self.unexpected(END_WORDS)
    }

    fn unexpected(&self, expected: &str) -> Fault {
        let what = match self.peek() {
            None if self.text.chars().all(is_blank) => "the text is empty".to_owned(),
            None => "the text ends too early".to_owned(),
            Some(c) if c.is_ascii_alphanumeric() => {
                let rest = self.rest();
                let end = rest.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(rest.len());
                format!("unexpected `{}`", clip(&rest[..end]))
            }
            Some(c) if printable(c) == c => format!("unexpected `{c}`"),
            Some(c) => format!("unexpected character U+{:04X}", u32::from(c)),
        };
        Fault::new(self.at, what, expected)
    }

    /// Takes the word when it stands here and ends here.
    fn keyword(&mut self, word: &str) -> bool {
        let follows = self.rest().get(word.len()..).and_then(|rest| rest.chars().next());
        let found = self.begins(word) && !follows.is_some_and(|c| c.is_ascii_alphabetic());
        if found {
            self.at += word.len();
        }
        found
    }

    fn begins(&self, word: &str) -> bool {
        self.rest().get(..word.len()).is_some_and(|start| start.eq_ignore_ascii_case(word))
    }

    fn blanks(&mut self) {
        self.take(is_blank);
    }

    fn take(&mut self, wanted: impl Fn(char) -> bool) -> &'a str {
        let rest = self.rest();
        let end = rest.find(|c| !wanted(c)).unwrap_or(rest.len());
        self.at += end;
        &rest[..end]
    }

    fn bump(&mut self) {
        self.at += self.peek().map_or(0, char::len_utf8);
    }

    fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    fn rest(&self) -> &'a str {
        self.text.get(self.at..).unwrap_or_default()
    }
}

const fn is_separator(c: char) -> bool {
    matches!(c, ';' | ',' | '|')
}

/// Whether the `limits` package spells a unit so.
fn is_in_limits_package(unit: &str) -> bool {
    let singular = unit.strip_suffix('s').unwrap_or(unit);
    matches!(singular, "second" | "minute" | "hour" | "day" | "month" | "year")
}

#[cfg(test)]
mod tests;
