//! An address that a server names: of another node, or of the primary.

use std::sync::Arc;

use crate::store::url::Address;

/// The longest name of a host in DNS has 253 bytes.
const MAX_HOST: usize = 255;

/// The address that a server at `here` names. One that does not know its own name leaves the host out and means the one it was
/// reached at. `None` for what no server can listen at, and for a host that is no name: it would stand in messages.
pub(super) fn address_of(host: &str, port: i64, here: &Address) -> Option<Address> {
    let port = u16::try_from(port).ok().filter(|port| *port > 0)?;
    let host = match here {
        _ if !matches!(host, "" | "?") => host.into(),
        Address::Tcp(host, _) => Arc::clone(host),
        Address::Unix(_) => return None,
    };
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b".-_:%".contains(&byte);
    (host.len() <= MAX_HOST && host.bytes().all(is_name)).then_some(Address::Tcp(host, port))
}
