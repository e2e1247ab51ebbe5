//! The options of `Limiter` and `AsyncLimiter`, for both ways to make one.

use std::path::Path;

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyInt, PyString};
use tidegate::host::{ArgumentKind, LIMITER_OPTIONS, SettingValue};
use tidegate::{Builder, ErrorKind};

use crate::clock::ManualClock;
use crate::convert::{argument, named_seconds, number, owned_text, shown, store_url, timedelta_seconds, unexpected};
use crate::error::{config, raise};
use crate::own_store;
use crate::policy::{named_policies, on_store_error};
use crate::rollout::Rollout;
use crate::store_change;

/// The keyword options, as `tidegate/_options.py` declares them.
pub(crate) struct LimiterOptions<'a, 'py> {
    /// The called function, for messages.
    pub(crate) function: &'static str,
    pub(crate) store: Option<&'a Bound<'py, PyAny>>,
    pub(crate) options: Option<&'a Bound<'py, PyDict>>,
}

impl LimiterOptions<'_, '_> {
    /// A builder with the option `policies` and all others.
    pub(crate) fn with_policies(&self) -> PyResult<Builder> {
        self.apply(self.named_policies(tidegate::Limiter::builder())?)
    }

    /// A builder with the policies of a file, the option `policies`, and all others.
    pub(crate) fn with_file(&self, path: &Path) -> PyResult<Builder> {
        self.apply(self.named_policies(Builder::from_file(path).map_err(raise)?)?)
    }

    fn named_policies(&self, mut builder: Builder) -> PyResult<Builder> {
        let policies = self.options.map(|options| options.get_item("policies")).transpose()?.flatten();
        if let Some(policies) = policies.filter(|policies| !policies.is_none()) {
            for policy in named_policies(&policies)? {
                builder = builder.named(policy).map_err(raise)?;
            }
        }
        Ok(builder)
    }

    fn apply(&self, mut builder: Builder) -> PyResult<Builder> {
        let mut on_change = None;
        for (name, value) in self.options.into_iter().flatten() {
            let name = name.cast::<PyString>()?.to_string_lossy();
            let option = LIMITER_OPTIONS.iter().find(|option| option.declaration.name == name);
            let kind = option.map(|option| option.declaration.kind);
            let setting = match kind {
                Some(ArgumentKind::Policies) => None,
                Some(ArgumentKind::Secret | ArgumentKind::Listener | ArgumentKind::Clock) if value.is_none() => None,
                Some(ArgumentKind::Listener) => {
                    on_change = Some(value);
                    None
                }
                Some(ArgumentKind::Clock) => {
                    let clock: Bound<'_, ManualClock> = argument(&name, &value)?;
                    builder = builder.clock(std::sync::Arc::clone(&clock.get().inner));
                    None
                }
                Some(ArgumentKind::Flag) => Some(SettingValue::Flag(argument(&name, &value)?)),
                Some(ArgumentKind::Text) => {
                    let text = owned_text(&value, ErrorKind::ConfigInvalid, &format!("the {name}"))?;
                    Some(SettingValue::Text(text))
                }
                Some(ArgumentKind::Secret) => Some(SettingValue::Secret(secret(&name, &value)?)),
                Some(ArgumentKind::Duration) => {
                    let seconds = timedelta_seconds(&value).map_or_else(|| number(&name, &value), Ok)?;
                    Some(SettingValue::Duration(named_seconds(&name, seconds)?))
                }
                Some(ArgumentKind::OnStoreError) => {
                    owned_text(&value, ErrorKind::ConfigInvalid, &name)?;
                    Some(SettingValue::OnStoreError(on_store_error(&value).map_err(config)?))
                }
                Some(ArgumentKind::Count) => Some(SettingValue::Count(callers(&name, &value)?)),
                _ => return Err(unexpected(self.function, &name)),
            };
            if let (Some(setting), Some(set)) = (setting, option.and_then(|option| option.set)) {
                builder = set(builder, setting);
            }
        }
        builder = builder.on_change(store_change::listener(on_change.as_ref())?);
        builder = builder.on_warning(crate::log::warning_listener());
        let Some(store) = self.store else { return Ok(builder) };
        if let Ok(rollout) = store.cast::<Rollout>() {
            let Rollout { old, new, percent } = rollout.get();
            return Ok(builder.rollout(old, new, *percent));
        }
        if let Ok(url) = store.cast::<PyString>() {
            return Ok(builder.store(store_url(url)?));
        }
        if own_store::is_store(store)? {
            return Ok(builder.key_value_store(own_store::host_store(store, Some(self.function))?));
        }
        let wrong = |given| {
            PyTypeError::new_err(format!(
                "a store must be a URL such as \"redis://127.0.0.1:6379/0\", a list of URLs, or a KeyValueStore of tidegate.stores, not {}",
                shown(given)
            ))
        };
        // A Redis client can be indexed, so Python would iterate over its numbers and read the keys 0, 1, ….
        if !store.hasattr("__iter__")? {
            return Err(wrong(store));
        }
        let urls = store.try_iter().map_err(|_| wrong(store))?.collect::<PyResult<Vec<_>>>()?;
        let urls = urls.iter().map(|url| store_url(url.cast().map_err(|_| wrong(url))?).map(str::to_owned));
        Ok(builder.stores(urls.collect::<PyResult<Vec<_>>>()?))
    }
}

/// Reads a secret. No message shows it.
fn secret(name: &str, value: &Bound<'_, PyAny>) -> PyResult<Vec<u8>> {
    let Ok(text) = value.cast::<PyString>() else {
        return value.extract().map_err(|_| PyTypeError::new_err(format!("argument '{name}' must be text or bytes")));
    };
    let wrong = |_| config(format!("the {name} has half a surrogate pair: it cannot be written as UTF-8; give bytes"));
    Ok(text.to_str().map_err(wrong)?.as_bytes().to_vec())
}

/// A number of callers.
fn callers(name: &str, value: &Bound<'_, PyAny>) -> PyResult<usize> {
    // Python takes True for a number.
    if !value.is_instance_of::<PyInt>() || value.is_instance_of::<PyBool>() {
        return Err(PyTypeError::new_err(format!("argument '{name}' must be a whole number, not {}", shown(value))));
    }
    value.extract().map_err(|_| config(format!("{name} is {}: it must be a whole number from 1 on", shown(value))))
}
