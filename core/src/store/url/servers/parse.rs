//! Reads the URLs of each kind of deployment.

use std::borrow::Cow;
use std::sync::Arc;

use url::Url;

use super::certificates::{self, Certificates};
use super::endpoints::{Address, Deployment, Endpoints, Login};
use super::followed_hosts::FollowedHosts;
use super::password_file::PasswordFile;
use crate::error::{Error, Result};
use crate::store::url::query::found_options;
use crate::store::url::secrets::ADVICE;

const REDIS_PORT: u16 = 6_379;
const SENTINEL_PORT: u16 = 26_379;
/// The options of every connection to a server.
const CONNECTION: [&str; 3] = ["protocol", "password_file", "client_name"];
/// The options of connections that are encrypted.
const TLS: [&str; 4] = ["ssl_ca_certs", "ssl_certfile", "ssl_keyfile", "ssl_cert_reqs"];

fn parsed(text: &str) -> Result<Url> {
    let text = &with_host(text);
    // The text may have a password, so the error does not show it.
    Url::parse(text).map_err(|error| {
        Error::config(format!(
            "the store URL cannot be read: {error}; write it as in redis://user:password@host:6379/0, and {ADVICE}"
        ))
    })
}

/// The parser takes no user without a host. Redis clients mean this machine then, so the URL gets its address.
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
/// As [`found_options`].
fn options<const N: usize>(url: &Url, known: [&str; N]) -> Result<OptionValues<N>> {
    let mut found = found_options(url.scheme(), url.query().unwrap_or_default(), &known)?.into_iter();
    Ok(known.map(|_| found.next().flatten()))
}

type OptionValues<const N: usize> = [Option<String>; N];

/// The values of these options, of [`CONNECTION`] and of [`TLS`].
fn encrypted_options<const N: usize>(
    url: &Url,
    names: [&str; N],
) -> Result<(OptionValues<N>, OptionValues<3>, OptionValues<4>)> {
    let known: Vec<&str> = names.into_iter().chain(CONNECTION).chain(TLS).collect();
    let mut found = found_options(url.scheme(), url.query().unwrap_or_default(), &known)?.into_iter();
    let mut next = || found.next().flatten();
    Ok((names.map(|_| next()), CONNECTION.map(|_| next()), TLS.map(|_| next())))
}

fn decoded(text: &str) -> String {
    percent_encoding::percent_decode_str(text).decode_utf8_lossy().into_owned()
}

/// The password in the URL, or the file that holds it. That file must exist already.
fn password_of(
    [password_option, file_option]: [&'static str; 2],
    password: Option<String>,
    file: Option<String>,
) -> Result<(Option<String>, Option<PasswordFile>)> {
    let Some(path) = file else { return Ok((password, None)) };
    if password.is_some() {
        return Err(Error::config(format!(
            "the store URL has {password_option} and {file_option}: remove one of them"
        )));
    }
    let file = PasswordFile { option: file_option, path: path.into() };
    file.read().map_err(Error::config)?;
    Ok((None, Some(file)))
}

/// Refuses a name that `CLIENT SETNAME` does not take.
fn client_name(name: Option<String>) -> Result<Option<String>> {
    if name.as_ref().is_some_and(|name| name.is_empty() || !name.bytes().all(|byte| byte.is_ascii_graphic())) {
        return Err(Error::config("client_name cannot be used: it must be printable ASCII without blanks"));
    }
    Ok(name)
}

/// The user, the database, the protocol and the name of a URL. The options are those of [`CONNECTION`].
fn login(url: &Url, database: Option<&str>, options: [Option<String>; 3]) -> Result<Login> {
    let [protocol, file, name] = options;
    let mut login = Login { client_name: client_name(name)?, ..Login::default() };
    if !url.username().is_empty() {
        login.user = Some(decoded(url.username()));
    }
    (login.password, login.password_file) =
        password_of(["a password", CONNECTION[1]], url.password().map(decoded), file)?;
    if let Some(text) = database.filter(|text| !text.is_empty()) {
        login.database = text.parse::<u16>().map_err(|_| {
            Error::config("the store URL names no database of Redis: give its number, as in redis://localhost:6379/0")
        })?;
    }
    login.resp3 = match protocol.as_deref() {
        None | Some("2" | "resp2") => false,
        Some("3" | "resp3") => true,
        Some(_) => return Err(Error::config("protocol names no protocol of Redis: give 2 or 3")),
    };
    Ok(login)
}

fn address(url: &Url, port: u16) -> Address {
    let host = url.host_str().filter(|host| !host.is_empty()).unwrap_or("127.0.0.1");
    // A host in brackets is an IPv6 address. Sockets take it without them.
    Address::Tcp(host.trim_start_matches('[').trim_end_matches(']').into(), url.port().unwrap_or(port))
}

fn single(address: Address, login: Login, certificates: Option<Certificates>, shown: String) -> Endpoints {
    let deployment = Deployment::Single(address);
    Endpoints { deployment, login, certificates, follow: None, read_replicas: false, shown }
}

pub(super) fn tcp(text: &str, tls: bool) -> Result<Endpoints> {
    let url = &parsed(text)?;
    let address = address(url, REDIS_PORT);
    let database = url.path().trim_start_matches('/');
    let shown = format!("{}://{address}/{}", url.scheme(), if database.is_empty() { "0" } else { database });
    let (connection, certificates) = if tls {
        let ([], connection, files) = encrypted_options(url, [])?;
        (connection, Some(certificates::read(files)?))
    } else {
        (options(url, CONNECTION)?, None)
    };
    Ok(single(address, login(url, Some(database), connection)?, certificates, shown))
}

pub(super) fn unix(text: &str) -> Result<Endpoints> {
    let url = &parsed(text)?;
    let [protocol, file, name, database] = options(url, [CONNECTION[0], CONNECTION[1], CONNECTION[2], "db"])?;
    let path = decoded(url.path());
    if path.len() < 2 {
        return Err(Error::config("a unix socket needs a path, as in redis+unix:///run/redis.sock?db=0"));
    }
    let shown = format!("{}://{path}", url.scheme());
    let login = login(url, database.as_deref(), [protocol, file, name])?;
    Ok(single(Address::Unix(Arc::new(path.into())), login, None, shown))
}

/// Reads the certificates of a store with encrypted connections.
///
/// # Errors
/// `config_invalid` for certificates without encryption, and as [`certificates::read`].
fn certificates_if(tls: bool, files: OptionValues<4>) -> Result<Option<Certificates>> {
    if tls {
        return certificates::read(files).map(Some);
    }
    match files.iter().any(Option::is_some) {
        true => Err(Error::config("certificates are of use with TLS only: begin the store URL with rediss")),
        false => Ok(None),
    }
}

/// Reads a URL with several servers. Returns all servers, and the URL with only its first one, as the parser needs it.
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

fn followed(follow: Option<String>) -> Result<Option<FollowedHosts>> {
    follow.map(|follow| FollowedHosts::parse(&follow)).transpose()
}

pub(super) fn sentinel(text: &str, tls: bool) -> Result<Endpoints> {
    let (url, sentinels) = several(text, SENTINEL_PORT)?;
    let names = ["read_from", "sentinel_username", "sentinel_password", "sentinel_password_file", "follow"];
    let ([read_from, user, password, file, follow], connection, files) = encrypted_options(&url, names)?;
    let (password, password_file) = password_of([names[2], names[3]], password, file)?;
    let mut path = url.path().trim_start_matches('/').splitn(2, '/');
    let (name, database) = (decoded(path.next().unwrap_or_default()), path.next().unwrap_or_default());
    if name.is_empty() {
        return Err(Error::config(format!(
            "a store URL of {0}:// names the primary after the sentinels, as in {0}://host1:26379,host2:26379/mymaster/0",
            url.scheme()
        )));
    }
    let certificates = certificates_if(tls, files)?;
    let shown = format!(
        "{}://{}/{name}/{}",
        url.scheme(),
        joined(&sentinels),
        if database.is_empty() { "0" } else { database }
    );
    let login = login(&url, Some(database), connection)?;
    let client_name = login.client_name.clone();
    let sentinel_login = Login { user, password, password_file, client_name, ..Login::default() };
    Ok(Endpoints {
        deployment: Deployment::Sentinel { sentinels, name, login: sentinel_login },
        login,
        certificates,
        follow: followed(follow)?,
        read_replicas: replicas(read_from.as_deref())?,
        shown,
    })
}

pub(super) fn cluster(text: &str, tls: bool) -> Result<Endpoints> {
    let (url, seeds) = several(text, REDIS_PORT)?;
    let ([read_from, follow], connection, files) = encrypted_options(&url, ["read_from", "follow"])?;
    if !matches!(url.path(), "" | "/" | "/0") {
        return Err(Error::config(format!(
            "a cluster has no databases, but the store URL of {}:// names one: leave it out",
            url.scheme()
        )));
    }
    Ok(Endpoints {
        shown: format!("{}://{}", url.scheme(), joined(&seeds)),
        deployment: Deployment::Cluster(seeds),
        login: login(&url, None, connection)?,
        certificates: certificates_if(tls, files)?,
        follow: followed(follow)?,
        read_replicas: replicas(read_from.as_deref())?,
    })
}
