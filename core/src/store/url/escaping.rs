//! Refuses URLs with characters that were meant for a user or a password and are read as the end of them.

use crate::error::{Error, Result};

/// What a message says to do about such characters. It shows no part of the URL, because each may be a part of a password.
pub(super) const ADVICE: &str = "percent-encode special characters in a user, a password or a name (/ is %2F, ? is %3F, # \
                                 is %23, & is %26, @ is %40, % is %25); options follow a ? and have a & between them";

/// # Errors
/// `config_invalid`, without any part of the URL.
pub(super) fn refuse_unescaped(text: &str) -> Result<()> {
    let rest = text.split_once("://").map_or(text, |(_, rest)| rest);
    let (authority, tail) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
    let (path, query) = tail.split_once('?').unwrap_or((tail, ""));
    let wrong = if tail.contains('#') {
        "#"
    } else if path.contains('@') && !authority.is_empty() || query.contains('@') && !authority.contains('@') {
        // The @ ends a user or a password, which began before.
        "/, ? or @"
    } else if path.contains(['&', ';', '=']) {
        "&, ; or ="
    } else {
        return Ok(());
    };
    Err(Error::config(format!("the store URL has a {wrong} where it cannot be: {ADVICE}")))
}
