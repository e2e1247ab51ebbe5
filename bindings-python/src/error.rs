//! The core's errors as the exceptions of `tidegate/errors.py`.

use pyo3::import_exception;
use pyo3::prelude::*;
use tidegate::{Error, ErrorKind};

import_exception!(tidegate.errors, TidegateError);
import_exception!(tidegate.errors, PolicyError);
import_exception!(tidegate.errors, CostError);
import_exception!(tidegate.errors, KeyInvalid);
import_exception!(tidegate.errors, ConfigError);
import_exception!(tidegate.errors, StoreError);
import_exception!(tidegate.errors, ClosedError);
import_exception!(tidegate.errors, RateLimited);

/// The exception that says what the core said.
#[cold]
pub(crate) fn raise(error: Error) -> PyErr {
    raise_about(error, None)
}

/// The same for an error in a text that the caller wrote: the exception carries it.
#[cold]
pub(crate) fn raise_about(error: Error, text: Option<&str>) -> PyErr {
    let (message, code) = (error.message().to_owned(), error.code());
    match error.kind() {
        ErrorKind::PolicyInvalid | ErrorKind::PolicyUnknown => {
            let place = error.location();
            let text = text.filter(|_| place.is_some_and(|place| place.file.is_none())).map(str::to_owned);
            let file = place.and_then(|place| place.file.clone());
            let (line, column) = (place.map(|place| place.line), place.map(|place| place.column));
            PolicyError::new_err((message, code, file, line, column, text))
        }
        ErrorKind::CostInvalid => CostError::new_err((message,)),
        ErrorKind::KeyInvalid => KeyInvalid::new_err((message,)),
        ErrorKind::ConfigInvalid => ConfigError::new_err((message,)),
        ErrorKind::StoreUnavailable | ErrorKind::StoreTimeout | ErrorKind::StoreRejected => {
            StoreError::new_err((message, code))
        }
        ErrorKind::Closed => ClosedError::new_err((message,)),
        // A kind this module does not know yet keeps its code; a test walks the table, so that none stays here.
        _ => TidegateError::new_err((message, code)),
    }
}

pub(crate) fn config(message: impl Into<String>) -> PyErr {
    raise(Error::new(ErrorKind::ConfigInvalid, message))
}

pub(crate) fn policy(message: impl Into<String>) -> PyErr {
    raise(Error::new(ErrorKind::PolicyInvalid, message))
}

/// What a class that belongs to one process answers to `pickle` and `copy`.
#[cold]
pub(crate) fn stays(name: &str, instead: &str) -> PyErr {
    pyo3::exceptions::PyTypeError::new_err(format!("{name} cannot be pickled or copied: {instead}"))
}
