//! The thread that tells functions of Python what threads of the core have noticed.

use std::collections::VecDeque;
use std::process;
use std::sync::Arc;

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use tidegate::host::InheritedMutex;

use crate::convert::shown;
use crate::log;
use crate::python_call::PythonCall;

/// The most events that wait for Python. Beyond that, new ones are left out.
const MAX_WAITING: usize = 10_000;

/// A listener in the form that the core needs.
pub(crate) type Listener<T> = Arc<dyn Fn(&T) + Send + Sync>;

/// Tells events one after the other. A separate thread does this and lives while there are events, because the thread that noticed one
/// must not wait for the interpreter or for user code.
pub(crate) struct Teller<T> {
    untold: Arc<InheritedMutex<Untold<T>>>,
    told: Arc<Told<T>>,
}

/// The function, and the way to tell it.
struct Told<T> {
    function: Option<Py<PyAny>>,
    tell: fn(Python<'_>, Option<&Py<PyAny>>, T),
}

/// The events that Python has not heard of yet, and the process with the thread that tells them.
struct Untold<T> {
    events: VecDeque<T>,
    told_by: Option<u32>,
}

impl<T> Default for Untold<T> {
    fn default() -> Self {
        Self { events: VecDeque::new(), told_by: None }
    }
}

impl<T: Send + 'static> Teller<T> {
    /// Refuses an argument of that name that is no function.
    pub(crate) fn new(
        name: &str,
        given: Option<&Bound<'_, PyAny>>,
        tell: fn(Python<'_>, Option<&Py<PyAny>>, T),
    ) -> PyResult<Self> {
        if let Some(given) = given.filter(|given| !given.is_callable()) {
            return Err(PyTypeError::new_err(format!("argument '{name}' must be a function, not {}", shown(given))));
        }
        let function = given.map(|given| given.clone().unbind());
        Ok(Self { untold: Arc::default(), told: Arc::new(Told { function, tell }) })
    }

    pub(crate) fn note(&self, event: T) {
        let mut waiting = self.untold.lock();
        if waiting.events.len() < MAX_WAITING {
            waiting.events.push_back(event);
        }
        // The thread of a parent process does not exist in its child.
        if waiting.told_by == Some(process::id()) {
            return;
        }
        let (untold, told) = (Arc::clone(&self.untold), Arc::clone(&self.told));
        let thread = std::thread::Builder::new().name("tidegate-log".to_owned());
        // If no thread starts, the next event tries again.
        waiting.told_by = thread.spawn(move || tell_all(&untold, &told)).is_ok().then(process::id);
    }
}

fn tell_all<T>(untold: &InheritedMutex<Untold<T>>, told: &Told<T>) {
    loop {
        let event = {
            let mut waiting = untold.lock();
            let Some(event) = waiting.events.pop_front() else {
                waiting.told_by = None;
                return;
            };
            event
        };
        // When the process ends, there is no interpreter any more.
        Python::try_attach(|py| (told.tell)(py, told.function.as_ref(), event));
    }
}

/// Calls a function of the user, if there is one, with what `make` returns. An exception is logged.
pub(crate) fn tell<T: pyo3::PyTypeInfo>(
    py: Python<'_>,
    name: &str,
    function: Option<&Py<PyAny>>,
    make: impl FnOnce() -> PyResult<Py<T>>,
) {
    let Some(function) = function else { return };
    let _call = PythonCall::begin(py);
    if let Err(error) = make().and_then(|event| function.call1(py, (event,))) {
        log::write_exception(py, &format!("{name} raised an exception"), error);
    }
}
