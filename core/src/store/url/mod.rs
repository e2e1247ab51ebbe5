//! Store URLs: what they mean, and how they are shown without their secrets.

mod byte_size;
mod memory_bounds;
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

/// The values of the options that a query gives, in the order of their names.
///
/// # Errors
/// `config_invalid` for an option that is unknown or is given twice.
fn found_options(scheme: &str, query: &str, known: &[&str]) -> Result<Vec<Option<String>>> {
    let mut found = vec![None; known.len()];
    for (name, value) in form_urlencoded::parse(query.as_bytes()) {
        let Some(index) = known.iter().position(|known| *known == name) else {
            // The name is not shown: what follows a & in a password looks like one.
            return Err(Error::config(format!(
                "a store URL of {scheme}:// has no such option: it has {}. User and password stand before the host; {}",
                known.join(", "),
                secrets::ADVICE
            )));
        };
        if found[index].replace(value.into_owned()).is_some() {
            return Err(Error::config(format!("the store URL gives {name:?} twice")));
        }
    }
    Ok(found)
}
