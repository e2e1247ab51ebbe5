//! A policy: limits and options.

use std::collections::HashMap;

use napi::bindgen_prelude::{ClassInstance, Either, Either3};
use napi_derive::napi;
use tidegate::host::{OptionKind, OptionValue, POLICY_OPTIONS};
use tidegate::{Error, ErrorKind, Lease, OnStoreError, Options, Result, host};

use crate::error_value::{ErrorValue, crossing, node_name};
use crate::limit::{Limit, period};
use crate::number::{shown, small};

/// A valid policy.
#[napi]
pub struct Policy {
    pub(crate) policy: tidegate::Policy,
}

/// A value of an option: a boolean, a number or a text.
type GivenValue = Either3<bool, f64, String>;

/// The choice with that name.
pub(crate) fn on_store_error(word: &str, kind: ErrorKind) -> Result<OnStoreError> {
    OnStoreError::from_name(word).ok_or_else(|| {
        let words: Vec<&str> = OnStoreError::ALL.iter().map(|choice| choice.name()).collect();
        Error::new(kind, format!("onStoreError cannot be {}: use one of {}", host::quoted(word), words.join(", ")))
    })
}

fn value(option: &host::PolicyOption, given: GivenValue) -> Result<OptionValue> {
    let name = node_name(option.name);
    Ok(match (option.kind, given) {
        (OptionKind::Flag, Either3::A(flag)) => OptionValue::Flag(flag),
        (OptionKind::OnStoreError, Either3::C(word)) => {
            OptionValue::OnStoreError(on_store_error(&word, ErrorKind::PolicyInvalid)?)
        }
        (OptionKind::Duration, Either3::B(length)) => OptionValue::Duration(period("block", &Either::A(length))?),
        (OptionKind::Duration, Either3::C(length)) => OptionValue::Duration(period("block", &Either::B(length))?),
        (OptionKind::Count { .. }, Either3::B(number)) => OptionValue::Count(small(&name, number)?),
        (OptionKind::Lease, Either3::B(units)) if units >= 1.0 && units.fract() == 0.0 && units <= 9e15 => {
            OptionValue::Lease(Lease::units(units as u64)?)
        }
        (OptionKind::Lease, Either3::B(units)) => {
            let message = format!("lease {}: it must be a whole number of units, or a part as in '5%'", shown(units));
            return Err(Error::new(ErrorKind::PolicyInvalid, message));
        }
        (OptionKind::Lease, Either3::C(text)) => OptionValue::Lease(Lease::parse(&text)?),
        (OptionKind::Priorities, Either3::C(text)) => OptionValue::Priorities(text.parse()?),
        // The types are checked before.
        _ => return Err(Error::new(ErrorKind::PolicyInvalid, format!("{name} has the wrong type"))),
    })
}

fn options(mut given: HashMap<String, GivenValue>) -> Result<Options> {
    let mut options = Options::default();
    for option in POLICY_OPTIONS {
        if let Some(given) = given.remove(&node_name(option.name)) {
            option.set(&mut options, value(option, given)?);
        }
    }
    Ok(options)
}

fn build(
    limits: &[Either<String, ClassInstance<'_, Limit>>],
    name: Option<String>,
    options: HashMap<String, GivenValue>,
) -> Result<tidegate::Policy> {
    let mut all = Vec::with_capacity(limits.len());
    for limit in limits {
        match limit {
            Either::A(notation) => all.extend_from_slice(tidegate::Policy::parse(notation)?.limits()),
            Either::B(limit) => all.push(limit.limit.clone()),
        }
    }
    let policy = tidegate::Policy::new(all, self::options(options)?)?;
    match name {
        Some(name) => policy.named(name),
        None => Ok(policy),
    }
}

/// Makes a policy.
#[napi(catch_unwind)]
pub fn policy(
    limits: Vec<Either<String, ClassInstance<'_, Limit>>>,
    name: Option<String>,
    options: HashMap<String, Either3<bool, f64, String>>,
) -> Either<Policy, ErrorValue> {
    crossing(build(&limits, name, options).map(|policy| Policy { policy }))
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

    /// Its options by name, those that have a value. A length of time has the name's unit, `Ms`.
    #[napi(catch_unwind)]
    pub fn options(&self) -> HashMap<String, Either3<bool, f64, String>> {
        let named = POLICY_OPTIONS.iter().filter_map(|option| Some((option, option.get(self.policy.options())?)));
        named
            .map(|(option, value)| {
                let name = node_name(option.name);
                match value {
                    OptionValue::Flag(flag) => (name, Either3::A(flag)),
                    OptionValue::OnStoreError(choice) => (name, Either3::C(choice.name().to_owned())),
                    OptionValue::Duration(length) => (name + "Ms", Either3::B(length.micros() as f64 / 1_000.0)),
                    OptionValue::Count(number) => (name, Either3::B(f64::from(number))),
                    OptionValue::Priorities(priorities) => (name, Either3::C(priorities.to_string())),
                    OptionValue::Lease(lease) => {
                        let part = || Either3::C(lease.to_string());
                        (name, lease.as_units().map_or_else(part, |units| Either3::B(units as f64)))
                    }
                }
            })
            .collect()
    }
}
