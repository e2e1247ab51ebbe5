//! The servers of a store.

use std::borrow::Cow;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use super::certificates::Certificates;
use super::followed_hosts::FollowedHosts;
use super::password_file::PasswordFile;
use crate::error::{Error, ErrorKind, Result};

/// The servers of a store, and how to connect to them.
#[derive(Clone)]
pub(crate) struct Endpoints {
    pub(crate) deployment: Deployment,
    pub(crate) login: Login,
    /// Given when connections are encrypted.
    pub(crate) certificates: Option<Certificates>,
    /// The hosts that servers may name. `None` for all.
    pub(crate) follow: Option<FollowedHosts>,
    /// True if a replica may answer a peek.
    pub(crate) read_replicas: bool,
    /// The URL without user, password and files.
    pub(crate) shown: String,
}

impl Endpoints {
    /// True if Tidegate may connect to this address and send it the password.
    pub(crate) fn may_follow(&self, address: &Address) -> bool {
        if matches!(self.deployment, Deployment::Single(_)) {
            return true;
        }
        match (&self.follow, address) {
            (None, _) | (_, Address::Unix(_)) => true,
            (Some(follow), Address::Tcp(host, _)) => {
                let of_the_url = |named: &Address| matches!(named, Address::Tcp(other, _) if other == host);
                self.deployment.named().iter().any(of_the_url) || follow.contains(host)
            }
        }
    }
}

/// How to find the server of a key.
#[derive(Clone)]
pub(crate) enum Deployment {
    /// It is the only one.
    Single(Address),
    /// The sentinels name it.
    Sentinel { sentinels: Vec<Address>, name: String, login: Login },
    /// The nodes of the cluster name it.
    Cluster(Vec<Address>),
}

impl Deployment {
    /// The servers that the URL names.
    pub(crate) fn named(&self) -> &[Address] {
        match self {
            Self::Single(address) => std::slice::from_ref(address),
            Self::Sentinel { sentinels: several, .. } | Self::Cluster(several) => several,
        }
    }
}

/// The address on which a server listens.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Address {
    Tcp(Arc<str>, u16),
    Unix(Arc<PathBuf>),
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(host, port) if host.contains(':') => write!(f, "[{host}]:{port}"),
            Self::Tcp(host, port) => write!(f, "{host}:{port}"),
            Self::Unix(path) => write!(f, "{}", path.display()),
        }
    }
}

/// The user, the database, the protocol and the name of a connection.
#[derive(Clone, Default, PartialEq, Eq)]
pub(crate) struct Login {
    pub(crate) user: Option<String>,
    pub(crate) password: Option<String>,
    /// Given instead of a password.
    pub(crate) password_file: Option<PasswordFile>,
    pub(crate) database: u16,
    /// True if replies are in RESP3.
    pub(crate) resp3: bool,
    /// The name of the connection in `CLIENT LIST`.
    pub(crate) client_name: Option<String>,
}

impl Login {
    /// The login with the password that its file holds now.
    ///
    /// # Errors
    /// `store_unavailable` when the file holds none.
    pub(crate) fn current(&self) -> Result<Cow<'_, Self>> {
        let Some(file) = &self.password_file else { return Ok(Cow::Borrowed(self)) };
        let password = file.read().map_err(|why| Error::new(ErrorKind::StoreUnavailable, why))?;
        Ok(Cow::Owned(Self { password: Some(password), ..self.clone() }))
    }
}
