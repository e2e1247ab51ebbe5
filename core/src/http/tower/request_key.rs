//! Whose budget a request uses.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use http::HeaderName;
use http::request::Parts;

use crate::error::{Error, ErrorKind, Result};
use crate::http::{ClientIp, DEFAULT_IPV6_PREFIX, Peer, Trusted, anonymous, hashed};

use super::peer::PeerAddress;

type ReadPeer = dyn Fn(&http::Extensions) -> Option<PeerAddress> + Send + Sync;
type ReadKey = dyn Fn(&Parts) -> Option<String> + Send + Sync;

/// Whose budget a request uses: a client address, a header, a claim of a user, or what a function says.
#[derive(Clone)]
pub struct RequestKey(Kind);

#[derive(Clone)]
enum Kind {
    ClientIp(ClientIp),
    Fixed(Cow<'static, str>),
    Header(HeaderName),
    Read(Arc<ReadKey>),
}

impl Default for RequestKey {
    fn default() -> Self {
        Self::client_ip()
    }
}

impl RequestKey {
    /// The address of the client, as the server knows it. All IPv6 addresses of a /64 are one client.
    #[must_use]
    pub fn client_ip() -> Self {
        Self(Kind::ClientIp(ClientIp::default()))
    }

    /// The address of the client behind these proxies, from `X-Forwarded-For`: `["10.0.0.0/8"]`, `["loopback"]`. An entry counts
    /// only when a trusted proxy appended it; see [`Trusted::parse`].
    ///
    /// # Errors
    /// `config_invalid` for what is no network, and for a network of all addresses.
    pub fn client_ip_behind<T: AsRef<str>>(proxies: impl IntoIterator<Item = T>) -> Result<Self> {
        Ok(Self::of_client(ClientIp::new(Trusted::parse(proxies)?, DEFAULT_IPV6_PREFIX)?))
    }

    /// The address of the client by rules of one's own.
    #[must_use]
    pub const fn of_client(rules: ClientIp) -> Self {
        Self(Kind::ClientIp(rules))
    }

    /// One budget for all requests.
    #[must_use]
    pub fn fixed(key: impl Into<Cow<'static, str>>) -> Self {
        Self(Kind::Fixed(key.into()))
    }

    /// A header such as `X-API-Key`. A digest of its value is stored, never the value. A request without it uses the budget of
    /// its client address.
    ///
    /// # Errors
    /// `config_invalid` for a name that no header can have.
    pub fn header(name: &str) -> Result<Self> {
        let valid = HeaderName::from_bytes(name.as_bytes());
        valid.map(|name| Self(Kind::Header(name))).map_err(|_| {
            let shown: String = name.chars().take(80).collect();
            Error::config(format!("{shown:?} is no name of a header: write one such as X-API-Key"))
        })
    }

    /// What the application has found out about the caller and left in the request's extensions: a user, or the claims of a token
    /// that was verified. The service that leaves it there must run before this layer: in axum, its layer is added after this one.
    /// A request without it uses the budget of its client address.
    pub fn claim<T, K>(read: impl Fn(&T) -> Option<K> + Send + Sync + 'static) -> Self
    where
        T: Send + Sync + 'static,
        K: Into<String>,
    {
        Self::from_request(move |parts| parts.extensions.get::<T>().and_then(&read))
    }

    /// What a function says of the request. A request for which it says nothing uses the budget of its client address.
    pub fn from_request<K: Into<String>>(read: impl Fn(&Parts) -> Option<K> + Send + Sync + 'static) -> Self {
        Self(Kind::Read(Arc::new(move |parts| read(parts).map(Into::into))))
    }

    /// The key of a request.
    pub(super) fn read(&self, parts: &Parts, peer: &ReadPeer) -> Result<Cow<'static, str>> {
        let named = match &self.0 {
            Kind::ClientIp(rules) => return address(rules, parts, peer).map(Cow::Owned),
            Kind::Fixed(key) => return Ok(key.clone()),
            Kind::Header(name) => parts.headers.get(name).map(|value| hashed(&text(value.as_bytes()))),
            Kind::Read(read) => read(parts),
        };
        match named {
            Some(key) => Ok(Cow::Owned(key)),
            None => address(&ClientIp::default(), parts, peer).map(|address| Cow::Owned(anonymous(&address))),
        }
    }
}

/// The value of a header as text. Different values give different texts.
fn text(value: &[u8]) -> Cow<'_, str> {
    std::str::from_utf8(value).map_or_else(|_| Cow::Owned(value.escape_ascii().to_string()), Cow::Borrowed)
}

fn address(rules: &ClientIp, parts: &Parts, peer: &ReadPeer) -> Result<String> {
    let known = peer(&parts.extensions);
    let written = match known {
        Some(PeerAddress::Ip(address)) => address.to_string(),
        _ => String::new(),
    };
    let peer = match known {
        Some(PeerAddress::Ip(_)) => Peer::Address(&written),
        Some(PeerAddress::Unix) => Peer::Unix,
        None => {
            return Err(Error::new(
                ErrorKind::KeyInvalid,
                "the address of the client is not known, so its requests cannot be limited: in axum, serve the application \
                 with into_make_service_with_connect_info::<SocketAddr>() and turn on the feature axum of tidegate; for tonic \
                 the feature tonic; elsewhere, name the address with RateLimitLayer::builder(…).peer(…), or give a key that \
                 needs none",
            ));
        }
    };
    let forwarded: Vec<&[u8]> = if rules.reads_forwarded() {
        parts.headers.get_all("x-forwarded-for").iter().map(http::HeaderValue::as_bytes).collect()
    } else {
        Vec::new()
    };
    rules.key(peer, &forwarded)
}

impl fmt::Debug for RequestKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match &self.0 {
            Kind::ClientIp(_) => "RequestKey::client_ip",
            Kind::Fixed(_) => "RequestKey::fixed",
            Kind::Header(_) => "RequestKey::header",
            Kind::Read(_) => "RequestKey::from_request",
        })
    }
}
