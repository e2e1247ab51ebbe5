//! Warnings about policies that are valid.

use napi::bindgen_prelude::{ClassInstance, Either};
use napi_derive::napi;

use crate::error_value::{ErrorValue, SourceLocation, crossing};
use crate::policy::Policy;

/// A limit that probably does not have the effect that its author meant.
#[napi(object)]
pub struct Warning {
    /// The policy's name.
    pub policy: String,
    /// Its position in the file.
    pub place: Option<SourceLocation>,
    /// The problem, and the change that solves it.
    pub message: String,
}

impl From<tidegate::Warning> for Warning {
    fn from(warning: tidegate::Warning) -> Self {
        Self {
            policy: warning.policy,
            place: warning.location.as_ref().map(SourceLocation::from),
            message: warning.message,
        }
    }
}

/// Every warning about a policy file, given by its path, or about a notation.
#[napi(catch_unwind)]
pub fn lint(text: String) -> Either<Vec<Warning>, ErrorValue> {
    crossing(tidegate::host::lint_text(&text).map(warnings))
}

/// Every warning about policies, each with its name if it is known by another.
#[napi(catch_unwind)]
pub fn lint_policies(
    names: Vec<Option<String>>,
    policies: Vec<ClassInstance<'_, Policy>>,
) -> Either<Vec<Warning>, ErrorValue> {
    let named = names.into_iter().zip(&policies).map(|(name, policy)| {
        let policy = policy.policy.clone();
        name.map_or(Ok(policy.clone()), |name| policy.named(name))
    });
    let named: tidegate::Result<Vec<_>> = named.collect();
    crossing(named.map(|policies| warnings(tidegate::lint_policies(&policies))))
}

fn warnings(found: Vec<tidegate::Warning>) -> Vec<Warning> {
    found.into_iter().map(Warning::from).collect()
}
