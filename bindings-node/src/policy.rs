//! A policy: limits and options.

use std::collections::HashMap;

use napi::bindgen_prelude::{ClassInstance, Either, Either4};
use napi_derive::napi;
use tidegate::host::{OptionKind, OptionValue, POLICY_OPTIONS};
use tidegate::{BlockFor, Error, ErrorKind, Lease, OnStoreError, Options, Period, Result, host};

use crate::error_value::{ErrorValue, crossing, node_name};
use crate::limit::{Limit, period};
use crate::number::{shown, small};

/// A valid policy.
#[napi]
pub struct Policy {
    pub(crate) policy: tidegate::Policy,
}

/// A value of an option: a boolean, a number, a text, or several numbers and texts.
type GivenValue = Either4<bool, f64, String, Vec<Either<f64, String>>>;
/// The same, as JavaScript reads it.
type ReadValue = Either4<bool, f64, String, Vec<f64>>;

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
        (OptionKind::Flag, Either4::A(flag)) => OptionValue::Flag(flag),
        (OptionKind::OnStoreError, Either4::C(word)) => {
            OptionValue::OnStoreError(on_store_error(&word, ErrorKind::PolicyInvalid)?)
        }
        (OptionKind::Duration, Either4::B(length)) => OptionValue::Duration(period("block", &Either::A(length))?),
        (OptionKind::Duration, Either4::C(length)) => OptionValue::Duration(period("block", &Either::B(length))?),
        (OptionKind::BlockFor, Either4::B(length)) => OptionValue::BlockFor(period("block", &Either::A(length))?.into()),
        (OptionKind::BlockFor, Either4::C(length)) => OptionValue::BlockFor(period("block", &Either::B(length))?.into()),
        (OptionKind::BlockFor, Either4::D(lengths)) => {
            let lengths = lengths.iter().map(|length| period("block", length)).collect::<Result<Vec<_>>>()?;
            OptionValue::BlockFor(BlockFor::new(lengths)?)
        }
        (OptionKind::Count { .. }, Either4::B(number)) => OptionValue::Count(small(&name, number)?),
        (OptionKind::Lease, Either4::B(units)) if units >= 1.0 && units.fract() == 0.0 && units <= 9e15 => {
            OptionValue::Lease(Lease::units(units as u64)?)
        }
        (OptionKind::Lease, Either4::B(units)) => {
            let message = format!("lease {}: it must be a whole number of units, or a part as in '5%'", shown(units));
            return Err(Error::new(ErrorKind::PolicyInvalid, message));
        }
        (OptionKind::Lease, Either4::C(text)) => OptionValue::Lease(Lease::parse(&text)?),
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
    options: HashMap<String, GivenValue>,
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
    pub fn options(&self) -> HashMap<String, ReadValue> {
        let named = POLICY_OPTIONS.iter().filter_map(|option| Some((option, option.get(self.policy.options())?)));
        named
            .map(|(option, value)| {
                let name = node_name(option.name);
                match value {
                    OptionValue::Flag(flag) => (name, Either4::A(flag)),
                    OptionValue::OnStoreError(choice) => (name, Either4::C(choice.name().to_owned())),
                    OptionValue::Duration(length) => (name + "Ms", Either4::B(length.micros() as f64 / 1_000.0)),
                    OptionValue::BlockFor(lengths) => {
                        let ms = |length: &Period| length.micros() as f64 / 1_000.0;
                        let several = |lengths: &[Period]| Either4::D(lengths.iter().map(ms).collect());
                        let value = match lengths.lengths() {
                            [length] => Either4::B(ms(length)),
                            lengths => several(lengths),
                        };
                        (name + "Ms", value)
                    }
                    OptionValue::Count(number) => (name, Either4::B(f64::from(number))),
                    OptionValue::Lease(lease) => {
                        let part = || Either4::C(lease.to_string());
                        (name, lease.as_units().map_or_else(part, |units| Either4::B(units as f64)))
                    }
                }
            })
            .collect()
    }
}
