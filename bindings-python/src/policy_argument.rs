//! The policy of a call, as Python passes it: a name, a notation or a Policy.

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyString;
use tidegate::{AsPolicy, CheckOptions, Cost, ErrorKind, PolicyRef};

use crate::convert::{cost, key, meta, priority, shown, text, utf8};
use crate::error::config;
use crate::policy::Policy;

/// The argument `policy` of a call.
#[derive(Clone, Copy)]
pub(crate) enum PolicyArgument<'a> {
    Text(&'a str),
    Policy(&'a tidegate::Policy),
}

impl AsPolicy for PolicyArgument<'_> {
    #[inline]
    fn as_policy(&self) -> PolicyRef<'_> {
        match self {
            Self::Text(text) => PolicyRef::Text(text),
            Self::Policy(policy) => PolicyRef::Policy(policy),
        }
    }
}

impl<'a> PolicyArgument<'a> {
    #[inline]
    pub(crate) fn of(given: &'a Bound<'_, PyAny>) -> PyResult<Self> {
        if let Ok(text) = given.cast::<PyString>() {
            return Ok(Self::Text(self::text(text, ErrorKind::PolicyInvalid, "the policy")?));
        }
        match given.cast::<Policy>() {
            Ok(policy) => Ok(Self::Policy(&policy.get().inner)),
            Err(_) => Err(PyTypeError::new_err(format!("a policy must be a str or a Policy, not {}", shown(given)))),
        }
    }

    /// The text, for an error in it.
    pub(crate) const fn text(self) -> Option<&'a str> {
        match self {
            Self::Text(text) => Some(text),
            Self::Policy(_) => None,
        }
    }
}

/// A policy argument of a task that outlives the call.
pub(crate) enum OwnedPolicy {
    Text(String),
    Policy(tidegate::Policy),
}

impl From<PolicyArgument<'_>> for OwnedPolicy {
    fn from(given: PolicyArgument<'_>) -> Self {
        match given {
            PolicyArgument::Text(text) => Self::Text(text.to_owned()),
            PolicyArgument::Policy(policy) => Self::Policy(policy.clone()),
        }
    }
}

impl AsPolicy for OwnedPolicy {
    fn as_policy(&self) -> PolicyRef<'_> {
        match self {
            Self::Text(text) => PolicyRef::Text(text),
            Self::Policy(policy) => PolicyRef::Policy(policy),
        }
    }
}

/// Refuses `partial` for `check_all`, which takes all or nothing.
pub(crate) fn refuse_partial(partial: bool) -> PyResult<()> {
    if partial {
        return Err(config(
            "check_all is all or nothing, so that it cannot be partial: make a partial check of each policy and key",
        ));
    }
    Ok(())
}

/// The entries of a `check_all`.
pub(crate) type OwnedEntries = Vec<(OwnedPolicy, String, CheckOptions)>;

/// Reads the entries of `check_all`: `(policy, key)`, then perhaps a cost, metadata and a class.
pub(crate) fn entries(given: &Bound<'_, PyAny>) -> PyResult<OwnedEntries> {
    let wrong = |entry: &Bound<'_, PyAny>| {
        PyTypeError::new_err(format!(
            "an entry of check_all must be (policy, key), (policy, key, cost), (policy, key, cost, meta) or (policy, key, \
             cost, meta, \
             priority), not {}",
            shown(entry)
        ))
    };
    let entry = |entry: Bound<'_, PyAny>| {
        // A text is a sequence too, namely of its characters.
        let parts: Vec<Bound<'_, PyAny>> = if entry.is_instance_of::<PyString>() {
            return Err(wrong(&entry));
        } else {
            entry.try_iter().map_err(|_| wrong(&entry))?.collect::<PyResult<_>>()?
        };
        let ([policy, given_key], rest) = parts.split_first_chunk().ok_or_else(|| wrong(&entry))?;
        if rest.len() > 3 {
            return Err(wrong(&entry));
        }
        let cost = rest.first().map_or_else(|| Ok(Cost::from(1)), cost)?;
        let meta = rest.get(1).map_or(Ok(None), meta)?;
        let priority = rest.get(2).map_or(Ok(None), priority)?;
        let options = CheckOptions { meta, priority, ..cost.into() };
        Ok((PolicyArgument::of(policy)?.into(), utf8(&key(given_key)?)?.to_owned(), options))
    };
    let list = given.try_iter().map_err(|_| {
        PyTypeError::new_err(format!(
            "the entries of check_all must be a list of (policy, key) or (policy, key, cost), not {}",
            shown(given)
        ))
    })?;
    list.map(|one| entry(one?)).collect()
}
