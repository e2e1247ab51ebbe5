//! Store URLs: what they mean, and how they are shown without their secrets.

use std::borrow::Cow;
use std::path::PathBuf;

use redis::{
    ConnectionAddr, ConnectionInfo, IntoConnectionInfo, ProtocolVersion, RedisConnectionInfo, TlsCertificates,
};
use url::Url;

use crate::error::{Error, Result};

/// Keys the embedded store holds when nothing else is said.
const MAX_KEYS: usize = 1_000_000;
const REDIS_PORT: u16 = 6379;

/// A store, as a URL names it.
#[derive(Clone)]
pub(crate) enum StoreUrl {
    /// `memory://?max_keys=1000000`
    Memory { max_keys: usize },
    /// One server.
    Redis(Box<Server>),
}

/// One Redis server.
#[derive(Clone)]
pub(crate) struct Server {
    pub(crate) info: ConnectionInfo,
    pub(crate) certificates: Option<TlsCertificates>,
    /// The URL without user, password and files.
    pub(crate) shown: String,
}

impl StoreUrl {
    /// # Errors
    /// `config_invalid` that says what was found, what was expected, and never a password.
    pub(crate) fn parse(text: &str) -> Result<Self> {
        let scheme = text.split_once("://").map_or("", |(scheme, _)| scheme);
        let known = "memory://, redis://, rediss://, redis+unix://, valkey:// or valkeys://";
        match scheme {
            "memory" => memory(&parsed(text)?),
            "redis" | "valkey" => tcp(&parsed(text)?, false),
            "rediss" | "valkeys" => tcp(&parsed(text)?, true),
            "redis+unix" | "valkey+unix" | "unix" => unix(&parsed(text)?),
            "redis+sentinel" | "redis+cluster" | "valkey+sentinel" | "valkey+cluster" => Err(Error::config(format!(
                "a store of {scheme}:// is not available yet: connect to one server with {known}"
            ))),
            "" => Err(Error::config(format!("a store URL begins with {known}; this one has no scheme"))),
            _ => Err(Error::config(format!("no store has the scheme {scheme}://; use {known}"))),
        }
    }
}

fn parsed(text: &str) -> Result<Url> {
    let text = &with_host(text);
    // The text may hold a password, so the error only says what is wrong with it.
    Url::parse(text).map_err(|error| Error::config(format!("the store URL cannot be read: {error}")))
}

/// A user without a host is no URL to the parser, but to Redis clients it is one of this machine.
fn with_host(text: &str) -> Cow<'_, str> {
    let begins = text.find("://").map_or(0, |at| at + 3);
    let ends = text[begins..].find(['/', '?', '#']).map_or(text.len(), |at| begins + at);
    match text[begins..ends].rfind('@').map(|at| begins + at + 1) {
        Some(host) if host == ends || text[host..].starts_with(':') => {
            format!("{}127.0.0.1{}", &text[..host], &text[host..]).into()
        }
        _ => text.into(),
    }
}

/// The URL's options, each once, all known.
fn options<const N: usize>(url: &Url, known: [&str; N]) -> Result<[Option<String>; N]> {
    let mut found = [const { None }; N];
    for (name, value) in url.query_pairs() {
        let Some(index) = known.iter().position(|known| *known == name) else {
            return Err(Error::config(format!(
                "a store URL of {}:// has no option {name:?}; it has {}",
                url.scheme(),
                known.join(", ")
            )));
        };
        if found[index].replace(value.into_owned()).is_some() {
            return Err(Error::config(format!("the store URL gives {name:?} twice")));
        }
    }
    Ok(found)
}

fn memory(url: &Url) -> Result<StoreUrl> {
    let [max_keys] = options(url, ["max_keys"])?;
    let max_keys = match max_keys {
        None => MAX_KEYS,
        Some(text) => text.parse().ok().filter(|keys| (1..=u32::MAX as usize / 2).contains(keys)).ok_or_else(|| {
            Error::config(format!("max_keys={text:?} is no number of keys: give a whole number from 1 to 2147483647"))
        })?,
    };
    if url.host_str().is_some_and(|host| !host.is_empty()) || !matches!(url.path(), "" | "/") {
        return Err(Error::config("memory:// takes nothing but options, as in memory://?max_keys=1000000"));
    }
    Ok(StoreUrl::Memory { max_keys })
}

/// The part of a URL that says who connects.
fn settings(url: &Url, database: Option<&str>, protocol: Option<&str>) -> Result<RedisConnectionInfo> {
    let decoded = |text: &str| percent_encoding::percent_decode_str(text).decode_utf8_lossy().into_owned();
    let mut settings = RedisConnectionInfo::default();
    if !url.username().is_empty() {
        settings = settings.set_username(decoded(url.username()));
    }
    if let Some(password) = url.password() {
        settings = settings.set_password(decoded(password));
    }
    if let Some(text) = database.filter(|text| !text.is_empty()) {
        let database = text.parse::<u16>().map_err(|_| {
            Error::config(format!("{text:?} is no database of Redis: give its number, as in redis://localhost:6379/0"))
        })?;
        settings = settings.set_db(i64::from(database));
    }
    match protocol {
        None | Some("2" | "resp2") => Ok(settings),
        Some("3" | "resp3") => Ok(settings.set_protocol(ProtocolVersion::RESP3)),
        Some(text) => Err(Error::config(format!("protocol={text:?} is no protocol of Redis: give 2 or 3"))),
    }
}

fn tcp(url: &Url, tls: bool) -> Result<StoreUrl> {
    let host = url.host_str().filter(|host| !host.is_empty()).unwrap_or("127.0.0.1");
    // A host in brackets is an IPv6 address; sockets take it bare.
    let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
    let port = url.port().unwrap_or(REDIS_PORT);
    let database = url.path().trim_start_matches('/');
    let shown = format!("{}://{host}:{port}/{}", url.scheme(), if database.is_empty() { "0" } else { database });
    let (protocol, addr, certificates) = if tls {
        let [protocol, ca, cert, key] = options(url, ["protocol", "ssl_ca_certs", "ssl_certfile", "ssl_keyfile"])?;
        let certificates = certificates(ca, cert, key)?;
        (protocol, ConnectionAddr::TcpTls { host, port, insecure: false, tls_params: None }, Some(certificates))
    } else {
        let [protocol] = options(url, ["protocol"])?;
        (protocol, ConnectionAddr::Tcp(host, port), None)
    };
    let settings = settings(url, Some(database), protocol.as_deref())?;
    server(addr, settings, certificates, shown)
}

fn unix(url: &Url) -> Result<StoreUrl> {
    let [protocol, database] = options(url, ["protocol", "db"])?;
    let path = percent_encoding::percent_decode_str(url.path()).decode_utf8_lossy().into_owned();
    if path.len() < 2 {
        return Err(Error::config("a unix socket needs a path, as in redis+unix:///run/redis.sock?db=0"));
    }
    let shown = format!("{}://{path}", url.scheme());
    let settings = settings(url, database.as_deref(), protocol.as_deref())?;
    server(ConnectionAddr::Unix(PathBuf::from(path)), settings, None, shown)
}

fn server(
    addr: ConnectionAddr,
    settings: RedisConnectionInfo,
    certificates: Option<TlsCertificates>,
    shown: String,
) -> Result<StoreUrl> {
    let info = addr
        .into_connection_info()
        .map_err(|error| Error::config(format!("{shown} cannot be connected to: {error}")))?
        .set_redis_settings(settings.set_skip_set_lib_name());
    Ok(StoreUrl::Redis(Box::new(Server { info, certificates, shown })))
}

fn certificates(ca: Option<String>, cert: Option<String>, key: Option<String>) -> Result<TlsCertificates> {
    let read = |what: &str, path: Option<String>| {
        path.map(|path| {
            std::fs::read(&path).map_err(|error| Error::config(format!("{what}={path:?} cannot be read: {error}")))
        })
        .transpose()
    };
    let root_cert = read("ssl_ca_certs", ca)?;
    let client_tls = match (read("ssl_certfile", cert)?, read("ssl_keyfile", key)?) {
        (None, None) => None,
        (Some(client_cert), Some(client_key)) => Some(redis::ClientTlsConfig { client_cert, client_key }),
        _ => return Err(Error::config("a client certificate needs both ssl_certfile and ssl_keyfile")),
    };
    Ok(TlsCertificates { client_tls, root_cert })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(text: &str) -> Server {
        match StoreUrl::parse(text) {
            Ok(StoreUrl::Redis(server)) => *server,
            Ok(StoreUrl::Memory { .. }) => panic!("{text} is no server"),
            Err(error) => panic!("{text}: {error}"),
        }
    }

    #[test]
    fn a_user_without_a_host_is_one_of_this_machine() {
        for (text, port, database, user) in [
            ("redis://:pw@/3", 6379, 3, None),
            ("redis://:pw@", 6379, 0, None),
            ("valkey://me:pw@?protocol=3", 6379, 0, Some("me")),
            ("redis://me:pw@:6380/1", 6380, 1, Some("me")),
            ("rediss://me:pw@/", 6379, 0, Some("me")),
        ] {
            let found = server(text);
            let settings = found.info.redis_settings();
            assert_eq!(
                (settings.username(), settings.password(), settings.db()),
                (user, Some("pw"), database),
                "{text}"
            );
            match found.info.addr() {
                ConnectionAddr::Tcp(host, at) | ConnectionAddr::TcpTls { host, port: at, .. } => {
                    assert_eq!((host.as_str(), *at), ("127.0.0.1", port), "{text}");
                }
                other => panic!("{text} connects to {other}"),
            }
            assert!(!found.shown.contains("pw"), "{}", found.shown);
        }
    }

    #[test]
    fn a_socket_keeps_its_path() {
        for (text, path, password) in [
            ("redis+unix://:pw@/run/redis.sock?db=2", "/run/redis.sock", Some("pw")),
            ("redis+unix:///run/@/redis.sock", "/run/@/redis.sock", None),
        ] {
            let found = server(text);
            assert_eq!(found.info.redis_settings().password(), password, "{text}");
            assert!(matches!(found.info.addr(), ConnectionAddr::Unix(at) if at == &PathBuf::from(path)), "{text}");
        }
    }
}
