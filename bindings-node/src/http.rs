//! The HTTP rules of the core: keys, problems, and each policy's part of the fields of an answer. `lib/http` puts the fields
//! together itself, because five strings through Node-API would cost as much as the check.

use napi::bindgen_prelude::Either;
use napi_derive::napi;
use tidegate::http::{DEFAULT_IPV6_PREFIX, Headers, MEDIA_TYPE, Peer, Refusal, Trusted, anonymous, hashed, named};
use tidegate::{Error, ErrorKind, Policy, Result};

use crate::error_value::{ErrorValue, crossing};
use crate::number::shown;

/// Derives keys from addresses.
#[napi]
pub struct ClientIp {
    client: tidegate::http::ClientIp,
}

fn trusted(proxies: Either<Vec<String>, f64>) -> Result<Trusted> {
    match proxies {
        Either::A(proxies) => Trusted::parse(proxies),
        // The core checks which whole numbers are hops. Beyond 2^53 none is one.
        Either::B(hops) if hops.fract() == 0.0 && hops.abs() < 9e15 => Trusted::hops(hops as i64),
        Either::B(hops) => Err(Trusted::no_hops(&format!("{hops:?}").replace("inf", "Infinity"))),
    }
}

fn client(proxies: Either<Vec<String>, f64>, prefix: Option<f64>) -> Result<tidegate::http::ClientIp> {
    let prefix = prefix.map_or(Ok(DEFAULT_IPV6_PREFIX), |prefix| {
        // The core checks which whole numbers a prefix may be.
        let whole = prefix.fract() == 0.0 && (0.0..=255.0).contains(&prefix);
        let wrong = || format!("ipv6Prefix {} is out of range: it must be from 1 to 128", shown(prefix));
        if whole { Ok(prefix as u8) } else { Err(Error::new(ErrorKind::ConfigInvalid, wrong())) }
    })?;
    tidegate::http::ClientIp::new(trusted(proxies)?, prefix)
}

/// Trusts these proxies, or so many hops, and takes IPv6 addresses with the same first bits for one client.
#[napi(catch_unwind)]
pub fn client_ip(trusted: Either<Vec<String>, f64>, prefix: Option<f64>) -> Either<ClientIp, ErrorValue> {
    crossing(client(trusted, prefix).map(|client| ClientIp { client }))
}

#[napi]
impl ClientIp {
    /// True if `X-Forwarded-For` is read.
    #[napi(catch_unwind)]
    pub fn reads_forwarded(&self) -> bool {
        self.client.reads_forwarded()
    }

    /// The key of a request. `unix` is true if the server listens on a Unix domain socket, because its peers have no address.
    #[napi(catch_unwind)]
    pub fn key(&self, peer: Option<String>, forwarded: Vec<String>, unix: bool) -> Either<String, ErrorValue> {
        let peer = match peer.as_deref() {
            Some(address) if !address.is_empty() => Peer::Address(address),
            _ if unix => Peer::Unix,
            _ => Peer::Missing,
        };
        crossing(self.client.key(peer, &forwarded))
    }
}

/// A digest to use as a key instead of a secret.
#[napi(js_name = "hashed", catch_unwind)]
pub fn hashed_key(secret: String) -> String {
    hashed(&secret)
}

/// The key of an anonymous client.
#[napi(js_name = "anonymous", catch_unwind)]
pub fn anonymous_key(client: String) -> String {
    anonymous(&client)
}

/// The key of a name that its owner may have chosen.
#[napi(js_name = "named", catch_unwind)]
pub fn named_key(name: String) -> String {
    named(&name).into_owned()
}

/// The reason why that word is not a choice of fields. Nothing if it is one.
#[napi(catch_unwind)]
pub fn header_choice(word: String) -> Option<ErrorValue> {
    word.parse::<Headers>().err().map(ErrorValue::from)
}

/// The description of a refusal for an OpenAPI document, as JSON, with this choice of fields.
#[napi(catch_unwind)]
pub fn openapi_response(headers: String) -> String {
    tidegate::http::openapi_response(headers.parse().unwrap_or_default())
}

/// The media type of a problem.
#[napi(catch_unwind)]
pub fn problem_media_type() -> String {
    MEDIA_TYPE.to_owned()
}

/// The body of a refusal. Without a wait, waiting does not help.
#[napi(catch_unwind)]
pub fn problem(unavailable: bool, wait: Option<f64>, policies: Vec<String>, abnormal: bool) -> String {
    Refusal::new(unavailable, wait.map(|wait| wait as u64), policies).abnormal(abnormal).problem()
}

/// The parts of the fields that depend on the policy alone.
#[napi(object)]
pub struct Announcement {
    /// Its items of `RateLimit-Policy`.
    pub items: String,
    /// The parts of each limit, for answers in which it binds.
    pub limits: Vec<Announced>,
}

/// The announcement of one limit.
#[napi(object)]
pub struct Announced {
    /// Its name, as problems have it.
    pub name: String,
    /// The part of its item of `RateLimit` before the units that are left.
    pub before_left: String,
    /// The part of that item between these units and the seconds until there are more, if the limit announces them.
    pub before_more: Option<String>,
}

/// The announcement of a policy. `None` if it has none.
pub(crate) fn announcement(policy: &Policy) -> Option<Announcement> {
    let announcement = tidegate::http::announcement(policy)?;
    let announced = |limit: tidegate::http::Announced| Announced {
        name: limit.name,
        before_left: limit.before_left,
        before_more: limit.before_more.map(str::to_owned),
    };
    Some(Announcement { items: announcement.items, limits: announcement.limits.into_iter().map(announced).collect() })
}
