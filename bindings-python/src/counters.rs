//! The counters of a limiter as a dict, for exporters of metrics.

use pyo3::prelude::*;
use pyo3::types::PyDict;

/// The counters, under the names that all languages share.
pub(crate) fn counters<'py>(py: Python<'py>, counters: &tidegate::Counters) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    let numbers = [
        ("asked", counters.asked),
        ("deny_cache", counters.deny_cache),
        ("lease", counters.lease),
        ("fallback_open", counters.fallback_open),
        ("fallback_closed", counters.fallback_closed),
        ("fallback_local", counters.fallback_local),
        ("lost", counters.lost),
        ("withheld", counters.withheld),
        ("store_unavailable", counters.store_unavailable),
        ("store_timeout", counters.store_timeout),
        ("store_rejected", counters.store_rejected),
        ("forgotten_denials", counters.forgotten_denials),
        ("hold_renewals_failed", counters.hold_renewals_failed),
        ("acquires_refused", counters.acquires_refused),
        ("holds_lost", counters.holds_lost),
    ];
    numbers.iter().try_for_each(|(name, number)| dict.set_item(name, number))?;
    Ok(dict)
}
