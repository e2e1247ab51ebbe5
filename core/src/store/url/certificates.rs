//! Reads the certificate files that a URL names.

use super::endpoints::Certificates;
use crate::error::{Error, Result};

/// Reads the certificates of a store whose connections are encrypted.
///
/// # Errors
/// `config_invalid` for certificates without encryption, and as [`read`].
pub(super) fn read_if(tls: bool, [ca, cert, key, required]: [Option<String>; 4]) -> Result<Option<Certificates>> {
    if tls {
        return read([ca, cert, key, required]).map(Some);
    }
    match [ca, cert, key, required].iter().any(Option::is_some) {
        true => Err(Error::config("certificates are of use with TLS only: begin the store URL with rediss")),
        false => Ok(None),
    }
}

/// # Errors
/// `config_invalid` for a file that cannot be read, for a client certificate without its key, and for requirements that are
/// unknown.
pub(super) fn read([ca, cert, key, required]: [Option<String>; 4]) -> Result<Certificates> {
    let file = |what: &str, path: Option<String>| {
        path.map(|path| {
            // The path is not shown: a part of a password may follow it.
            std::fs::read(&path)
                .map_err(|error| Error::config(format!("the file that {what} names cannot be read: {error}")))
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
