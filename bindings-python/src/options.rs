//! What `Limiter` and `AsyncLimiter` are made from.

use std::path::Path;

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyString;
use tidegate::Builder;

use crate::clock::ManualClock;
use crate::convert::{named_seconds, shown};
use crate::error::{config, raise};
use crate::policy::{choices, named, to_choice};
use crate::rollout::Rollout;

/// The options that both limiters and both ways to make one have.
pub(crate) struct Options<'a, 'py> {
    pub(crate) store: Option<&'a Bound<'py, PyAny>>,
    pub(crate) prefix: &'a str,
    pub(crate) timeout: f64,
    pub(crate) on_store_error: &'a str,
    pub(crate) deny_cache: f64,
    pub(crate) clock: Option<&'a Bound<'py, ManualClock>>,
}

impl Options<'_, '_> {
    fn on(&self, mut builder: Builder) -> PyResult<Builder> {
        let choice = to_choice(self.on_store_error).ok_or_else(|| {
            config(format!("on_store_error {:?} is no choice: use one of {}", self.on_store_error, choices()))
        })?;
        builder = builder.prefix(self.prefix).on_store_error(choice);
        builder = builder.timeout(named_seconds("timeout", self.timeout)?);
        builder = builder.deny_cache(named_seconds("deny_cache", self.deny_cache)?);
        if let Some(clock) = self.clock {
            builder = builder.clock(std::sync::Arc::clone(&clock.get().inner));
        }
        builder = builder.on_change(crate::log::listener());
        let Some(store) = self.store else { return Ok(builder) };
        if let Ok(rollout) = store.cast::<Rollout>() {
            let Rollout { old, new, percent } = rollout.get();
            return Ok(builder.rollout(old, new, *percent));
        }
        if let Ok(url) = store.cast::<PyString>() {
            return Ok(builder.store(url.to_str()?));
        }
        let wrong = |given| PyTypeError::new_err(format!("a store is a URL or a list of URLs, not {}", shown(given)));
        let urls = store.try_iter().map_err(|_| wrong(store))?.collect::<PyResult<Vec<_>>>()?;
        let urls = urls.iter().map(|url| url.extract::<String>().map_err(|_| wrong(url)));
        Ok(builder.stores(urls.collect::<PyResult<Vec<_>>>()?))
    }

    pub(crate) fn policies(&self, policies: Option<&Bound<'_, PyAny>>) -> PyResult<Builder> {
        let mut builder = tidegate::Limiter::builder();
        if let Some(policies) = policies {
            let wrong = || PyTypeError::new_err(format!("policies is a map by name, not {}", shown(policies)));
            for item in policies.call_method0("items").map_err(|_| wrong())?.try_iter()? {
                let (name, policy): (Bound<'_, PyAny>, Bound<'_, PyAny>) = item?.extract()?;
                let name = name.extract::<String>().map_err(|_| {
                    crate::error::policy(format!("a policy's name is text (str), not {}", shown(&name)))
                })?;
                builder = builder.named(named(&name, &policy)?).map_err(raise)?;
            }
        }
        self.on(builder)
    }

    pub(crate) fn file(&self, path: &Path) -> PyResult<Builder> {
        self.on(Builder::from_file(path).map_err(raise)?)
    }
}
