//! Warnings, for Python's `logging`: the logger `tidegate`.

use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::python_call::PythonCall;

/// Logs the warnings of a limiter.
pub(crate) fn warning_listener() -> Arc<dyn Fn(&str) + Send + Sync> {
    Arc::new(|sentence| {
        let sentence = sentence.to_owned();
        // A separate thread, because the calling thread must not wait for the interpreter or for log handlers. Warnings are
        // rare. If no thread starts, the message is lost.
        let thread = std::thread::Builder::new().name("tidegate-log".to_owned());
        drop(thread.spawn(move || Python::try_attach(|py| write(py, "warning", &sentence))));
    })
}

fn logger(py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
    py.import("logging")?.call_method1("getLogger", ("tidegate",))
}

/// Logs a sentence.
pub(crate) fn write(py: Python<'_>, level: &str, sentence: &str) {
    let _call = PythonCall::begin(py);
    let logged = logger(py).and_then(|logger| logger.call_method1(level, ("%s", sentence)));
    if let Err(error) = logged {
        error.write_unraisable(py, None);
    }
}

/// Logs an exception of user code, with its traceback.
pub(crate) fn write_exception(py: Python<'_>, sentence: &str, error: PyErr) {
    let logged = logger(py).and_then(|logger| {
        let options = PyDict::new(py);
        options.set_item("exc_info", error.into_value(py))?;
        logger.call_method("error", ("%s", sentence), Some(&options))
    });
    if let Err(error) = logged {
        error.write_unraisable(py, None);
    }
}
