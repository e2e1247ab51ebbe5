//! The notation: `20/minute; 5/3s`, `gcra 100/s burst 200`, `concurrency 8 ttl 30s`.
//!
//! The parser is written by hand, so that its errors are good. Each shows the text, points at the column and names the
//! expected text.

mod parser;
pub(super) mod syntax_error;

use std::str::FromStr;

use self::parser::Parser;
pub(super) use self::syntax_error::SyntaxError;
use crate::algorithm::{Anchor, Limit, Period};
use crate::error::{Error, Result};

/// The limits of a notation.
pub(super) fn parse(text: &str) -> Result<Vec<Limit>> {
    Ok(parse_located(text)?.into_iter().map(|(_, limit)| limit).collect())
}

/// [`parse`], with the column of each limit, from 0.
pub(super) fn parse_located(text: &str) -> Result<Vec<(usize, Limit)>> {
    scan(text).map_err(|error| error.to_error(text))
}

/// The length of time in a text such as `10m`, `1 day` or `month`.
fn parse_duration(text: &str) -> Result<Period> {
    scan_duration(text).map_err(|error| error.to_error(text))
}

/// [`parse_located`], for callers that know the position of the text in a file.
pub(super) fn scan(text: &str) -> Result<Vec<(usize, Limit)>, SyntaxError> {
    refuse_url(text, "limits, as in `20/minute; 5/3s`")?;
    let limits = Parser::new(text).policy()?;
    Ok(limits.into_iter().map(|(offset, limit)| (text[..offset].chars().count(), limit)).collect())
}

/// [`parse_duration`], for callers that know the position of the text in a file.
pub(super) fn scan_duration(text: &str) -> Result<Period, SyntaxError> {
    let expected = "a length of time, as in `10m` or `1 day`";
    refuse_url(text, expected)?;
    let mut parser = Parser::new(text);
    let period = parser.period(expected)?;
    parser.end()?;
    Ok(period)
}

/// The anchor in a text such as `day 15 at 06:00`, for callers that know the position of the text in a file.
pub(super) fn scan_anchor(text: &str) -> Result<Anchor, SyntaxError> {
    refuse_url(text, "where a window begins, as in `day 15 at 06:00`")?;
    let mut parser = Parser::new(text);
    let anchor = parser.anchor()?;
    parser.end()?;
    Ok(anchor)
}

/// True if a text may be the URL of a store, or the rest of one. An error must not show its password.
pub(crate) fn may_be_url(text: &str) -> bool {
    text.contains("://") || text.split_once(':').is_some_and(|(_, rest)| rest.starts_with('/') || rest.contains('@'))
}

/// A caller's wrong word in quotes, for messages.
pub(crate) fn quoted(word: &str) -> String {
    if may_be_url(word) { "a URL".to_owned() } else { format!("{:?}", word.chars().take(80).collect::<String>()) }
}

/// Refuses the URL of a store in place of a policy.
fn refuse_url(text: &str, expected: &str) -> Result<(), SyntaxError> {
    if !may_be_url(text) {
        return Ok(());
    }
    Err(SyntaxError::new(0, "unexpected URL", expected).without_text())
}

/// `10m`, `1 day`, `month`.
impl FromStr for Period {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        parse_duration(text)
    }
}

/// `day 15 at 06:00`, `monday`, `at 06:00`.
impl FromStr for Anchor {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        scan_anchor(text).map_err(|error| error.to_error(text))
    }
}

#[cfg(test)]
mod tests;
