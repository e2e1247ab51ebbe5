//! The options of `Limiter` and `AsyncLimiter`, for both ways to make one.

use std::path::Path;

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyInt, PyString};
use tidegate::{Builder, ErrorKind, OnStoreError};

use crate::clock::ManualClock;
use crate::convert::{named_seconds, number, owned_text, shown, store_url, timedelta_seconds};
use crate::error::{config, raise};
use crate::policy::{choices, named_policies, to_choice};
use crate::rollout::Rollout;
use crate::store_change;

/// The keyword options, as `tidegate/_options.py` declares them.
pub(crate) struct LimiterOptions<'a, 'py> {
    /// The function that was called, for messages.
    pub(crate) function: &'static str,
    pub(crate) store: Option<&'a Bound<'py, PyAny>>,
    pub(crate) options: Option<&'a Bound<'py, PyDict>>,
}

const POLICIES: &str = "policies";

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
        let policies = self.options.map(|options| options.get_item(POLICIES)).transpose()?.flatten();
        if let Some(policies) = policies.filter(|policies| !policies.is_none()) {
            for policy in named_policies(&policies)? {
                builder = builder.named(policy).map_err(raise)?;
            }
        }
        Ok(builder)
    }

    fn apply(&self, mut builder: Builder) -> PyResult<Builder> {
        let (mut timeout, mut deny_cache) = (0.25, 1.0);
        let (mut prefix, mut choice) = ("tg".to_owned(), OnStoreError::Local);
        let mut on_change = None;
        for (name, value) in self.options.into_iter().flatten() {
            match &*name.cast::<PyString>()?.to_string_lossy() {
                POLICIES => {}
                "prefix" => prefix = owned_text(&value, ErrorKind::ConfigInvalid, "the prefix")?,
                "key_secret" => builder = with_secret(builder, &value)?,
                "timeout" => timeout = length("timeout", &value)?,
                "on_store_error" => {
                    let word = owned_text(&value, ErrorKind::ConfigInvalid, "on_store_error")?;
                    choice = to_choice(&word).ok_or_else(|| {
                        config(format!("on_store_error is one of {}, not {}", choices(), shown(&value)))
                    })?;
                }
                "deny_cache" => deny_cache = length("deny_cache", &value)?,
                "max_waiting" => builder = builder.max_waiting(callers("max_waiting", &value)?),
                "max_waiting_per_key" => {
                    builder = builder.max_waiting_per_key(callers("max_waiting_per_key", &value)?);
                }
                "on_change" => on_change = (!value.is_none()).then_some(value),
                "clock" => {
                    if let Some(clock) = argument::<Option<Bound<'_, ManualClock>>>("clock", &value)? {
                        builder = builder.clock(std::sync::Arc::clone(&clock.get().inner));
                    }
                }
                unknown => {
                    let function = self.function;
                    let message = format!("{function} got an unexpected keyword argument '{unknown}'");
                    return Err(PyTypeError::new_err(message));
                }
            }
        }
        builder = builder.prefix(&prefix).on_store_error(choice);
        builder = builder.timeout(named_seconds("timeout", timeout)?);
        builder = builder.deny_cache(named_seconds("deny_cache", deny_cache)?);
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
        let wrong = |given| {
            PyTypeError::new_err(format!(
                "a store is a URL such as \"redis://127.0.0.1:6379/0\", or a list of URLs, not {}",
                shown(given)
            ))
        };
        // A client of Redis can be indexed, and Python would iterate over its numbers: it would read the keys 0, 1, ….
        if !store.hasattr("__iter__")? {
            return Err(wrong(store));
        }
        let urls = store.try_iter().map_err(|_| wrong(store))?.collect::<PyResult<Vec<_>>>()?;
        let urls = urls.iter().map(|url| store_url(url.cast().map_err(|_| wrong(url))?).map(str::to_owned));
        Ok(builder.stores(urls.collect::<PyResult<Vec<_>>>()?))
    }
}

/// No message shows what was given.
fn with_secret(builder: Builder, value: &Bound<'_, PyAny>) -> PyResult<Builder> {
    if value.is_none() {
        return Ok(builder);
    }
    let bytes = match value.cast::<PyString>() {
        Ok(text) => text
            .to_str()
            .map_err(|_| config("the key_secret has half a surrogate pair: it cannot be written as UTF-8; give bytes"))?
            .as_bytes()
            .to_vec(),
        Err(_) => value.extract().map_err(|_| PyTypeError::new_err("argument 'key_secret': a text or bytes"))?,
    };
    Ok(builder.key_secret(bytes))
}

/// A number of callers.
fn callers(name: &str, value: &Bound<'_, PyAny>) -> PyResult<usize> {
    // True is a number to Python.
    if !value.is_instance_of::<PyInt>() || value.is_instance_of::<PyBool>() {
        return Err(PyTypeError::new_err(format!("argument '{name}': a whole number, not {}", shown(value))));
    }
    value.extract().map_err(|_| config(format!("{name} is {}: it must be a whole number from 1 on", shown(value))))
}

/// A length of time, in seconds.
fn length(name: &str, value: &Bound<'_, PyAny>) -> PyResult<f64> {
    timedelta_seconds(value).map_or_else(|| number(name, value), Ok)
}

/// The value of an option. A wrong type raises as it does for any argument.
fn argument<'py, T>(name: &str, value: &Bound<'py, PyAny>) -> PyResult<T>
where
    T: for<'a> FromPyObject<'a, 'py>,
{
    value
        .extract()
        .map_err(Into::into)
        .map_err(|error: PyErr| PyTypeError::new_err(format!("argument '{name}': {}", error.value(value.py()))))
}
