//! A policy: limits and options.

use std::collections::HashMap;

use napi::bindgen_prelude::{ClassInstance, Either, Either5};
use napi_derive::napi;
use tidegate::host::{OptionKind, OptionValue, POLICY_OPTIONS};
use tidegate::{
    BlockFor, Error, ErrorKind, KeyOverride, Lease, OnStoreError, Options, Overrides, Period, Result, host,
};

use crate::error_value::{ErrorValue, crossing, node_name};
use crate::limit::{Limit, period};
use crate::number::{milliseconds, shown, small};

/// A valid policy.
#[napi]
pub struct Policy {
    pub(crate) policy: tidegate::Policy,
}

/// A value of an option: a boolean, a number, a text, or several numbers and texts.
type GivenValue = Either5<bool, f64, String, Vec<Either<f64, String>>, HashMap<String, String>>;
/// A value of an option that JavaScript reads.
type ReadValue = Either5<bool, f64, String, Vec<f64>, HashMap<String, String>>;

/// The choice with that name.
pub(crate) fn on_store_error(word: &str, kind: ErrorKind) -> Result<OnStoreError> {
    OnStoreError::from_name(word).ok_or_else(|| {
        let words: Vec<&str> = OnStoreError::ALL.iter().map(|choice| choice.name()).collect();
        Error::new(kind, format!("onStoreError must be one of {}, not {}", words.join(", "), host::quoted(word)))
    })
}

fn value(option: &host::PolicyOption, given: GivenValue) -> Result<OptionValue> {
    let name = node_name(option.name);
    Ok(match (option.kind, given) {
        (OptionKind::Flag, Either5::A(flag)) => OptionValue::Flag(flag),
        (OptionKind::OnStoreError, Either5::C(word)) => {
            OptionValue::OnStoreError(on_store_error(&word, ErrorKind::PolicyInvalid)?)
        }
        (OptionKind::Duration, Either5::B(length)) => OptionValue::Duration(period("block", &Either::A(length))?),
        (OptionKind::Duration, Either5::C(length)) => OptionValue::Duration(period("block", &Either::B(length))?),
        (OptionKind::BlockFor, Either5::B(length)) => {
            OptionValue::BlockFor(period("block", &Either::A(length))?.into())
        }
        (OptionKind::BlockFor, Either5::C(length)) => {
            OptionValue::BlockFor(period("block", &Either::B(length))?.into())
        }
        (OptionKind::BlockFor, Either5::D(lengths)) => {
            let lengths = lengths.iter().map(|length| period("block", length)).collect::<Result<Vec<_>>>()?;
            OptionValue::BlockFor(BlockFor::new(lengths)?)
        }
        (OptionKind::Overrides, Either5::E(overrides)) => {
            let own = |(key, text): (String, String)| {
                let about = |error: Error| {
                    let message = format!("the override of {}: {}", host::quoted(&key), error.message());
                    Error::new(ErrorKind::PolicyInvalid, message)
                };
                let own = KeyOverride::parse(&text).map_err(about)?;
                Ok((key, own))
            };
            OptionValue::Overrides(overrides.into_iter().map(own).collect::<Result<Overrides>>()?)
        }
        (OptionKind::Count { .. }, Either5::B(number)) => OptionValue::Count(small(&name, number)?),
        (OptionKind::Lease, Either5::B(units)) if units >= 1.0 && units.fract() == 0.0 && units <= 9e15 => {
            OptionValue::Lease(Lease::units(units as u64)?)
        }
        (OptionKind::Lease, Either5::B(units)) => {
            let message = format!("lease {}: it must be a whole number of units, or a part as in '5%'", shown(units));
            return Err(Error::new(ErrorKind::PolicyInvalid, message));
        }
        (OptionKind::Lease, Either5::C(text)) => OptionValue::Lease(Lease::parse(&text)?),
        (OptionKind::Priorities, Either5::C(text)) => OptionValue::Priorities(text.parse()?),
        // TypeScript has checked the types before.
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
    // The names of Rust types mean nothing in the declarations.
    #[napi(ts_arg_type = "Readonly<Record<string, unknown>>")] options: HashMap<String, GivenValue>,
) -> Either<Policy, ErrorValue> {
    crossing(build(&limits, name, options).map(|policy| Policy { policy }))
}

/// The policy of calls that only the limits in responses limit.
#[napi(catch_unwind)]
pub fn learned_policy() -> Either<Policy, ErrorValue> {
    crossing(tidegate::Policy::learned().map(|policy| Policy { policy }))
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

    /// This policy as calls that go out keep it.
    #[napi(catch_unwind)]
    pub fn paced(&self, margin_ms: f64) -> Either<Policy, ErrorValue> {
        let paced = milliseconds("marginMs", margin_ms).and_then(|margin| self.policy.paced(margin));
        crossing(paced.map(|policy| Policy { policy }))
    }

    /// Its limits.
    #[napi(catch_unwind)]
    pub fn limits(&self) -> Vec<Limit> {
        self.policy.limits().iter().map(|limit| Limit { limit: limit.clone() }).collect()
    }

    /// Its options by name, those that have a value. A length of time has the name's unit, `Ms`.
    #[napi(
        catch_unwind,
        ts_return_type = "Record<string, boolean | number | string | Array<number> | Record<string, string>>"
    )]
    pub fn options(&self) -> HashMap<String, ReadValue> {
        let named = POLICY_OPTIONS.iter().filter_map(|option| Some((option, option.get(self.policy.options())?)));
        named
            .map(|(option, value)| {
                let name = node_name(option.name);
                match value {
                    OptionValue::Flag(flag) => (name, Either5::A(flag)),
                    OptionValue::OnStoreError(choice) => (name, Either5::C(choice.name().to_owned())),
                    OptionValue::Duration(length) => (name + "Ms", Either5::B(length.micros() as f64 / 1_000.0)),
                    OptionValue::BlockFor(lengths) => {
                        let ms = |length: &Period| length.micros() as f64 / 1_000.0;
                        let several = |lengths: &[Period]| Either5::D(lengths.iter().map(ms).collect());
                        let value = match lengths.lengths() {
                            [length] => Either5::B(ms(length)),
                            lengths => several(lengths),
                        };
                        (name + "Ms", value)
                    }
                    OptionValue::Overrides(overrides) => (
                        name,
                        Either5::E(overrides.iter().map(|(key, own)| (key.to_owned(), own.to_string())).collect()),
                    ),
                    OptionValue::Priorities(priorities) => (name, Either5::C(priorities.to_string())),
                    OptionValue::Count(number) => (name, Either5::B(f64::from(number))),
                    OptionValue::Lease(lease) => {
                        let part = || Either5::C(lease.to_string());
                        (name, lease.as_units().map_or_else(part, |units| Either5::B(units as f64)))
                    }
                }
            })
            .collect()
    }
}
