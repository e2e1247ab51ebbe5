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

/// The exception of an error of the core.
#[cold]
pub(crate) fn raise(error: Error) -> PyErr {
    raise_about(error, None)
}

/// Raises an error in a text of the caller, which the exception shows.
#[cold]
pub(crate) fn raise_about(error: Error, text: Option<&str>) -> PyErr {
    let (message, code) = (error.message().to_owned(), error.code());
    let raised = match error.kind() {
        ErrorKind::PolicyInvalid | ErrorKind::PolicyUnknown => {
            let location = error.location();
            let text = text.filter(|_| location.is_some_and(|location| location.file.is_none())).map(str::to_owned);
            let file = location.and_then(|location| location.file.clone());
            let (line, column) = (location.map(|location| location.line), location.map(|location| location.column));
            PolicyError::new_err((message, code, file, line, column, text))
        }
        ErrorKind::CostInvalid => CostError::new_err((message,)),
        ErrorKind::KeyInvalid => KeyInvalid::new_err((message,)),
        ErrorKind::ConfigInvalid => ConfigError::new_err((message,)),
        ErrorKind::StoreUnavailable | ErrorKind::StoreTimeout | ErrorKind::StoreRejected => {
            StoreError::new_err((message, code))
        }
        ErrorKind::Closed => ClosedError::new_err((message,)),
        // A kind that is new in the core keeps its code. A test goes through the table of kinds, so none stays here.
        _ => TidegateError::new_err((message, code)),
    };
    // The exception of a store of the application.
    if let Some(cause) = std::error::Error::source(&error).and_then(|source| source.downcast_ref::<PyErr>()) {
        Python::attach(|py| raised.set_cause(py, Some(cause.clone_ref(py))));
    }
    raised
}

pub(crate) fn config(message: impl Into<String>) -> PyErr {
    raise(Error::new(ErrorKind::ConfigInvalid, message))
}

pub(crate) fn policy(message: impl Into<String>) -> PyErr {
    raise(Error::new(ErrorKind::PolicyInvalid, message))
}

/// The exception for `pickle` or `copy` of an object that belongs to one process.
#[cold]
pub(crate) fn belongs_to_process(name: &str, instead: &str) -> PyErr {
    pyo3::exceptions::PyTypeError::new_err(format!("{name} cannot be pickled or copied: {instead}"))
}
