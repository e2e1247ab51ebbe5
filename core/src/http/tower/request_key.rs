//! The key of the budget that a request uses.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use http::HeaderName;
use http::request::Parts;

use crate::error::{Error, ErrorKind, Result};
use crate::http::{ClientIp, DEFAULT_IPV6_PREFIX, Peer, Trusted, anonymous, hashed, named};

use super::peer::PeerAddress;

type ReadPeer = dyn Fn(&http::Extensions) -> Option<PeerAddress> + Send + Sync;
type ReadKey = dyn Fn(&Parts) -> Option<String> + Send + Sync;

/// The key of the budget that a request uses: a client address, a header, a claim of a user, or the result of a function.
///
/// ```
/// use tidegate::http::tower::RequestKey;
///
/// #[derive(Clone)]
/// struct User(String); // what a layer of yours has verified, and left in the extensions of the request
///
/// let address = RequestKey::client_ip(); // what a layer takes unless it is given another one
/// let behind_a_proxy = RequestKey::client_ip_behind(["10.0.0.0/8", "loopback"])?;
/// let api_key = RequestKey::header("X-API-Key")?;
/// let user = RequestKey::claim(|user: &User| Some(user.0.clone()));
/// let tenant = RequestKey::from_request(|request| request.uri.path().split('/').nth(2).map(str::to_owned));
/// let everybody = RequestKey::fixed("all");
/// # let _ = (address, behind_a_proxy, api_key, user, tenant, everybody);
/// # Ok::<(), tidegate::Error>(())
/// ```
#[derive(Clone)]
pub struct RequestKey {
    kind: Kind,
    /// For requests without this key.
    otherwise: Option<Arc<RequestKey>>,
}

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
        Kind::ClientIp(ClientIp::default()).into()
    }

    /// The address of the client behind these proxies, from `X-Forwarded-For`: `["10.0.0.0/8"]`, `["loopback"]`. An
    /// entry counts only if a trusted proxy appended it. See [`Trusted::parse`].
    ///
    /// # Errors
    /// `config_invalid` for a text that is no network, and for a network of all addresses.
    pub fn client_ip_behind<T: AsRef<str>>(proxies: impl IntoIterator<Item = T>) -> Result<Self> {
        Ok(Self::of_client(ClientIp::new(Trusted::parse(proxies)?, DEFAULT_IPV6_PREFIX)?))
    }

    /// The address of the client behind so many proxies, whatever their addresses are. See [`Trusted::hops`].
    ///
    /// # Errors
    /// `config_invalid` for a number that is not from 0 to 100.
    pub fn client_ip_behind_hops(count: i64) -> Result<Self> {
        Ok(Self::of_client(ClientIp::new(Trusted::hops(count)?, DEFAULT_IPV6_PREFIX)?))
    }

    /// The address of the client by your own rules.
    #[must_use]
    pub const fn of_client(rules: ClientIp) -> Self {
        Self { kind: Kind::ClientIp(rules), otherwise: None }
    }

    /// This key, and another one for requests without it: `RequestKey::header("X-API-Key")?
    /// .or(RequestKey::client_ip_behind(["10.0.0.0/8"])?)`. Without `or` they use the budget of their client address, by the
    /// rules of the layer's own key if that is an address, else by those of a layer around it, else by the connected address.
    #[must_use]
    pub fn or(mut self, otherwise: Self) -> Self {
        let last =
            self.otherwise.take().map_or_else(|| otherwise.clone(), |before| (*before).clone().or(otherwise.clone()));
        self.otherwise = Some(Arc::new(last));
        self
    }

    /// The rules for an address, if the key has some.
    pub(super) fn client(&self) -> Option<&ClientIp> {
        match &self.kind {
            Kind::ClientIp(rules) => Some(rules),
            _ => self.otherwise.as_ref()?.client(),
        }
    }

    /// One budget for all requests.
    #[must_use]
    pub fn fixed(key: impl Into<Cow<'static, str>>) -> Self {
        Kind::Fixed(key.into()).into()
    }

    /// A header such as `X-API-Key`. A digest of its value is stored, never the value. A request without it uses the
    /// budget of its client address. See [`RequestKey::or`].
    ///
    /// # Errors
    /// `config_invalid` for a name that no header can have.
    pub fn header(name: &str) -> Result<Self> {
        let valid = HeaderName::from_bytes(name.as_bytes());
        valid.map(|name| Kind::Header(name).into()).map_err(|_| {
            let shown: String = name.chars().take(80).collect();
            Error::config(format!("{shown:?} is not the name of a header: write one such as X-API-Key"))
        })
    }

    /// A fact about the caller that the application has left in the request's extensions: a user, or the claims of a
    /// token that was verified. The service that leaves it there must run before this layer. In axum, add its layer
    /// after this one. A request without it uses the budget of its client address.
    pub fn claim<T, K>(read: impl Fn(&T) -> Option<K> + Send + Sync + 'static) -> Self
    where
        T: Send + Sync + 'static,
        K: Into<String>,
    {
        Self::from_request(move |parts| {
            let claimed = parts.extensions.get::<T>().and_then(&read)?;
            Some(named(&claimed.into()).into_owned())
        })
    }

    /// The result of a function of the request. If it is `None`, the request uses the budget of its client address.
    pub fn from_request<K: Into<String>>(read: impl Fn(&Parts) -> Option<K> + Send + Sync + 'static) -> Self {
        Kind::Read(Arc::new(move |parts| read(parts).map(Into::into))).into()
    }

    /// The key of a request.
    pub(super) fn read<'a>(
        &self,
        parts: &Parts,
        peer: &ReadPeer,
        layer: &dyn Fn() -> Option<&'a ClientIp>,
    ) -> Result<Cow<'static, str>> {
        let named = match &self.kind {
            Kind::ClientIp(rules) => return address(rules, parts, peer).map(Cow::Owned),
            Kind::Fixed(key) => return Ok(key.clone()),
            Kind::Header(name) => parts.headers.get(name).map(|value| hashed(&text(value.as_bytes()))),
            Kind::Read(read) => read(parts),
        };
        match named {
            Some(key) => Ok(Cow::Owned(key)),
            None => match self.otherwise.as_deref() {
                Some(Self { kind: Kind::ClientIp(rules), .. }) => anonymous_address(rules, parts, peer),
                Some(otherwise) => otherwise.read(parts, peer, layer),
                None => anonymous_address(layer().unwrap_or(&ClientIp::default()), parts, peer),
            },
        }
    }
}

fn anonymous_address(rules: &ClientIp, parts: &Parts, peer: &ReadPeer) -> Result<Cow<'static, str>> {
    address(rules, parts, peer).map(|address| Cow::Owned(anonymous(&address)))
}

impl From<Kind> for RequestKey {
    fn from(kind: Kind) -> Self {
        Self { kind, otherwise: None }
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
        f.write_str(match &self.kind {
            Kind::ClientIp(_) => "RequestKey::client_ip",
            Kind::Fixed(_) => "RequestKey::fixed",
            Kind::Header(_) => "RequestKey::header",
            Kind::Read(_) => "RequestKey::from_request",
        })
    }
}
