//! Reads store URLs, and shows them without their secrets.

mod byte_size;
#[cfg(all(unix, feature = "redis"))]
mod machine_file;
mod memory_bounds;
#[cfg(feature = "postgres")]
mod postgres;
mod query;
mod secrets;
#[cfg_attr(not(feature = "redis"), path = "without_redis.rs")]
mod servers;

use crate::error::{Error, Result};

#[cfg(all(unix, feature = "redis"))]
pub(crate) use machine_file::MachineFile;
pub(crate) use memory_bounds::MemoryBounds;
#[cfg(feature = "postgres")]
pub(crate) use postgres::{PostgresTable, Prepare};
#[cfg(feature = "redis")]
pub(crate) use secrets::APPLICATION_SCHEME;
pub(crate) use secrets::without_secrets;
#[cfg(feature = "tls")]
pub(crate) use servers::Certificates;
pub(crate) use servers::Endpoints;
#[cfg(feature = "redis")]
pub(crate) use servers::{Address, Deployment, Login};

/// A store, as a URL names it.
#[derive(Clone)]
pub(crate) enum StoreUrl {
    /// `memory://?max_keys=1000000&max_bytes=1GB`
    Memory(MemoryBounds),
    /// `file:///path/to/limits?max_bytes=64MB`
    #[cfg(all(unix, feature = "redis"))]
    Machine(MachineFile),
    /// `postgresql://user:password@host:5432/database?table=tidegate`
    #[cfg(feature = "postgres")]
    Postgres(Box<PostgresTable>),
    /// Redis or Valkey: one server, or several that act as one.
    Redis(Box<Endpoints>),
}

impl StoreUrl {
    /// Reads a store URL.
    ///
    /// # Errors
    /// `config_invalid`. Its message never shows a password.
    pub(crate) fn parse(text: &str) -> Result<Self> {
        let scheme = secrets::scheme(text).unwrap_or_default();
        secrets::refuse_unescaped(text)?;
        let known = "memory://, file://, postgresql://, redis://, rediss://, redis+unix://, redis+sentinel://, redis+cluster://, or valkey in \
                     the place of redis";
        if scheme == "memory" {
            return Ok(Self::Memory(MemoryBounds::parse(text)?));
        }
        if scheme == "file" {
            #[cfg(all(unix, feature = "redis"))]
            return Ok(Self::Machine(MachineFile::parse(text)?));
            #[cfg(not(all(unix, feature = "redis")))]
            return Err(Error::config("file:// cannot be used on this system yet: use memory:// or redis://"));
        }
        if matches!(scheme, "postgresql" | "postgres") {
            #[cfg(feature = "postgres")]
            return Ok(Self::Postgres(Box::new(PostgresTable::parse(text)?)));
            #[cfg(not(feature = "postgres"))]
            return Err(Error::config(
                "this build of Tidegate has no PostgreSQL: enable the feature postgres of the crate",
            ));
        }
        if let Some(endpoints) = servers::parse(scheme, text)? {
            return Ok(Self::Redis(Box::new(endpoints)));
        }
        let begins = if text.contains("://") { "begins with something else" } else { "has no scheme" };
        Err(Error::config(format!("a store URL begins with {known}; this one {begins}")))
    }
}
