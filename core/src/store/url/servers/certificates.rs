//! The certificate files that a URL names.

use crate::error::{Error, Result};

/// The contents of the certificate files, and what is done with those of servers.
#[derive(Clone, Default)]
pub(crate) struct Certificates {
    /// Whether any server is believed, whatever its certificate says.
    pub(crate) unverified: bool,
    pub(crate) authority: Option<Vec<u8>>,
    pub(crate) client: Option<(Vec<u8>, Vec<u8>)>,
}

/// # Errors
/// `config_invalid` for a file that cannot be read, for a client certificate without its key, and for requirements that are
/// unknown.
pub(super) fn read([ca, cert, key, required]: [Option<String>; 4]) -> Result<Certificates> {
    let file = |what: &str, path: Option<String>| {
        path.map(|path| {
            // The path is not shown: a part of a password may follow it.
            std::fs::read(&path).map_err(|error| {
                Error::config(format!("the file that {what} names cannot be read: {error}")).because(&error)
            })
        })
        .transpose()
    };
    let authority = file("ssl_ca_certs", ca)?;
    let client = match (file("ssl_certfile", cert)?, file("ssl_keyfile", key)?) {
        (None, None) => None,
        (Some(cert), Some(key)) => Some((cert, key)),
        _ => return Err(Error::config("a client certificate needs both ssl_certfile and ssl_keyfile")),
    };
    let unverified = match required.as_deref() {
        None | Some("required") => false,
        Some("none") => true,
        Some(_) => return Err(Error::config("ssl_cert_reqs is unknown: give required or none")),
    };
    Ok(Certificates { unverified, authority, client })
}
