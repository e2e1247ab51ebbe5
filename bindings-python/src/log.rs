//! What happens to stores, for Python's `logging`.

use std::sync::Arc;

use pyo3::prelude::*;
use tidegate::{StoreChange, StoreState};

/// Logs to the logger `tidegate`: a lost store as a warning, one that is back as information.
pub(crate) fn listener() -> Arc<dyn Fn(&StoreChange) + Send + Sync> {
    Arc::new(|change| {
        let level = if matches!(change.state, StoreState::Back) { "info" } else { "warning" };
        let sentence = change.sentence.clone();
        // On a thread of its own: whoever noticed must wait neither for the interpreter's lock nor for handlers. Stores
        // are lost and found rarely. Without a thread nothing is logged, and nothing else goes wrong.
        let told = std::thread::Builder::new().name("tidegate-log".to_owned()).spawn(move || {
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
        drop(told);
    })
}
