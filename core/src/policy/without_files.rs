//! The policy file in a crate without the feature `files`, which can read none.

use std::convert::Infallible;
use std::path::Path;

use super::{Format, Policy};
use crate::error::missing_feature;
use crate::error::{Error, Result, SourceLocation};

/// A policy file. None exists, because the crate is built without its feature `files`.
#[derive(Debug, Clone, PartialEq)]
pub struct PolicyFile(Infallible);

fn missing() -> Error {
    missing_feature::error("a policy file", "files")
}

impl PolicyFile {
    /// Refuses to read a file.
    ///
    /// # Errors
    /// `config_invalid`, always.
    pub fn read(_: impl AsRef<Path>) -> Result<Self> {
        Err(missing())
    }

    /// The same number for each file, because none is read.
    pub(crate) const fn digest(_: &Path) -> u64 {
        0
    }

    /// Refuses to read a text.
    ///
    /// # Errors
    /// `config_invalid`, always.
    pub fn parse(_: &str, _: Format, _: Option<&str>) -> Result<Self> {
        Err(missing())
    }

    /// Refuses to read a text.
    ///
    /// # Errors
    /// `config_invalid`, always.
    pub fn parse_with(_: &str, _: Format, _: Option<&str>, _: &dyn Fn(&str) -> Option<String>) -> Result<Self> {
        Err(missing())
    }

    /// The store's URL, or the URLs of its shards.
    #[must_use]
    pub fn store(&self) -> Option<&[String]> {
        match self.0 {}
    }

    /// The new URL of a rollout and its percentage.
    #[must_use]
    pub fn rollout(&self) -> Option<(&str, f64)> {
        match self.0 {}
    }

    /// The beginning of every key in Redis.
    #[must_use]
    pub fn prefix(&self) -> Option<&str> {
        match self.0 {}
    }

    /// The policies.
    #[must_use]
    pub fn policies(&self) -> &[Policy] {
        match self.0 {}
    }

    /// The policy of that name.
    #[must_use]
    pub fn get(&self, _: &str) -> Option<&Policy> {
        match self.0 {}
    }

    /// The position of the policy of that name.
    #[must_use]
    pub fn location(&self, _: &str) -> Option<&SourceLocation> {
        match self.0 {}
    }

    pub(super) fn policy_location(&self, _: usize) -> Option<&SourceLocation> {
        match self.0 {}
    }

    pub(super) fn limit_location(&self, _: usize, _: usize) -> Option<&SourceLocation> {
        match self.0 {}
    }

    pub(super) fn new_form(&self, _: usize) -> Option<String> {
        match self.0 {}
    }
}
