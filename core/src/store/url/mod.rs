//! Store URLs: what they mean, and how they are shown without their secrets.

mod byte_size;
mod certificates;
mod endpoints;
mod escaping;
mod memory_bounds;
mod parse;
mod password_file;
#[cfg(test)]
mod tests;
mod without_secrets;

use crate::error::{Error, Result};

pub(crate) use endpoints::{Address, Certificates, Deployment, Endpoints, Login};
pub(crate) use memory_bounds::MemoryBounds;
pub(crate) use without_secrets::without_secrets;

/// A store, as a URL names it.
#[derive(Clone)]
pub(crate) enum StoreUrl {
    /// `memory://?max_keys=1000000&max_bytes=1GB`
    Memory(MemoryBounds),
    /// Redis or Valkey: one server, or several that act as one.
    Redis(Box<Endpoints>),
}

impl StoreUrl {
    /// # Errors
    /// `config_invalid`. Its message never shows a password.
    pub(crate) fn parse(text: &str) -> Result<Self> {
        let scheme = text.split_once("://").map_or("", |(scheme, _)| scheme);
        escaping::refuse_unescaped(text)?;
        let known = "memory://, redis://, rediss://, redis+unix://, redis+sentinel://, redis+cluster://, or valkey in \
                     the place of redis";
        match scheme {
            "memory" => parse::memory(&parse::parsed(text)?),
            "redis" | "valkey" => parse::tcp(&parse::parsed(text)?, false),
            "rediss" | "valkeys" => parse::tcp(&parse::parsed(text)?, true),
            "redis+unix" | "valkey+unix" | "unix" => parse::unix(&parse::parsed(text)?),
            "redis+sentinel" | "valkey+sentinel" => parse::sentinel(text, false),
            "rediss+sentinel" | "valkeys+sentinel" => parse::sentinel(text, true),
            "redis+cluster" | "valkey+cluster" => parse::cluster(text, false),
            "rediss+cluster" | "valkeys+cluster" => parse::cluster(text, true),
            "" => Err(Error::config(format!("a store URL begins with {known}; this one has no scheme"))),
            // The text before a :// in a password is no scheme, and is not shown.
            _ if !scheme.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte)) => {
                Err(Error::config(format!("a store URL begins with {known}; this one begins with something else")))
            }
            _ => Err(Error::config(format!("no store has the scheme {scheme}://; use {known}"))),
        }
    }
}
