//! The stats of a limiter as a dict, for exporters of metrics.

use pyo3::prelude::*;
use pyo3::types::PyDict;
use tidegate::{Histogram, PolicyStats, Stats};

pub(crate) use crate::counters::counters;

/// The stats, in the shape that all languages share.
pub(crate) fn stats<'py>(py: Python<'py>, stats: &Stats) -> PyResult<Bound<'py, PyDict>> {
    let policies = PyDict::new(py);
    for (name, of_policy) in &stats.policies {
        policies.set_item(name, policy(py, of_policy)?)?;
    }
    let store = PyDict::new(py);
    store.set_item("calls", stats.store.calls)?;
    store.set_item("latency", histogram(py, &stats.store.latency)?)?;
    store.set_item("batch_size", histogram(py, &stats.store.batch_size)?)?;
    store.set_item("errors", stats.store.errors.clone())?;
    let breaker = PyDict::new(py);
    for (url, condition) in &stats.breaker {
        breaker.set_item(url, condition.name())?;
    }
    let dict = PyDict::new(py);
    dict.set_item("policies", policies)?;
    dict.set_item("store", store)?;
    dict.set_item("breaker", breaker)?;
    dict.set_item("counters", counters(py, &stats.counters)?)?;
    Ok(dict)
}

fn policy<'py>(py: Python<'py>, stats: &PolicyStats) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item("allowed", stats.allowed)?;
    dict.set_item("denied", stats.denied)?;
    dict.set_item("unavailable", stats.unavailable)?;
    dict.set_item("near_limit", stats.near_limit)?;
    dict.set_item("shadow_denied", stats.shadow_denied)?;
    let sources = PyDict::new(py);
    for (source, count) in stats.sources.by_source() {
        sources.set_item(source.name(), count)?;
    }
    dict.set_item("sources", sources)?;
    Ok(dict)
}

fn histogram<'py>(py: Python<'py>, histogram: &Histogram) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item("bounds", &histogram.bounds)?;
    dict.set_item("counts", &histogram.counts)?;
    dict.set_item("sum", histogram.sum)?;
    dict.set_item("count", histogram.count)?;
    Ok(dict)
}
