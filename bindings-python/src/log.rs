//! Lost and returned stores, and warnings, for Python's `logging`.

use std::sync::Arc;

use pyo3::prelude::*;
use tidegate::{StoreChange, StoreState};

/// Logs to the logger `tidegate`: a lost store as a warning, a returned one as information.
pub(crate) fn listener() -> Arc<dyn Fn(&StoreChange) + Send + Sync> {
    Arc::new(|change| {
        log(if matches!(change.state, StoreState::Back) { "info" } else { "warning" }, change.sentence.clone());
    })
}

/// Logs warnings to the same logger.
pub(crate) fn warning_listener() -> Arc<dyn Fn(&str) + Send + Sync> {
    Arc::new(|sentence| log("warning", sentence.to_owned()))
}

fn log(level: &'static str, sentence: String) {
    // On a thread of its own: the calling thread must not wait for the interpreter or for handlers of the log. There is
    // rarely something to log. If no thread can be started, the message is not logged.
    let spawned = std::thread::Builder::new().name("tidegate-log".to_owned()).spawn(move || {
        Python::try_attach(|py| {
            let logged = py.import("logging").and_then(|logging| {
                let logger = logging.call_method1("getLogger", ("tidegate",))?;
                logger.call_method1(level, ("%s", sentence))
            });
            if let Err(error) = logged {
                error.write_unraisable(py, None);
            }
        });
    });
    drop(spawned);
}
