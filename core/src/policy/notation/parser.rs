//! The parser of the notation.

use super::super::MAX_LIMITS;
use super::super::suggestion::did_you_mean;
use super::syntax_error::{SyntaxError, clip, is_blank, printable};
use crate::algorithm::{Algorithm, DEFAULT_TTL, Limit, MAX_COUNT};
use crate::algorithm::{Period, SPELLINGS, TimeUnit, Unit};

const UNIT_WORDS: &str = "a unit: ms, s, minute, hour, day, week, month or year";
const PER_WORDS: &str = "`/` or `per` and a period, as in `20/minute` or `20 per 2 hours`";
const END_WORDS: &str = "`;` and another limit, or the end";
pub(super) struct Parser<'a> {
    text: &'a str,
    /// Bytes that were read.
    offset: usize,
}

impl<'a> Parser<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        Self { text, offset: 0 }
    }

    pub(super) fn policy(&mut self) -> Result<Vec<Limit>, SyntaxError> {
        let mut limits = Vec::new();
        loop {
            self.skip_blanks();
            let start = self.offset;
            if limits.len() == MAX_LIMITS {
                return Err(SyntaxError::new(
                    start,
                    format!("a policy has more than {MAX_LIMITS} limits"),
                    "fewer limits",
                ));
            }
            limits.push(self.limit()?);
            self.skip_blanks();
            // The `limits` package accepts a colon before a separator, so texts that people have may hold one.
            if self.peek() == Some(':') && self.rest().get(1..).is_some_and(|rest| rest.starts_with(is_separator)) {
                self.skip_char();
            }
            match self.peek() {
                None => return Ok(limits),
                Some(c) if is_separator(c) => self.skip_char(),
                Some(_) => return Err(self.misplaced()),
            }
        }
    }

    fn limit(&mut self) -> Result<Limit, SyntaxError> {
        let start = self.offset;
        let algorithm = match self.peek() {
            Some(c) if c.is_ascii_alphabetic() => self.algorithm()?,
            _ => Algorithm::SlidingWindow,
        };
        self.skip_blanks();
        let count =
            self.count(if self.offset == start { "a limit, as in `20/minute`" } else { "a count, as in `20/minute`" })?;
        self.skip_blanks();
        if algorithm == Algorithm::Concurrency {
            return self.concurrency(count);
        }
        let unit = self.counted();
        self.per()?;
        let period = self.period(UNIT_WORDS)?;
        let mut limit =
            Limit::new(algorithm, count, period).map_err(|error| SyntaxError::new(start, error.message(), ""))?;
        if let Some((offset, unit)) = unit {
            limit = limit.with_unit(unit).map_err(|error| SyntaxError::new(offset, error.message(), ""))?;
        }
        self.skip_blanks();
        let word_offset = self.offset;
        if !self.keyword("burst") {
            return Ok(limit);
        }
        if !algorithm.has_burst() {
            return Err(SyntaxError::new(
                word_offset,
                format!("{algorithm} has no burst: only token-bucket, gcra and leaky-bucket have one"),
                END_WORDS,
            ));
        }
        self.skip_blanks();
        let burst_offset = self.offset;
        let burst = self.count("a count, as in `burst 200`")?;
        limit.with_burst(burst).map_err(|error| SyntaxError::new(burst_offset, error.message(), ""))
    }

    /// The name of what is counted, and where it stands. A word of the notation is none.
    fn counted(&mut self) -> Option<(usize, &'a str)> {
        let start = self.offset;
        let word = self.take_while(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_'));
        let per = word.get(..3).filter(|start| start.eq_ignore_ascii_case("per")).map(|_| &word[3..]);
        let after_per = per.map(|rest| rest.trim_start_matches(|c: char| c.is_ascii_digit()));
        let is_per = after_per.is_some_and(|rest| rest.is_empty() || TimeUnit::of_word(rest).is_some());
        if is_per || !word.starts_with(|c: char| c.is_ascii_alphabetic()) || Unit::is_reserved(word) {
            self.offset = start;
            return None;
        }
        self.skip_blanks();
        Some((start, word))
    }

    fn algorithm(&mut self) -> Result<Algorithm, SyntaxError> {
        let start = self.offset;
        let word = self.take_while(|c| c.is_ascii_alphabetic() || c == '-' || c == '_');
        Algorithm::from_name(word).ok_or_else(|| {
            let names = Algorithm::ALL.map(Algorithm::name);
            SyntaxError::new(
                start,
                format!("unknown algorithm `{}`{}", clip(word), did_you_mean(word, names)),
                format!("a count, or one of {}", names.join(", ")),
            )
        })
    }

    fn concurrency(&mut self, count: u64) -> Result<Limit, SyntaxError> {
        let start = self.offset;
        let ttl = if self.keyword("ttl") {
            self.skip_blanks();
            if !self.peek().is_some_and(|c| c.is_ascii_digit()) {
                return Err(self.unexpected("a length of time, as in `ttl 30s`"));
            }
            self.period(UNIT_WORDS)?
        } else if self.peek() == Some('/') || self.begins("per") {
            return Err(SyntaxError::new(
                start,
                "concurrency counts what is in progress at the same time, so it has no period",
                "`ttl` and how long a hold lasts, as in `concurrency 8 ttl 30s`, or the end",
            ));
        } else {
            DEFAULT_TTL
        };
        Limit::new(Algorithm::Concurrency, count, ttl).map_err(|error| SyntaxError::new(start, error.message(), ""))
    }

    fn per(&mut self) -> Result<(), SyntaxError> {
        if self.peek() == Some('/') {
            self.skip_char();
            return Ok(());
        }
        // Not as a whole word: `10perhour` and `10 per2 hours` are valid.
        if self.begins("per") {
            self.offset += 3;
            return Ok(());
        }
        let next = self.rest().chars().nth(1);
        if matches!(self.peek(), Some(',' | '_' | '\'')) && next.is_some_and(|c| c.is_ascii_digit()) {
            return Err(SyntaxError::new(
                self.offset,
                "a number is written without separators",
                "digits only, as in `1000/day`",
            ));
        }
        if self.peek() == Some('.') {
            return Err(SyntaxError::new(self.offset, "a count is a whole number", PER_WORDS));
        }
        Err(self.unexpected(PER_WORDS))
    }

    /// `[multiple] unit`.
    pub(super) fn period(&mut self, expected: &str) -> Result<Period, SyntaxError> {
        self.skip_blanks();
        let start = self.offset;
        let multiple = match self.peek() {
            Some(c) if c.is_ascii_digit() => Some(self.number()),
            _ => None,
        };
        self.skip_blanks();
        let unit_offset = self.offset;
        let word = self.take_while(|c| c.is_ascii_alphabetic());
        if word.is_empty() {
            if self.peek() == Some('.') && multiple.is_some() {
                return Err(SyntaxError::new(
                    self.offset,
                    "a period is a whole number of units",
                    "a smaller unit, as in `90m` for 1.5h",
                ));
            }
            return Err(self.unexpected(if multiple.is_some() { UNIT_WORDS } else { expected }));
        }
        let Some(unit) = TimeUnit::of_word(word) else {
            let near = did_you_mean(word, SPELLINGS.iter().map(|(name, _)| *name));
            return Err(SyntaxError::new(unit_offset, format!("unknown unit `{}`{near}", clip(word)), UNIT_WORDS));
        };
        let multiple = match multiple {
            None => 1,
            // The `limits` package reads a multiple of 0 as 1, in the units that it knows.
            Some(Some(0)) if is_in_limits_package(word) => 1,
            Some(number) => number.unwrap_or(u64::MAX),
        };
        Period::new(multiple, unit).map_err(|error| {
            let what = if multiple == u64::MAX { "the period is too large" } else { error.message() };
            SyntaxError::new(start, what, "a period from 1 ms to 10 years")
        })
    }

    /// Nothing but blanks.
    pub(super) fn end(&mut self) -> Result<(), SyntaxError> {
        self.skip_blanks();
        match self.peek() {
            None => Ok(()),
            Some(_) => Err(self.unexpected("the end")),
        }
    }

    fn count(&mut self, expected: &str) -> Result<u64, SyntaxError> {
        let start = self.offset;
        match self.peek() {
            Some(c) if c.is_ascii_digit() => {}
            Some('-') => return Err(SyntaxError::new(start, "a count cannot be negative", expected)),
            Some(_) | None => return Err(self.unexpected(expected)),
        }
        self.number().filter(|number| *number <= MAX_COUNT).ok_or_else(|| {
            let digits = &self.text[start..self.offset];
            SyntaxError::new(
                start,
                format!("the number {} is too large", clip(digits)),
                "at most 10^12, which is 1000000000000",
            )
        })
    }

    /// The digits that come next; `None` when the number exceeds 64 bits.
    fn number(&mut self) -> Option<u64> {
        let digits = self.take_while(|c| c.is_ascii_digit());
        digits.bytes().try_fold(0_u64, |sum, digit| sum.checked_mul(10)?.checked_add(u64::from(digit - b'0')))
    }

    /// The error for what follows a complete limit and is neither a separator nor the end.
    fn misplaced(&self) -> SyntaxError {
        for (word, what) in [
            ("burst", "a burst is written once, after the period"),
            ("ttl", "only concurrency has a ttl"),
            ("per", "a limit has one period"),
        ] {
            if self.begins(word) {
                return SyntaxError::new(self.offset, what, END_WORDS);
            }
        }
        self.unexpected(END_WORDS)
    }

    fn unexpected(&self, expected: &str) -> SyntaxError {
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
        SyntaxError::new(self.offset, what, expected)
    }

    /// Skips a word if it comes next, as a whole word.
    fn keyword(&mut self, word: &str) -> bool {
        let follows = self.rest().get(word.len()..).and_then(|rest| rest.chars().next());
        let found = self.begins(word) && !follows.is_some_and(|c| c.is_ascii_alphabetic());
        if found {
            self.offset += word.len();
        }
        found
    }

    fn begins(&self, word: &str) -> bool {
        self.rest().get(..word.len()).is_some_and(|start| start.eq_ignore_ascii_case(word))
    }

    fn skip_blanks(&mut self) {
        self.take_while(is_blank);
    }

    fn take_while(&mut self, wanted: impl Fn(char) -> bool) -> &'a str {
        let rest = self.rest();
        let end = rest.find(|c| !wanted(c)).unwrap_or(rest.len());
        self.offset += end;
        &rest[..end]
    }

    fn skip_char(&mut self) {
        self.offset += self.peek().map_or(0, char::len_utf8);
    }

    fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    fn rest(&self) -> &'a str {
        self.text.get(self.offset..).unwrap_or_default()
    }
}

const fn is_separator(c: char) -> bool {
    matches!(c, ';' | ',' | '|')
}

/// Whether the `limits` package knows this spelling of a unit.
fn is_in_limits_package(unit: &str) -> bool {
    let lower = unit.to_ascii_lowercase();
    let singular = lower.strip_suffix('s').unwrap_or(&lower);
    matches!(singular, "second" | "minute" | "hour" | "day" | "month" | "year")
}
