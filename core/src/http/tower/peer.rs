//! The other end of a request's connection, as the server left it in the request's extensions.

use std::net::{IpAddr, SocketAddr};

use http::Extensions;

/// The other end of a request's connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum PeerAddress {
    /// An address of the network.
    Ip(IpAddr),
    /// A Unix domain socket. Its peers have no address.
    Unix,
}

impl From<IpAddr> for PeerAddress {
    fn from(address: IpAddr) -> Self {
        Self::Ip(address)
    }
}

impl From<SocketAddr> for PeerAddress {
    fn from(address: SocketAddr) -> Self {
        Self::Ip(address.ip())
    }
}

/// The address as axum, tonic, or a service in between has left it.
pub(super) fn known_peer(extensions: &Extensions) -> Option<PeerAddress> {
    of_axum(extensions)
        .or_else(|| of_tonic(extensions))
        .or_else(|| extensions.get::<SocketAddr>().copied().map(PeerAddress::from))
        .or_else(|| extensions.get::<PeerAddress>().copied())
}

#[cfg(feature = "axum")]
fn of_axum(extensions: &Extensions) -> Option<PeerAddress> {
    use axum::extract::ConnectInfo;
    use axum::extract::connect_info::MockConnectInfo;
    let known = extensions.get::<ConnectInfo<SocketAddr>>().map(|ConnectInfo(address)| *address);
    known
        .or_else(|| extensions.get::<MockConnectInfo<SocketAddr>>().map(|MockConnectInfo(address)| *address))
        .map(Into::into)
}

#[cfg(not(feature = "axum"))]
const fn of_axum(_: &Extensions) -> Option<PeerAddress> {
    None
}

#[cfg(feature = "tonic")]
fn of_tonic(extensions: &Extensions) -> Option<PeerAddress> {
    #[cfg(unix)]
    if extensions.get::<tonic::transport::server::UdsConnectInfo>().is_some() {
        return Some(PeerAddress::Unix);
    }
    extensions.get::<tonic::transport::server::TcpConnectInfo>()?.remote_addr().map(Into::into)
}

#[cfg(not(feature = "tonic"))]
const fn of_tonic(_: &Extensions) -> Option<PeerAddress> {
    None
}
