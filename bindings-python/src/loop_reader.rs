//! Chooses the thread that reads the replies for a limiter. While only one event loop uses the limiter, the loop reads.
//! Otherwise threads of the core read. A loop that reads does not have to be woken for every answer.

#[cfg(target_os = "linux")]
pub(crate) use on_loop::LoopReader;

#[cfg(target_os = "linux")]
mod on_loop {
    use std::os::fd::{AsFd, AsRawFd, RawFd};
    use std::sync::Arc;

    use pyo3::exceptions::PyException;
    use pyo3::intern;
    use pyo3::prelude::*;
    use pyo3::types::{PyList, PyWeakrefMethods, PyWeakrefReference};
    use tidegate::AsyncLimiter;
    use tidegate::host::InheritedMutex;
    use tidegate::host::{ReplyPoller, process_generation};

    use crate::loop_completions::{LoopCompletions, add_reader, running_loop};
    use crate::python_call::PythonCall;
    use crate::reader_choice::ReaderChoice;

    /// A limiter, and the loop that reads for it. All Python objects that share its connections share this.
    pub(crate) struct LoopReader {
        pub(crate) limiter: AsyncLimiter,
        /// By the numbers of their `LoopCompletions`.
        choice: ReaderChoice,
        registration: InheritedMutex<Option<LoopRegistration>>,
    }

    /// The loop that watches the file of a limiter.
    struct LoopRegistration {
        running: Py<PyWeakrefReference>,
        file: RawFd,
        /// The process that made the registration.
        generation: u64,
    }

    impl LoopReader {
        pub(crate) fn new(limiter: AsyncLimiter) -> Arc<Self> {
            Arc::new(Self { limiter, choice: ReaderChoice::new(), registration: InheritedMutex::default() })
        }

        /// Notes that the loop of these completions, which runs on this thread, is about to use the limiter.
        #[inline]
        pub(crate) fn use_from(&self, completions: &Bound<'_, LoopCompletions>) -> PyResult<()> {
            if self.choice.suits(completions.get().number) { Ok(()) } else { self.change(completions) }
        }

        #[cold]
        fn change(&self, completions: &Bound<'_, LoopCompletions>) -> PyResult<()> {
            let (py, number) = (completions.py(), completions.get().number);
            self.choice.change(number, || self.end_registration(py), || self.register(completions))
        }

        /// Makes threads read. Returns true if the registered loop has to stop, and has been told so.
        fn end_registration(&self, py: Python<'_>) -> bool {
            // Python code may run from here on, and other threads with it, so the lock must not be held.
            let before = self.registration.lock().take();
            let other =
                before.filter(|before| before.generation == process_generation()).and_then(|it| it.open_loop(py));
            // A closed loop may still have the file open, so this is for all loops.
            py.detach(|| self.limiter.read_on_threads());
            other.map(|(running, file)| remove_reader(&running, file)).is_some()
        }

        /// Makes the running loop read. Returns false if it cannot.
        fn register(&self, completions: &Bound<'_, LoopCompletions>) -> PyResult<bool> {
            let py = completions.py();
            let Some(poller) = py.detach(|| self.limiter.reply_poller()) else { return Ok(false) };
            let running = running_loop(py)?;
            let registration = LoopRegistration {
                running: PyWeakrefReference::new(&running)?.unbind(),
                file: poller.as_fd().as_raw_fd(),
                generation: process_generation(),
            };
            let callback = Bound::new(py, LoopReaderCallback { poller, completions: completions.clone().unbind() })?;
            let callback = LoopCompletions::continuing(completions, callback.getattr("_on_readable")?)?;
            match add_reader(&running, registration.file, callback) {
                Ok(()) => {
                    let before = self.registration.lock().replace(registration);
                    drop(before);
                    Ok(true)
                }
                // The loop cannot watch files.
                Err(error) if error.is_instance_of::<PyException>(py) => Ok(false),
                Err(interrupted) => Err(interrupted),
            }
        }
    }

    impl Drop for LoopReader {
        fn drop(&mut self) {
            let registration = self.registration.lock().take();
            let Some(registration) = registration.filter(|it| it.generation == process_generation()) else { return };
            Python::try_attach(|py| {
                let _call = PythonCall::begin(py);
                // An exception that is being raised must survive this.
                let raised = PyErr::take(py);
                if let Some((running, file)) = registration.open_loop(py) {
                    remove_reader(&running, file);
                }
                if let Some(raised) = raised {
                    raised.restore(py);
                }
            });
        }
    }

    impl LoopRegistration {
        /// The loop and its file. `None` if the loop is closed, because it has then closed the file.
        fn open_loop<'py>(&self, py: Python<'py>) -> Option<(Bound<'py, PyAny>, RawFd)> {
            let running = self.running.bind(py).upgrade()?;
            let closed = running
                .call_method0(intern!(py, "is_closed"))
                .is_ok_and(|closed| closed.is_truthy().is_ok_and(|closed| closed));
            (!closed).then_some((running, self.file))
        }
    }

    /// Makes the loop stop watching the file. It does so now, or in its next iteration if it runs on another thread. The
    /// loop keeps the file open until then, so the number cannot mean another file. A loop that is closed meanwhile
    /// refuses, and has closed the file.
    fn remove_reader(running: &Bound<'_, PyAny>, file: RawFd) {
        let py = running.py();
        let is_here = running_loop(py).is_ok_and(|here| here.is(running));
        let _ = if is_here {
            running.call_method1(intern!(py, "remove_reader"), (file,))
        } else {
            running
                .getattr(intern!(py, "remove_reader"))
                .and_then(|remove| running.call_method1(intern!(py, "call_soon_threadsafe"), (remove, file)))
        };
    }

    /// Reads the replies when the loop reports some. Only the loop refers to it: closing the loop ends the reading.
    #[pyclass(module = "tidegate", frozen, name = "_LoopReaderCallback")]
    struct LoopReaderCallback {
        poller: ReplyPoller,
        completions: Py<LoopCompletions>,
    }

    #[pymethods]
    impl LoopReaderCallback {
        fn _on_readable<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
            let completions = self.completions.bind(py);
            completions.get().suppress_wakes();
            LoopCompletions::deliver(completions, self.poller.poll_replies())
        }

        fn __traverse__(&self, visit: pyo3::PyVisit<'_>) -> Result<(), pyo3::PyTraverseError> {
            visit.call(&self.completions)
        }
    }
}

/// On other systems, threads of the core read.
#[cfg(not(target_os = "linux"))]
pub(crate) use on_threads::LoopReader;

#[cfg(not(target_os = "linux"))]
mod on_threads {
    use std::sync::Arc;

    use pyo3::prelude::*;
    use tidegate::AsyncLimiter;

    use crate::loop_completions::LoopCompletions;

    pub(crate) struct LoopReader {
        pub(crate) limiter: AsyncLimiter,
    }

    impl LoopReader {
        pub(crate) fn new(limiter: AsyncLimiter) -> Arc<Self> {
            Arc::new(Self { limiter })
        }

        pub(crate) fn use_from(&self, _: &Bound<'_, LoopCompletions>) -> PyResult<()> {
            Ok(())
        }
    }
}
