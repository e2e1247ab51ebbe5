//! Store URLs: what they mean, and how they are shown without their secrets.

use std::borrow::Cow;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use url::Url;

use crate::error::{Error, Result};

/// Keys the embedded store holds when nothing else is said.
const MAX_KEYS: usize = 1_000_000;
const REDIS_PORT: u16 = 6_379;
const SENTINEL_PORT: u16 = 26_379;

/// A store, as a URL names it.
#[derive(Clone)]
pub(crate) enum StoreUrl {
    /// `memory://?max_keys=1000000`
    Memory { max_keys: usize },
    /// Redis or Valkey: one server, or several that act as one.
    Redis(Box<Endpoints>),
}

/// One server, or several that act as one.
#[derive(Clone)]
pub(crate) struct Endpoints {
    pub(crate) kind: Kind,
    pub(crate) login: Login,
    /// Given when connections are encrypted.
    pub(crate) certificates: Option<Certificates>,
    /// Whether a peek may be answered by a replica.
    pub(crate) read_replicas: bool,
    /// The URL without user, password and files.
    pub(crate) shown: String,
}

/// How the server that serves a key is found.
#[derive(Clone)]
pub(crate) enum Kind {
    /// There is but this one.
    Single(Address),
    /// The sentinels know.
    Sentinel { sentinels: Vec<Address>, name: String, login: Login },
    /// The nodes know.
    Cluster(Vec<Address>),
}

/// Where a server listens.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Address {
    Tcp(Arc<str>, u16),
    Unix(Arc<PathBuf>),
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(host, port) if host.contains(':') => write!(f, "[{host}]:{port}"),
            Self::Tcp(host, port) => write!(f, "{host}:{port}"),
            Self::Unix(path) => write!(f, "{}", path.display()),
        }
    }
}

/// Who connects, and to which database.
#[derive(Clone, Default, PartialEq, Eq)]
pub(crate) struct Login {
    pub(crate) user: Option<String>,
    pub(crate) password: Option<String>,
    pub(crate) database: u16,
    /// Whether replies are wanted in the third protocol.
    pub(crate) resp3: bool,
}

/// Files of certificates, as they were read.
#[derive(Clone, Default)]
pub(crate) struct Certificates {
    pub(crate) authority: Option<Vec<u8>>,
    pub(crate) client: Option<(Vec<u8>, Vec<u8>)>,
}

impl StoreUrl {
    /// # Errors
    /// `config_invalid` that says what was found, what was expected, and never a password.
    pub(crate) fn parse(text: &str) -> Result<Self> {
        let scheme = text.split_once("://").map_or("", |(scheme, _)| scheme);
        let known = "memory://, redis://, rediss://, redis+unix://, redis+sentinel://, redis+cluster://, or valkey in \
                     the place of redis";
        match scheme {
            "memory" => memory(&parsed(text)?),
            "redis" | "valkey" => tcp(&parsed(text)?, false),
            "rediss" | "valkeys" => tcp(&parsed(text)?, true),
            "redis+unix" | "valkey+unix" | "unix" => unix(&parsed(text)?),
            "redis+sentinel" | "valkey+sentinel" => sentinel(text, false),
            "rediss+sentinel" | "valkeys+sentinel" => sentinel(text, true),
            "redis+cluster" | "valkey+cluster" => cluster(text, false),
            "rediss+cluster" | "valkeys+cluster" => cluster(text, true),
            "" => Err(Error::config(format!("a store URL begins with {known}; this one has no scheme"))),
            _ => Err(Error::config(format!("no store has the scheme {scheme}://; use {known}"))),
        }
    }
}

fn parsed(text: &str) -> Result<Url> {
    let text = &with_host(text);
    // The text may hold a password, so the error only says what is wrong with it.
    Url::parse(text).map_err(|error| {
        Error::config(format!(
            "the store URL cannot be read: {error}; write it as in redis://user:password@host:6379/0"
        ))
    })
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

fn decoded(text: &str) -> String {
    percent_encoding::percent_decode_str(text).decode_utf8_lossy().into_owned()
}

/// The part of a URL that says who connects.
fn login(url: &Url, database: Option<&str>, protocol: Option<&str>) -> Result<Login> {
    let mut login = Login::default();
    if !url.username().is_empty() {
        login.user = Some(decoded(url.username()));
    }
    login.password = url.password().map(decoded);
    if let Some(text) = database.filter(|text| !text.is_empty()) {
        login.database = text.parse::<u16>().map_err(|_| {
            Error::config(format!("{text:?} is no database of Redis: give its number, as in redis://localhost:6379/0"))
        })?;
    }
    login.resp3 = match protocol {
        None | Some("2" | "resp2") => false,
        Some("3" | "resp3") => true,
        Some(text) => return Err(Error::config(format!("protocol={text:?} is no protocol of Redis: give 2 or 3"))),
    };
    Ok(login)
}

fn address(url: &Url, port: u16) -> Address {
    let host = url.host_str().filter(|host| !host.is_empty()).unwrap_or("127.0.0.1");
    // A host in brackets is an IPv6 address; sockets take it bare.
    Address::Tcp(host.trim_start_matches('[').trim_end_matches(']').into(), url.port().unwrap_or(port))
}

fn single(kind: Address, login: Login, certificates: Option<Certificates>, shown: String) -> StoreUrl {
    let kind = Kind::Single(kind);
    StoreUrl::Redis(Box::new(Endpoints { kind, login, certificates, read_replicas: false, shown }))
}

fn tcp(url: &Url, tls: bool) -> Result<StoreUrl> {
    let address = address(url, REDIS_PORT);
    let database = url.path().trim_start_matches('/');
    let shown = format!("{}://{address}/{}", url.scheme(), if database.is_empty() { "0" } else { database });
    let (protocol, certificates) = if tls {
        let [protocol, ca, cert, key] = options(url, ["protocol", "ssl_ca_certs", "ssl_certfile", "ssl_keyfile"])?;
        (protocol, Some(certificates(ca, cert, key)?))
    } else {
        let [protocol] = options(url, ["protocol"])?;
        (protocol, None)
    };
    Ok(single(address, login(url, Some(database), protocol.as_deref())?, certificates, shown))
}

fn unix(url: &Url) -> Result<StoreUrl> {
    let [protocol, database] = options(url, ["protocol", "db"])?;
    let path = decoded(url.path());
    if path.len() < 2 {
        return Err(Error::config("a unix socket needs a path, as in redis+unix:///run/redis.sock?db=0"));
    }
    let shown = format!("{}://{path}", url.scheme());
    let login = login(url, database.as_deref(), protocol.as_deref())?;
    Ok(single(Address::Unix(Arc::new(path.into())), login, None, shown))
}

/// The URL with its first server only, which a parser can read, and all its servers.
fn several(text: &str, port: u16) -> Result<(Url, Vec<Address>)> {
    let begins = text.find("://").map_or(0, |at| at + 3);
    let ends = text[begins..].find(['/', '?', '#']).map_or(text.len(), |at| begins + at);
    let hosts = text[begins..ends].rfind('@').map_or(begins, |at| begins + at + 1);
    let mut addresses = Vec::new();
    let mut first = None;
    for host in text[hosts..ends].split(',') {
        let url = parsed(&format!("{}{host}{}", &text[..hosts], &text[ends..]))?;
        addresses.push(address(&url, port));
        first = first.or(Some(url));
    }
    let url = first.ok_or_else(|| Error::config("the store URL names no server"))?;
    if text[hosts..ends].split(',').any(str::is_empty) {
        return Err(Error::config(format!(
            "a store URL of {0}:// names its servers with commas between them, as in {0}://host1:{port},host2:{port}",
            url.scheme()
        )));
    }
    Ok((url, addresses))
}

fn joined(addresses: &[Address]) -> String {
    addresses.iter().map(Address::to_string).collect::<Vec<_>>().join(",")
}

fn replicas(read_from: Option<&str>) -> Result<bool> {
    match read_from {
        None | Some("primary") => Ok(false),
        Some("replica") => Ok(true),
        Some(text) => Err(Error::config(format!("read_from={text:?} is unknown: give primary or replica"))),
    }
}

fn sentinel(text: &str, tls: bool) -> Result<StoreUrl> {
    let (url, sentinels) = several(text, SENTINEL_PORT)?;
    let [protocol, read_from, user, password, ca, cert, key] = options(
        &url,
        [
            "protocol",
            "read_from",
            "sentinel_username",
            "sentinel_password",
            "ssl_ca_certs",
            "ssl_certfile",
            "ssl_keyfile",
        ],
    )?;
    let mut path = url.path().trim_start_matches('/').splitn(2, '/');
    let (name, database) = (decoded(path.next().unwrap_or_default()), path.next().unwrap_or_default());
    if name.is_empty() {
        return Err(Error::config(format!(
            "a store URL of {0}:// names the primary after the sentinels, as in {0}://host1:26379,host2:26379/mymaster/0",
            url.scheme()
        )));
    }
    let certificates = encrypted(tls, ca, cert, key)?;
    let shown = format!(
        "{}://{}/{name}/{}",
        url.scheme(),
        joined(&sentinels),
        if database.is_empty() { "0" } else { database }
    );
    Ok(StoreUrl::Redis(Box::new(Endpoints {
        kind: Kind::Sentinel { sentinels, name, login: Login { user, password, ..Login::default() } },
        login: login(&url, Some(database), protocol.as_deref())?,
        certificates,
        read_replicas: replicas(read_from.as_deref())?,
        shown,
    })))
}

fn cluster(text: &str, tls: bool) -> Result<StoreUrl> {
    let (url, seeds) = several(text, REDIS_PORT)?;
    let [protocol, read_from, ca, cert, key] =
        options(&url, ["protocol", "read_from", "ssl_ca_certs", "ssl_certfile", "ssl_keyfile"])?;
    if !matches!(url.path(), "" | "/" | "/0") {
        return Err(Error::config(format!(
            "a cluster has no databases, but the store URL of {}:// names {:?}: leave it out",
            url.scheme(),
            url.path().trim_start_matches('/')
        )));
    }
    Ok(StoreUrl::Redis(Box::new(Endpoints {
        shown: format!("{}://{}", url.scheme(), joined(&seeds)),
        kind: Kind::Cluster(seeds),
        login: login(&url, None, protocol.as_deref())?,
        certificates: encrypted(tls, ca, cert, key)?,
        read_replicas: replicas(read_from.as_deref())?,
    })))
}

fn encrypted(tls: bool, ca: Option<String>, cert: Option<String>, key: Option<String>) -> Result<Option<Certificates>> {
    if tls {
        return certificates(ca, cert, key).map(Some);
    }
    match [ca, cert, key].iter().any(Option::is_some) {
        true => Err(Error::config("certificates are of use with TLS only: begin the store URL with rediss")),
        false => Ok(None),
    }
}

fn certificates(ca: Option<String>, cert: Option<String>, key: Option<String>) -> Result<Certificates> {
    let read = |what: &str, path: Option<String>| {
        path.map(|path| {
            std::fs::read(&path).map_err(|error| Error::config(format!("{what}={path:?} cannot be read: {error}")))
        })
        .transpose()
    };
    let authority = read("ssl_ca_certs", ca)?;
    let client = match (read("ssl_certfile", cert)?, read("ssl_keyfile", key)?) {
        (None, None) => None,
        (Some(cert), Some(key)) => Some((cert, key)),
        _ => return Err(Error::config("a client certificate needs both ssl_certfile and ssl_keyfile")),
    };
    Ok(Certificates { authority, client })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn endpoints(text: &str) -> Endpoints {
        match StoreUrl::parse(text) {
            Ok(StoreUrl::Redis(endpoints)) => *endpoints,
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
            let found = endpoints(text);
            let login = &found.login;
            assert_eq!(
                (login.user.as_deref(), login.password.as_deref(), login.database),
                (user, Some("pw"), database),
                "{text}"
            );
            match &found.kind {
                Kind::Single(Address::Tcp(host, at)) => assert_eq!((&**host, *at), ("127.0.0.1", port), "{text}"),
                _ => panic!("{text} is one server"),
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
            let found = endpoints(text);
            assert_eq!(found.login.password.as_deref(), password, "{text}");
            assert!(matches!(&found.kind, Kind::Single(Address::Unix(at)) if at.as_os_str() == path), "{text}");
        }
    }

    #[test]
    fn several_servers_are_named_with_commas() {
        let found =
            endpoints("redis+sentinel://me:p%40w@a,b:1,[::1]:2/the%20name/3?sentinel_password=s&read_from=replica");
        let Kind::Sentinel { sentinels, name, login } = &found.kind else { panic!("sentinels") };
        assert_eq!(joined(sentinels), "a:26379,b:1,[::1]:2");
        assert_eq!((name.as_str(), login.password.as_deref(), found.login.database), ("the name", Some("s"), 3));
        assert_eq!((found.login.user.as_deref(), found.login.password.as_deref()), (Some("me"), Some("p@w")));
        assert!(found.read_replicas && !found.shown.contains("p@w") && !found.shown.contains("sentinel_password"));
        let found = endpoints("valkeys+cluster://:pw@a:7000,b");
        assert!(matches!(&found.kind, Kind::Cluster(seeds) if joined(seeds) == "a:7000,b:6379"));
        assert!(found.certificates.is_some() && !found.read_replicas);
        assert_eq!(found.shown, "valkeys+cluster://a:7000,b:6379");
    }
}
