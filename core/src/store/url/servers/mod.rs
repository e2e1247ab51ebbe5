//! The URLs of Redis and Valkey.

#[cfg_attr(not(feature = "tls"), path = "without_tls.rs")]
mod certificates;
mod endpoints;
mod followed_hosts;
mod parse;
mod password_file;
#[cfg(test)]
mod tests;

use crate::error::Result;

#[cfg(feature = "tls")]
pub(crate) use certificates::Certificates;
pub(crate) use endpoints::{Address, Deployment, Endpoints, Login};

/// The servers that a URL names. `None` for an unknown scheme.
///
/// # Errors
/// `config_invalid`. Its message never shows a password.
pub(super) fn parse(scheme: &str, text: &str) -> Result<Option<Endpoints>> {
    Ok(Some(match scheme {
        "redis" | "valkey" => parse::tcp(text, false)?,
        "rediss" | "valkeys" => parse::tcp(text, true)?,
        "redis+unix" | "valkey+unix" | "unix" => parse::unix(text)?,
        "redis+sentinel" | "valkey+sentinel" => parse::sentinel(text, false)?,
        "rediss+sentinel" | "valkeys+sentinel" => parse::sentinel(text, true)?,
        "redis+cluster" | "valkey+cluster" => parse::cluster(text, false)?,
        "rediss+cluster" | "valkeys+cluster" => parse::cluster(text, true)?,
        _ => return Ok(None),
    }))
}
