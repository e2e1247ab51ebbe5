//! A table in PostgreSQL, as a URL names it.

use std::path::Path;
use std::str::FromStr;
use std::time::Duration;

use tokio_postgres::Config;
use tokio_postgres::config::{SslMode, TargetSessionAttrs};

use super::secrets;
use super::servers::Certificates;
use crate::error::{Error, ErrorKind, Result};
use crate::process::regular_file::{self, Links, Unreadable};

const DEFAULT_TABLE: &str = "tidegate";
const DEFAULT_CONNECTIONS: usize = 4;
const MAX_CONNECTIONS: usize = 100;
/// The time for each of several hosts, if the URL names none.
const CONNECT_TIMEOUT_OF_SEVERAL: Duration = Duration::from_secs(1);
/// The largest file of certificates, in bytes.
const MAX_CERTIFICATES: usize = 8 << 20;
/// The longest name of PostgreSQL, in bytes. It cuts longer ones.
const MAX_NAME: usize = 63;
const OPTIONS: &str = "table, durability, connections, prepare, create, sslmode, sslrootcert, application_name, connect_timeout and options";

/// If statements are prepared on the server under names, which saves the time to plan them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Prepare {
    /// Until the server does not know one of its own names: then a pooler is between.
    Auto,
    Yes,
    No,
}

/// A table, and how to reach it.
#[derive(Clone)]
pub(crate) struct PostgresTable {
    pub(crate) config: Config,
    /// The table, quoted, with its schema if the URL has one.
    pub(crate) table: String,
    /// True if a call waits until its commit is on the disk.
    pub(crate) is_durable: bool,
    pub(crate) connections: usize,
    pub(crate) prepare: Prepare,
    /// True if a limiter makes the table when it is missing.
    pub(crate) creates: bool,
    pub(crate) certificates: Certificates,
    /// The URL in messages, without secrets.
    pub(crate) shown: String,
}

impl PostgresTable {
    /// Reads a URL of `postgresql://` or `postgres://`.
    ///
    /// # Errors
    /// `config_invalid`, without any part of the URL that may be a secret.
    pub(super) fn parse(url: &str) -> Result<Self> {
        let (place, query) = url.split_once('?').unwrap_or((url, ""));
        let mut config = Config::from_str(place).map_err(|_| unreadable())?;
        let mut table = Self {
            table: quoted(DEFAULT_TABLE)?,
            is_durable: false,
            connections: DEFAULT_CONNECTIONS,
            prepare: Prepare::Auto,
            creates: false,
            certificates: Certificates { unverified: true, ..Certificates::default() },
            shown: secrets::without_secrets(url),
            config: Config::new(),
        };
        config.application_name("tidegate");
        let mut given: Vec<String> = Vec::new();
        for (name, value) in form_urlencoded::parse(query.as_bytes()) {
            match &*name {
                "table" => table.table = quoted(&value)?,
                "durability" => table.is_durable = choice("durability", &value, [("async", false), ("sync", true)])?,
                "connections" => {
                    let connections = value.parse().ok().filter(|count| (1..=MAX_CONNECTIONS).contains(count));
                    table.connections = connections.ok_or_else(|| {
                        Error::config(format!(
                            "connections of {} must be a number from 1 to {MAX_CONNECTIONS}",
                            table.shown
                        ))
                    })?;
                }
                "prepare" => {
                    let choices = [("auto", Prepare::Auto), ("yes", Prepare::Yes), ("no", Prepare::No)];
                    table.prepare = choice("prepare", &value, choices)?;
                }
                "create" => table.creates = choice("create", &value, [("no", false), ("yes", true)])?,
                "sslmode" => {
                    use SslMode::{Disable, Prefer, Require};
                    // The name of the server is checked for `verify-ca` too.
                    let modes = [
                        ("disable", (Disable, true)),
                        ("prefer", (Prefer, true)),
                        ("require", (Require, true)),
                        ("verify-ca", (Require, false)),
                        ("verify-full", (Require, false)),
                    ];
                    let (mode, unverified) = choice("sslmode", &value, modes)?;
                    config.ssl_mode(mode);
                    table.certificates.unverified = unverified;
                }
                "sslrootcert" if value == "system" => {}
                "sslrootcert" => {
                    // The path is not shown: a part of a password may follow it.
                    let unreadable =
                        |why: Unreadable| why.as_error(ErrorKind::ConfigInvalid, "the file that sslrootcert names");
                    let read = regular_file::read(Path::new(&*value), MAX_CERTIFICATES, Links::Followed);
                    table.certificates.authority = Some(read.map_err(unreadable)?);
                }
                "application_name" => drop(config.application_name(&*value)),
                "options" => drop(config.options(&*value)),
                "connect_timeout" => {
                    let seconds = value.parse().ok().filter(|seconds| *seconds > 0);
                    let seconds =
                        seconds.ok_or_else(|| Error::config("connect_timeout must be a whole number of seconds"))?;
                    config.connect_timeout(Duration::from_secs(seconds));
                }
                // The name is not shown: the text after a & in a password looks like one.
                _ => {
                    return Err(Error::config(format!(
                        "a store URL of postgresql:// has no such option: it has {OPTIONS}. User and password stand before the \
                         host; {}",
                        secrets::ADVICE
                    )));
                }
            }
            if given.iter().any(|known| **known == *name) {
                return Err(Error::config(format!("the store URL gives {name:?} twice")));
            }
            given.push(name.into_owned());
        }
        let hosts = config.get_hosts().len().max(config.get_hostaddrs().len());
        if hosts == 0 {
            return Err(unreadable());
        }
        if hosts > 1 {
            // A standby does not write, and one that is gone must not use up the time for the others.
            config.target_session_attrs(TargetSessionAttrs::ReadWrite);
            if config.get_connect_timeout().is_none() {
                config.connect_timeout(CONNECT_TIMEOUT_OF_SEVERAL);
            }
        }
        Ok(Self { config, ..table })
    }
}

fn unreadable() -> Error {
    Error::config(format!(
        "the URL of PostgreSQL cannot be read: write postgresql://user:password@host:5432/database?table=tidegate; {}",
        secrets::ADVICE
    ))
}

/// The value of an option that has a few.
fn choice<T: Copy, const N: usize>(option: &str, value: &str, choices: [(&str, T); N]) -> Result<T> {
    let found = choices.iter().find(|(name, _)| *name == value);
    found.map(|(_, meaning)| *meaning).ok_or_else(|| {
        let names: Vec<&str> = choices.iter().map(|(name, _)| *name).collect();
        Error::config(format!("{option} is unknown: give {}", names.join(", ")))
    })
}

/// The name of a table as SQL has it: each part in quotes.
fn quoted(name: &str) -> Result<String> {
    let parts: Vec<&str> = name.split('.').collect();
    let is_name = |part: &&str| !part.is_empty() && part.len() <= MAX_NAME && !part.contains(['"', '\0']);
    if parts.len() > 2 || !parts.iter().all(is_name) {
        return Err(Error::config(format!(
            "table names no table: give a name of at most {MAX_NAME} bytes, with a schema before a dot if you like, as in \
             limits.tidegate"
        )));
    }
    Ok(parts.iter().map(|part| format!("\"{part}\"")).collect::<Vec<_>>().join("."))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_names_a_table_and_how_to_reach_it() {
        let parsed = |url| PostgresTable::parse(url).expect(url);
        let table = parsed("postgresql://user:hunter2@db.example:5433/app");
        assert_eq!((&*table.table, table.connections, table.is_durable), ("\"tidegate\"", 4, false));
        assert_eq!((table.config.get_user(), table.config.get_dbname()), (Some("user"), Some("app")));
        assert_eq!(table.shown, "postgresql://db.example:5433/app");
        let url = "postgres://h/d?table=limits.Tide&durability=sync&connections=9&prepare=yes&create=yes&sslmode=require\
                   &application_name=shop&connect_timeout=3&options=-c%20geqo%3Doff";
        let table = parsed(url);
        assert_eq!((&*table.table, table.connections, table.is_durable), ("\"limits\".\"Tide\"", 9, true));
        assert!(table.prepare == Prepare::Yes && table.creates && table.config.get_ssl_mode() == SslMode::Require);
        assert_eq!(table.config.get_application_name(), Some("shop"));
    }

    #[test]
    fn a_wrong_url_is_refused_without_its_secrets() {
        for url in [
            "postgresql://",
            "postgresql://u:hunter2@h/d?table=",
            "postgresql://u:hunter2@h/d?table=a.b.c",
            "postgresql://u:hunter2@h/d?table=a\"b",
            "postgresql://u:hunter2@h/d?connections=0",
            "postgresql://u:hunter2@h/d?durability=maybe",
            "postgresql://u:hunter2@h/d?hunter2=1",
            "postgresql://u:hunter2@h/d?create=yes&create=yes",
            "postgresql://u:hunter2@h:port/d",
        ] {
            let error = PostgresTable::parse(url).err().expect(url);
            assert_eq!(error.kind(), ErrorKind::ConfigInvalid, "{url}");
            assert!(!error.message().contains("hunter2"), "{error}");
        }
    }
}
