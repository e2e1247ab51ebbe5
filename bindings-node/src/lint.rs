//! Warnings about a valid policy file.

use napi::bindgen_prelude::Either;
use napi_derive::napi;
use tidegate::PolicyFile;

use crate::error_value::{ErrorValue, SourceLocation};

/// A limit that probably does not do what its author meant.
#[napi(object)]
pub struct Warning {
    /// The policy's name.
    pub policy: String,
    /// Its position in the file.
    pub place: Option<SourceLocation>,
    /// What is suspicious, and what to do about it.
    pub message: String,
}

/// Every warning about a policy file.
#[napi(catch_unwind)]
pub fn lint(path: String) -> Either<Vec<Warning>, ErrorValue> {
    match PolicyFile::read(path) {
        Ok(file) => Either::A(
            tidegate::lint(&file)
                .into_iter()
                .map(|warning| Warning {
                    policy: warning.policy,
                    place: warning.location.as_ref().map(SourceLocation::from),
                    message: warning.message,
                })
                .collect(),
        ),
        Err(error) => Either::B(error.into()),
    }
}
