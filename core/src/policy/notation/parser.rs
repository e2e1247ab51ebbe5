//! The parser of the notation.

use super::super::MAX_LIMITS;
use super::super::suggestion::did_you_mean;
use super::syntax_error::{SyntaxError, clip, is_blank, printable};
use crate::algorithm::{Algorithm, Anchor, AnchorDay, DEFAULT_TTL, Limit, MAX_COUNT, WEEKDAYS, zone_names};
use crate::algorithm::{Period, SPELLINGS, TimeUnit, Unit};
use crate::error::Error;

const UNIT_WORDS: &str = "a unit: ms, s, minute, hour, day, week, month or year";
const PER_WORDS: &str = "`/` or `per` and a period, as in `20/minute` or `20 per 2 hours`";
const END_WORDS: &str = "`;` and another limit, or the end";
const ANCHOR_WORDS: &str =
    "`day` and its number, a weekday or `at` and a time, as in `from day 15 at 06:00` or `from monday`";
const TIME_WORDS: &str = "a time from 00:00 to 23:59, as in `at 06:00`";
const ZONE_WORDS: &str = "the IANA name of a time zone, as in `in Europe/Berlin`";

pub(super) struct Parser<'a> {
    text: &'a str,
    /// The bytes that it has read.
    offset: usize,
}

impl<'a> Parser<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        Self { text, offset: 0 }
    }

    /// The limits, each with its offset in bytes.
    pub(super) fn policy(&mut self) -> Result<Vec<(usize, Limit)>, SyntaxError> {
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
            limits.push((start, self.limit()?));
            self.skip_blanks();
            // The `limits` package accepts a colon before a separator, so existing texts may hold one.
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
        if self.keyword("burst") {
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
            limit = limit.with_burst(burst).map_err(|error| SyntaxError::new(burst_offset, error.message(), ""))?;
        }
        self.calendar(limit)
    }

    /// `["from" anchor] ["in" zone]`, after a limit.
    fn calendar(&mut self, mut limit: Limit) -> Result<Limit, SyntaxError> {
        self.skip_blanks();
        let word_offset = self.offset;
        let refused = |what: &Error| SyntaxError::new(word_offset, what.message(), calendar_words(&limit));
        if self.keyword("from") {
            // First the error for a limit that cannot have an anchor, then one for the anchor itself.
            limit.clone().with_anchor(Anchor::new(None, 0)).map_err(|error| refused(&error))?;
            self.skip_blanks();
            let anchor_offset = self.offset;
            let anchor = self.anchor()?;
            limit = limit.with_anchor(anchor).map_err(|error| SyntaxError::new(anchor_offset, error.message(), ""))?;
        }
        self.skip_blanks();
        let word_offset = self.offset;
        if self.keyword("in") {
            let refused = |what: &Error| SyntaxError::new(word_offset, what.message(), calendar_words(&limit));
            limit.clone().with_zone("UTC").map_err(|error| refused(&error))?;
            self.skip_blanks();
            let zone_offset = self.offset;
            let zone = self.take_while(|c| !is_blank(c) && !is_separator(c) && c != ':');
            if zone.is_empty() {
                return Err(self.unexpected(ZONE_WORDS));
            }
            limit = limit.with_zone(zone).map_err(|_| {
                let names = zone_names();
                let near = did_you_mean(zone, names.iter().map(String::as_str));
                SyntaxError::new(zone_offset, format!("unknown time zone `{}`{near}", clip(zone)), ZONE_WORDS)
            })?;
        }
        Ok(limit)
    }

    /// `day 15 at 06:00`, `monday`, `at 06:00`.
    pub(super) fn anchor(&mut self) -> Result<Anchor, SyntaxError> {
        self.skip_blanks();
        let day = if self.keyword("day") {
            self.skip_blanks();
            let offset = self.offset;
            if !self.peek().is_some_and(|c| c.is_ascii_digit()) {
                return Err(self.unexpected("the number of a day, as in `day 15`"));
            }
            match self.number() {
                Some(day @ 1..=31) => Some(AnchorDay::Number(day as u8)),
                _ => return Err(SyntaxError::new(offset, "there is no such day of a month", "a number from 1 to 31")),
            }
        } else {
            let weekday = (0..).zip(WEEKDAYS).find(|(_, name)| self.keyword(name));
            weekday.map(|(number, _)| AnchorDay::Weekday(number))
        };
        self.skip_blanks();
        if !self.keyword("at") {
            if day.is_some() {
                return Ok(Anchor::new(day, 0));
            }
            return Err(self.unexpected(ANCHOR_WORDS));
        }
        self.skip_blanks();
        Ok(Anchor::new(day, self.time()?))
    }

    /// `06:00`, in minutes.
    fn time(&mut self) -> Result<u16, SyntaxError> {
        let start = self.offset;
        let text = self.take_while(|c| c.is_ascii_digit() || c == ':');
        let two = |digits: &str| (digits.len() == 2).then(|| digits.parse::<u16>().ok()).flatten();
        let parts = text.split_once(':').and_then(|(hour, minute)| Some((two(hour)?, two(minute)?)));
        match parts {
            Some((hour @ ..24, minute @ ..60)) => Ok(hour * 60 + minute),
            _ if text.is_empty() => Err(self.unexpected(TIME_WORDS)),
            _ => Err(SyntaxError::new(start, format!("`{}` is not a time", clip(text)), TIME_WORDS)),
        }
    }

    /// The name of the counted unit, and its offset. A word of the notation is no such name.
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
        // Not as a whole word, because `10perhour` and `10 per2 hours` are valid.
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
            // The `limits` package reads a multiple of 0 as 1, in the units that it has.
            Some(Some(0)) if is_in_limits_package(word) => 1,
            Some(number) => number.unwrap_or(u64::MAX),
        };
        Period::new(multiple, unit).map_err(|error| {
            let what = if multiple == u64::MAX { "the period is too large" } else { error.message() };
            SyntaxError::new(start, what, "a period from 1 ms to 10 years")
        })
    }

    /// Accepts nothing but blanks.
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

    /// The digits that come next. `None` if the number exceeds 64 bits.
    fn number(&mut self) -> Option<u64> {
        let digits = self.take_while(|c| c.is_ascii_digit());
        digits.bytes().try_fold(0_u64, |sum, digit| sum.checked_mul(10)?.checked_add(u64::from(digit - b'0')))
    }

    /// The error for a text after a complete limit that is neither a separator nor the end.
    fn misplaced(&self) -> SyntaxError {
        for (word, what) in [
            ("burst", "a burst is written once, after the period"),
            ("ttl", "only concurrency has a ttl"),
            ("per", "a limit has one period"),
            ("from", "`from` is written once, after the period and before `in`"),
            ("in", "`in` is written once, at the end of a limit"),
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

    /// Skips a whole word if it comes next.
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

/// The expected text in place of a limit that cannot have a calendar.
fn calendar_words(limit: &Limit) -> String {
    if limit.algorithm() == Algorithm::CalendarWindow {
        return "a period of one day, week, month or year before it".to_owned();
    }
    format!("`{} {}/{}` before it, or the end", Algorithm::CalendarWindow, limit.count(), limit.period())
}

const fn is_separator(c: char) -> bool {
    matches!(c, ';' | ',' | '|')
}

/// True if the `limits` package has this spelling of a unit.
fn is_in_limits_package(unit: &str) -> bool {
    let lower = unit.to_ascii_lowercase();
    let singular = lower.strip_suffix('s').unwrap_or(&lower);
    matches!(singular, "second" | "minute" | "hour" | "day" | "month" | "year")
}
