//! Errors of arguments and files.

use std::{fmt, io};

use tidegate::{Error, ErrorKind};

/// An argument or a file that cannot be used.
pub fn invalid(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::ConfigInvalid, message)
}

/// A file or an output that cannot be written.
pub fn unwritable(what: impl fmt::Display, error: &io::Error) -> Error {
    invalid(format!("{what} cannot be written: {error}"))
}
