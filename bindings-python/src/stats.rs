//! The stats and counters of a limiter as dicts, and the metrics.

use pyo3::prelude::*;
use tidegate::host::{counters_json, metrics_json, stats_json};
use tidegate::{Counters, Stats};

/// The stats as a dict.
pub(crate) fn stats<'py>(py: Python<'py>, stats: &Stats) -> PyResult<Bound<'py, PyAny>> {
    read(py, &stats_json(stats, str::to_owned))
}

/// The counters as a dict.
pub(crate) fn counters<'py>(py: Python<'py>, counters: &Counters) -> PyResult<Bound<'py, PyAny>> {
    read(py, &counters_json(counters, str::to_owned))
}

fn read<'py>(py: Python<'py>, json: &str) -> PyResult<Bound<'py, PyAny>> {
    py.import("json")?.call_method1("loads", (json,))
}

/// Every metric, as JSON.
#[pyfunction]
pub(crate) fn metrics() -> String {
    metrics_json(str::to_owned)
}
