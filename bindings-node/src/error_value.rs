//! Errors as values. Node-API cannot throw an error of our classes with its fields, but the TypeScript side can.

use std::fmt;

use napi::bindgen_prelude::Either;
use napi_derive::napi;
use tidegate::host::{ArgumentKind, LIMITER_OPTIONS, LimiterOption};
use tidegate::{Error, ErrorKind, Result, host};

/// An error of the core.
#[napi(object)]
pub struct ErrorValue {
    /// The stable code.
    pub code: String,
    /// The problem, in one sentence.
    pub message: String,
    /// The place of the problem, for notations and policy files.
    pub place: Option<SourceLocation>,
    /// True if the call certainly did not run.
    pub did_not_run: bool,
    /// The number of the error of an application's store that caused it.
    pub cause: Option<u32>,
}

/// A position in a text or a file. Lines and columns count from 1.
#[napi(object)]
pub struct SourceLocation {
    /// The file, when there is one.
    pub file: Option<String>,
    /// The line.
    pub line: u32,
    /// The column, in characters.
    pub column: u32,
}

/// The error of a method. JavaScript keeps it under its number.
#[derive(Debug)]
pub(crate) struct StoreCause {
    pub(crate) message: String,
    pub(crate) number: u32,
}

impl fmt::Display for StoreCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for StoreCause {}

impl From<&tidegate::SourceLocation> for SourceLocation {
    fn from(place: &tidegate::SourceLocation) -> Self {
        let number = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        Self { file: place.file.clone(), line: number(place.line), column: number(place.column) }
    }
}

impl From<Error> for ErrorValue {
    fn from(error: Error) -> Self {
        let cause = std::error::Error::source(&error).and_then(|source| source.downcast_ref::<StoreCause>());
        Self {
            code: error.code().to_owned(),
            message: host::message_for(&error, node_name),
            place: error.location().map(SourceLocation::from),
            did_not_run: error.did_not_run(),
            cause: cause.map(|cause| cause.number),
        }
    }
}

/// `; did you mean x?` for a mistyped name, or nothing.
#[napi(catch_unwind)]
pub fn did_you_mean(given: String, names: Vec<String>) -> String {
    host::did_you_mean(&given, names.iter().map(String::as_str)).replace('`', "")
}

/// A result in the form that crosses to JavaScript.
pub(crate) fn crossing<T>(result: Result<T>) -> Either<T, ErrorValue> {
    match result {
        Ok(value) => Either::A(value),
        Err(error) => Either::B(error.into()),
    }
}

/// The TypeScript name of an option of the core. Lengths of time are in milliseconds.
pub(crate) fn node_name(name: &str) -> String {
    let is_length = |option: &LimiterOption| option.declaration.kind == ArgumentKind::Duration;
    let has_unit = LIMITER_OPTIONS.iter().any(|option| option.declaration.name == name && is_length(option));
    camel_case(name) + if has_unit { "Ms" } else { "" }
}

/// The TypeScript spelling of a name of the core.
pub(crate) fn camel_case(name: &str) -> String {
    let mut spelled = String::with_capacity(name.len() + 2);
    for (index, word) in name.split('_').enumerate() {
        let first = if index == 0 { 0 } else { 1 };
        spelled.push_str(&word[..first].to_ascii_uppercase());
        spelled.push_str(&word[first..]);
    }
    spelled
}

/// Every code. A test compares them with the classes of the TypeScript side.
#[napi(catch_unwind)]
pub fn codes() -> Vec<String> {
    ErrorKind::ALL.iter().map(|kind| kind.code().to_owned()).collect()
}
