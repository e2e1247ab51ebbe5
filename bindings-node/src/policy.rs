//! A policy: limits and options.

use napi::bindgen_prelude::{ClassInstance, Either};
use napi_derive::napi;
use tidegate::{Error, ErrorKind, Lease, OnStoreError, Options, Result, host};

use crate::error_value::{ErrorValue, crossing};
use crate::limit::{Limit, period};
use crate::number::{shown, small};

/// A valid policy.
#[napi]
pub struct Policy {
    pub(crate) policy: tidegate::Policy,
}

/// The options of a policy as JavaScript gives them.
#[napi(object)]
pub struct PolicySpec {
    /// Its name.
    pub name: Option<String>,
    /// What a check answers when the store fails.
    pub on_store_error: Option<String>,
    /// Evaluate and count, but never deny.
    pub shadow: Option<bool>,
    /// Once denied, the key stays denied this long.
    pub block_for: Option<Either<f64, String>>,
    /// Charge denied checks too.
    pub count_denied: Option<bool>,
    /// How many attempts to remember.
    pub journal: Option<f64>,
    /// Units one process takes in advance.
    pub lease: Option<Either<f64, String>>,
}

/// The options of a valid policy.
#[napi(object)]
pub struct PolicyOptionValues {
    /// What a check answers when the store fails.
    pub on_store_error: Option<String>,
    /// Whether it is evaluated and counted, but never denies.
    pub shadow: bool,
    /// Once denied, the key stays denied this long.
    pub block_for_ms: Option<f64>,
    /// Whether denied checks are charged too.
    pub count_denied: bool,
    /// How many attempts are remembered.
    pub journal: u32,
    /// Units one process takes in advance: a number, or a part such as `5%`.
    pub lease: Option<Either<f64, String>>,
}

/// The choice with that name.
pub(crate) fn on_store_error(word: &str, kind: ErrorKind) -> Result<OnStoreError> {
    OnStoreError::from_name(word).ok_or_else(|| {
        let words: Vec<&str> = OnStoreError::ALL.iter().map(|choice| choice.name()).collect();
        Error::new(kind, format!("onStoreError cannot be {}: use one of {}", host::quoted(word), words.join(", ")))
    })
}

fn lease(given: &Either<f64, String>) -> Result<Lease> {
    match given {
        Either::A(units) if *units >= 1.0 && units.fract() == 0.0 && *units <= 9e15 => Lease::units(*units as u64),
        Either::A(units) => Err(Error::new(
            ErrorKind::PolicyInvalid,
            format!("lease {}: it must be a whole number of units, or a part as in '5%'", shown(*units)),
        )),
        Either::B(text) => Lease::parse(text),
    }
}

fn options(spec: &PolicySpec) -> Result<Options> {
    let kind = ErrorKind::PolicyInvalid;
    Ok(Options {
        on_store_error: spec.on_store_error.as_deref().map(|word| on_store_error(word, kind)).transpose()?,
        shadow: spec.shadow.unwrap_or_default(),
        block_for: spec.block_for.as_ref().map(|length| period("block", length)).transpose()?,
        count_denied: spec.count_denied.unwrap_or_default(),
        journal: spec.journal.map_or(Ok(0), |number| small("journal", number))?,
        lease: spec.lease.as_ref().map(lease).transpose()?,
    })
}

fn build(limits: &[Either<String, ClassInstance<'_, Limit>>], spec: &PolicySpec) -> Result<tidegate::Policy> {
    let mut all = Vec::with_capacity(limits.len());
    for limit in limits {
        match limit {
            Either::A(notation) => all.extend_from_slice(tidegate::Policy::parse(notation)?.limits()),
            Either::B(limit) => all.push(limit.limit.clone()),
        }
    }
    let policy = tidegate::Policy::new(all, options(spec)?)?;
    match &spec.name {
        Some(name) => policy.named(name.as_str()),
        None => Ok(policy),
    }
}

/// Makes a policy.
#[napi(catch_unwind)]
pub fn policy(limits: Vec<Either<String, ClassInstance<'_, Limit>>>, spec: PolicySpec) -> Either<Policy, ErrorValue> {
    crossing(build(&limits, &spec).map(|policy| Policy { policy }))
}

#[napi]
impl Policy {
    /// Its name, or its canonical notation when it has no name.
    #[napi(catch_unwind)]
    pub fn name(&self) -> String {
        self.policy.name().to_owned()
    }

    /// The canonical notation of its limits.
    #[napi(catch_unwind)]
    pub fn notation(&self) -> String {
        self.policy.limits().iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
    }

    /// Its limits.
    #[napi(catch_unwind)]
    pub fn limits(&self) -> Vec<Limit> {
        self.policy.limits().iter().map(|limit| Limit { limit: limit.clone() }).collect()
    }

    /// Its options.
    #[napi(catch_unwind)]
    pub fn options(&self) -> PolicyOptionValues {
        let options = self.policy.options();
        PolicyOptionValues {
            on_store_error: options.on_store_error.map(|choice| choice.name().to_owned()),
            shadow: options.shadow,
            block_for_ms: options.block_for.map(|length| length.micros() as f64 / 1_000.0),
            count_denied: options.count_denied,
            journal: options.journal,
            lease: options.lease.map(|lease| match lease.as_units() {
                Some(units) => Either::A(units as f64),
                None => Either::B(lease.to_string()),
            }),
        }
    }
}
