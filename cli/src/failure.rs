//! The error of a verb that could not do its work.

use std::{fmt, io};

/// A stable code, and a message with the problem, its place and the remedy.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) code: &'static str,
    pub(crate) message: String,
}

impl Failure {
    /// An argument that cannot be used.
    pub(crate) fn argument(message: impl Into<String>) -> Self {
        Self { code: "config_invalid", message: message.into() }
    }

    /// A file or an output that cannot be written.
    pub(crate) fn unwritable(what: impl fmt::Display, error: &io::Error) -> Self {
        Self::argument(format!("{what} cannot be written: {error}"))
    }

    /// A server that does not answer as it should.
    pub(crate) fn store(message: impl Into<String>) -> Self {
        Self { code: "store_rejected", message: message.into() }
    }
}

impl From<tidegate::Error> for Failure {
    fn from(error: tidegate::Error) -> Self {
        Self { code: error.code(), message: error.to_string() }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}
