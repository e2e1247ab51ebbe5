//! The certificate files that a URL names.

use std::path::Path;

use crate::error::{Error, ErrorKind, Result};
use crate::process::regular_file::{self, Links, Unreadable};

/// The largest file of certificates, in bytes: those of all public authorities are a thirtieth of it.
const MAX_CERTIFICATES: usize = 8 << 20;

/// The contents of the certificate files, and whether to verify servers.
#[derive(Clone, Default)]
pub(crate) struct Certificates {
    /// True if any server is trusted, whatever its certificate.
    pub(crate) unverified: bool,
    pub(crate) authority: Option<Vec<u8>>,
    pub(crate) client: Option<(Vec<u8>, Vec<u8>)>,
}

/// Reads the files that the options of a URL name.
///
/// # Errors
/// `config_invalid` for a file that cannot be read, for a client certificate without its key, and for requirements that are
/// unknown.
pub(super) fn read([ca, cert, key, required]: [Option<String>; 4]) -> Result<Certificates> {
    let file = |option: &str, path: Option<String>| {
        // The path is not shown: a part of a password may follow it.
        let unreadable =
            |why: Unreadable| why.as_error(ErrorKind::ConfigInvalid, &format!("the file that {option} names"));
        path.map(|path| regular_file::read(Path::new(&path), MAX_CERTIFICATES, Links::Followed).map_err(unreadable))
            .transpose()
    };
    if cert.is_some() != key.is_some() {
        return Err(Error::config("a client certificate needs both ssl_certfile and ssl_keyfile"));
    }
    let authority = file("ssl_ca_certs", ca)?;
    let client = file("ssl_certfile", cert)?.zip(file("ssl_keyfile", key)?);
    let unverified = match required.as_deref() {
        None | Some("required") => false,
        Some("none") => true,
        Some(_) => return Err(Error::config("ssl_cert_reqs is unknown: give required or none")),
    };
    Ok(Certificates { unverified, authority, client })
}
