//! Store URLs: what they mean, and how they are shown without their secrets.

mod byte_size;
mod memory_bounds;
mod query;
mod secrets;
#[cfg_attr(not(feature = "redis"), path = "without_redis.rs")]
mod servers;

use crate::error::{Error, Result};

pub(crate) use memory_bounds::MemoryBounds;
pub(crate) use secrets::without_secrets;
#[cfg(feature = "tls")]
pub(crate) use servers::Certificates;
pub(crate) use servers::Endpoints;
#[cfg(feature = "redis")]
pub(crate) use servers::{Address, Deployment, Login};

/// The longest scheme that an error shows.
const MAX_SCHEME: usize = 32;

/// A store, as a URL names it.
#[derive(Clone)]
pub(crate) enum StoreUrl {
    /// `memory://?max_keys=1000000&max_bytes=1GB`
    Memory(MemoryBounds),
    /// Redis or Valkey: one server, or several that act as one.
    Redis(Box<Endpoints>),
}

impl StoreUrl {
    /// Reads a store URL.
    ///
    /// # Errors
    /// `config_invalid`. Its message never shows a password.
    pub(crate) fn parse(text: &str) -> Result<Self> {
        let scheme = text.split_once("://").map_or("", |(scheme, _)| scheme);
        secrets::refuse_unescaped(text)?;
        let known = "memory://, redis://, rediss://, redis+unix://, redis+sentinel://, redis+cluster://, or valkey in \
                     the place of redis";
        if scheme == "memory" {
            return Ok(Self::Memory(MemoryBounds::parse(text)?));
        }
        if let Some(endpoints) = servers::parse(scheme, text)? {
            return Ok(Self::Redis(Box::new(endpoints)));
        }
        Err(Error::config(match scheme {
            "" => format!("a store URL begins with {known}; this one has no scheme"),
            // The text before a :// in a password is no scheme, and is not shown.
            _ if scheme.len() > MAX_SCHEME
                || !scheme.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte)) =>
            {
                format!("a store URL begins with {known}; this one begins with something else")
            }
            _ => format!("no store has the scheme {scheme}://; use {known}"),
        }))
    }
}
