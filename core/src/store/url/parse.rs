//! Reads the URLs of each kind of store.

use std::borrow::Cow;
use std::sync::Arc;

use url::Url;

use super::StoreUrl;
use super::certificates;
use super::endpoints::{Address, Certificates, Deployment, Endpoints, Login};
use super::escaping::ADVICE;
use super::memory_bounds::MemoryBounds;
use crate::error::{Error, Result};

const REDIS_PORT: u16 = 6_379;
const SENTINEL_PORT: u16 = 26_379;

pub(super) fn parsed(text: &str) -> Result<Url> {
    let text = &with_host(text);
    // The text may have a password, so the error does not show it.
    Url::parse(text).map_err(|error| {
        Error::config(format!(
            "the store URL cannot be read: {error}; write it as in redis://user:password@host:6379/0, and {ADVICE}"
        ))
    })
}

/// The parser takes no user without a host; for Redis clients the host is this machine then.
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

/// The values of a URL's options.
///
/// # Errors
/// `config_invalid` for an option that is unknown or is given twice.
fn options<const N: usize>(url: &Url, known: [&str; N]) -> Result<[Option<String>; N]> {
    let mut found = [const { None }; N];
    for (name, value) in url.query_pairs() {
        let Some(index) = known.iter().position(|known| *known == name) else {
            // The name is not shown: what follows a & in a password looks like one.
            return Err(Error::config(format!(
                "a store URL of {}:// has no such option: it has {}. User and password stand before the host; {ADVICE}",
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

pub(super) fn memory(url: &Url) -> Result<StoreUrl> {
    let [max_keys, max_bytes] = options(url, ["max_keys", "max_bytes"])?;
    let bounds = MemoryBounds::parse(max_keys.as_deref(), max_bytes.as_deref())?;
    if url.host_str().is_some_and(|host| !host.is_empty()) || !matches!(url.path(), "" | "/") {
        return Err(Error::config(
            "memory:// takes nothing but options, as in memory://?max_keys=1000000&max_bytes=1GB",
        ));
    }
    Ok(StoreUrl::Memory(bounds))
}

fn decoded(text: &str) -> String {
    percent_encoding::percent_decode_str(text).decode_utf8_lossy().into_owned()
}

/// The user, the database and the protocol of a URL.
fn login(url: &Url, database: Option<&str>, protocol: Option<&str>) -> Result<Login> {
    let mut login = Login::default();
    if !url.username().is_empty() {
        login.user = Some(decoded(url.username()));
    }
    login.password = url.password().map(decoded);
    if let Some(text) = database.filter(|text| !text.is_empty()) {
        login.database = text.parse::<u16>().map_err(|_| {
            Error::config("the store URL names no database of Redis: give its number, as in redis://localhost:6379/0")
        })?;
    }
    login.resp3 = match protocol {
        None | Some("2" | "resp2") => false,
        Some("3" | "resp3") => true,
        Some(_) => return Err(Error::config("protocol names no protocol of Redis: give 2 or 3")),
    };
    Ok(login)
}

fn address(url: &Url, port: u16) -> Address {
    let host = url.host_str().filter(|host| !host.is_empty()).unwrap_or("127.0.0.1");
    // A host in brackets is an IPv6 address; sockets take it without them.
    Address::Tcp(host.trim_start_matches('[').trim_end_matches(']').into(), url.port().unwrap_or(port))
}

fn single(address: Address, login: Login, certificates: Option<Certificates>, shown: String) -> StoreUrl {
    let deployment = Deployment::Single(address);
    StoreUrl::Redis(Box::new(Endpoints { deployment, login, certificates, read_replicas: false, shown }))
}

pub(super) fn tcp(url: &Url, tls: bool) -> Result<StoreUrl> {
    let address = address(url, REDIS_PORT);
    let database = url.path().trim_start_matches('/');
    let shown = format!("{}://{address}/{}", url.scheme(), if database.is_empty() { "0" } else { database });
    let (protocol, certificates) = if tls {
        let [protocol, ca, cert, key] = options(url, ["protocol", "ssl_ca_certs", "ssl_certfile", "ssl_keyfile"])?;
        (protocol, Some(certificates::read(ca, cert, key)?))
    } else {
        let [protocol] = options(url, ["protocol"])?;
        (protocol, None)
    };
    Ok(single(address, login(url, Some(database), protocol.as_deref())?, certificates, shown))
}

pub(super) fn unix(url: &Url) -> Result<StoreUrl> {
    let [protocol, database] = options(url, ["protocol", "db"])?;
    let path = decoded(url.path());
    if path.len() < 2 {
        return Err(Error::config("a unix socket needs a path, as in redis+unix:///run/redis.sock?db=0"));
    }
    let shown = format!("{}://{path}", url.scheme());
    let login = login(url, database.as_deref(), protocol.as_deref())?;
    Ok(single(Address::Unix(Arc::new(path.into())), login, None, shown))
}

/// A URL with several servers: the URL with only its first server, which the parser can read, and all servers.
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

pub(super) fn joined(addresses: &[Address]) -> String {
    addresses.iter().map(Address::to_string).collect::<Vec<_>>().join(",")
}

fn replicas(read_from: Option<&str>) -> Result<bool> {
    match read_from {
        None | Some("primary") => Ok(false),
        Some("replica") => Ok(true),
        Some(_) => Err(Error::config("read_from is unknown: give primary or replica")),
    }
}

pub(super) fn sentinel(text: &str, tls: bool) -> Result<StoreUrl> {
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
    let certificates = certificates::read_if(tls, ca, cert, key)?;
    let shown = format!(
        "{}://{}/{name}/{}",
        url.scheme(),
        joined(&sentinels),
        if database.is_empty() { "0" } else { database }
    );
    Ok(StoreUrl::Redis(Box::new(Endpoints {
        deployment: Deployment::Sentinel { sentinels, name, login: Login { user, password, ..Login::default() } },
        login: login(&url, Some(database), protocol.as_deref())?,
        certificates,
        read_replicas: replicas(read_from.as_deref())?,
        shown,
    })))
}

pub(super) fn cluster(text: &str, tls: bool) -> Result<StoreUrl> {
    let (url, seeds) = several(text, REDIS_PORT)?;
    let [protocol, read_from, ca, cert, key] =
        options(&url, ["protocol", "read_from", "ssl_ca_certs", "ssl_certfile", "ssl_keyfile"])?;
    if !matches!(url.path(), "" | "/" | "/0") {
        return Err(Error::config(format!(
            "a cluster has no databases, but the store URL of {}:// names one: leave it out",
            url.scheme()
        )));
    }
    Ok(StoreUrl::Redis(Box::new(Endpoints {
        shown: format!("{}://{}", url.scheme(), joined(&seeds)),
        deployment: Deployment::Cluster(seeds),
        login: login(&url, None, protocol.as_deref())?,
        certificates: certificates::read_if(tls, ca, cert, key)?,
        read_replicas: replicas(read_from.as_deref())?,
    })))
}
