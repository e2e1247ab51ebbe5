//! TLS in a crate without the feature `tls`: there is none. A store URL that asks for TLS is refused before.

use std::convert::Infallible;
use std::io::{self, Read, Write};

use crate::error::Result;
use crate::process::log::Log;
use crate::store::url::Endpoints;

/// The configuration of TLS. No value of it exists.
pub(crate) struct TlsConfig(Infallible);

impl TlsConfig {
    pub(crate) fn of(endpoints: &Endpoints, _: &Log) -> Result<Option<Self>> {
        Ok(endpoints.certificates.as_ref().map(|certificates| match certificates.0 {}))
    }

    pub(crate) fn session(&self, _: &str) -> io::Result<Session> {
        match self.0 {}
    }
}

/// An encrypted session. No value of it exists.
pub(crate) struct Session(Infallible);

impl Session {
    pub(crate) fn is_handshaking(&self) -> bool {
        match self.0 {}
    }

    pub(crate) fn wants_write(&self) -> bool {
        match self.0 {}
    }

    pub(crate) fn write_to(&mut self, _: &mut dyn Write) -> io::Result<usize> {
        match self.0 {}
    }

    pub(crate) fn read_from(&mut self, _: &mut dyn Read) -> io::Result<usize> {
        match self.0 {}
    }

    pub(crate) fn decrypt(&mut self) -> io::Result<()> {
        match self.0 {}
    }

    pub(crate) fn has_decrypted(&mut self) -> bool {
        match self.0 {}
    }

    pub(crate) fn is_quiet(&mut self) -> bool {
        match self.0 {}
    }

    pub(crate) fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
        match self.0 {}
    }

    pub(crate) fn write(&mut self, _: &[u8]) -> io::Result<usize> {
        match self.0 {}
    }
}
