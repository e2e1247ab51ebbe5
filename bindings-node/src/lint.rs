//! What is valid in a policy file and still not what its author meant.

use napi::bindgen_prelude::Either;
use napi_derive::napi;
use tidegate::PolicyFile;

use crate::failure::{Failure, SourceLocation};

/// Something that probably does not do what it seems to.
#[napi(object)]
pub struct Warning {
    /// The policy's name.
    pub policy: String,
    /// Where it stands in the file.
    pub place: Option<SourceLocation>,
    /// What is odd, and what to do about it.
    pub message: String,
}

/// Every warning about a policy file.
#[napi(catch_unwind)]
pub fn lint(path: String) -> Either<Vec<Warning>, Failure> {
    match PolicyFile::read(path) {
        Ok(file) => Either::A(
            tidegate::lint(&file)
                .into_iter()
                .map(|warning| Warning {
                    policy: warning.policy,
                    place: warning.place.as_ref().map(SourceLocation::from),
                    message: warning.message,
                })
                .collect(),
        ),
        Err(error) => Either::B(error.into()),
    }
}
