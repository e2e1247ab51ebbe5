//! Who reads what Redis says to a limiter: the event loop that asks it, as long as it is the only one, or the core's
//! threads. A loop that reads itself is spared a wake-up for each answer.

#[cfg(target_os = "linux")]
pub(crate) use by_loop::Reading;

#[cfg(target_os = "linux")]
mod by_loop {
    use std::os::fd::{AsFd, AsRawFd, RawFd};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    use parking_lot::Mutex;
    use pyo3::exceptions::PyException;
    use pyo3::intern;
    use pyo3::prelude::*;
    use pyo3::types::{PyWeakrefMethods, PyWeakrefReference};
    use tidegate::AsyncLimiter;
    use tidegate::host::{HostAsyncLimiter, ReplyPoller};

    use crate::fork::generation;
    use crate::inbox::{Inbox, add_reader, running_loop};

    /// Nobody asked yet.
    const NOBODY: u64 = 0;
    /// Threads do, from now on.
    const THREADS: u64 = u64::MAX;

    /// A limiter and who reads for it. The objects of both kinds that share its connections share one.
    pub(crate) struct Reading {
        pub(crate) limiter: AsyncLimiter,
        /// The number of the inbox whose loop reads.
        reader: AtomicU64,
        place: Mutex<Option<Place>>,
    }

    /// Where a loop was asked to read.
    struct Place {
        running: Py<PyWeakrefReference>,
        file: RawFd,
        generation: u64,
    }

    impl Reading {
        pub(crate) fn new(limiter: AsyncLimiter) -> Arc<Self> {
            Arc::new(Self { limiter, reader: AtomicU64::new(NOBODY), place: Mutex::default() })
        }

        /// The loop of this inbox, which runs on this thread, asks the limiter.
        #[inline]
        pub(crate) fn asked_by(&self, inbox: &Bound<'_, Inbox>) -> PyResult<()> {
            let reader = self.reader.load(Ordering::Relaxed);
            if reader == inbox.get().number || reader == THREADS { Ok(()) } else { self.change(inbox) }
        }

        #[cold]
        fn change(&self, inbox: &Bound<'_, Inbox>) -> PyResult<()> {
            let py = inbox.py();
            self.reader.store(THREADS, Ordering::Relaxed);
            // Python's code may run, and other threads with it: not under the lock.
            let before = self.place.lock().take();
            let other = before.filter(|place| place.generation == generation()).and_then(|place| place.open(py));
            // Also one that was closed may not have let go yet.
            py.detach(|| self.limiter.read_on_threads());
            if let Some((running, file)) = other {
                // The answers of one loop are not to depend on when another finds the time to look.
                leave(&running, file);
                return Ok(());
            }
            let Some(watch) = py.detach(|| self.limiter.reply_poller()) else { return Ok(()) };
            let running = running_loop(py)?;
            let place = Place {
                running: PyWeakrefReference::new(&running)?.unbind(),
                file: watch.as_fd().as_raw_fd(),
                generation: generation(),
            };
            let watching = Bound::new(py, Watching { watch, inbox: inbox.clone().unbind() })?;
            match add_reader(&running, place.file, watching.getattr("_look")?) {
                Ok(()) => {
                    *self.place.lock() = Some(place);
                    self.reader.store(inbox.get().number, Ordering::Relaxed);
                    Ok(())
                }
                // Not every loop can.
                Err(error) if error.is_instance_of::<PyException>(py) => Ok(()),
                Err(interrupted) => {
                    self.reader.store(NOBODY, Ordering::Relaxed);
                    Err(interrupted)
                }
            }
        }
    }

    impl Drop for Reading {
        fn drop(&mut self) {
            let Some(place) = self.place.get_mut().take().filter(|place| place.generation == generation()) else {
                return;
            };
            Python::try_attach(|py| {
                // Whatever is being raised while this goes away must not be lost.
                let raised = PyErr::take(py);
                if let Some((running, file)) = place.open(py) {
                    leave(&running, file);
                }
                if let Some(raised) = raised {
                    raised.restore(py);
                }
            });
        }
    }

    impl Place {
        /// The loop and its file, unless it is closed and has let go of that.
        fn open<'py>(&self, py: Python<'py>) -> Option<(Bound<'py, PyAny>, RawFd)> {
            let running = self.running.bind(py).upgrade()?;
            let closed = running
                .call_method0(intern!(py, "is_closed"))
                .is_ok_and(|closed| closed.is_truthy().is_ok_and(|closed| closed));
            (!closed).then_some((running, self.file))
        }
    }

    /// The loop is to read no more: at once where it runs on this thread, else when it comes to that. The file is its own
    /// until then, so the number cannot mean another. It says no when it is closed meanwhile, and has let go by that.
    fn leave(running: &Bound<'_, PyAny>, file: RawFd) {
        let py = running.py();
        let here = running_loop(py).is_ok_and(|here| here.is(running));
        let _ = if here {
            running.call_method1(intern!(py, "remove_reader"), (file,))
        } else {
            running
                .getattr(intern!(py, "remove_reader"))
                .and_then(|remove| running.call_method1(intern!(py, "call_soon_threadsafe"), (remove, file)))
        };
    }

    /// What a loop calls when there is something to read. Only the loop holds it: who closes the loop ends the reading.
    #[pyclass(module = "tidegate", frozen, name = "_Watching")]
    struct Watching {
        watch: ReplyPoller,
        inbox: Py<Inbox>,
    }

    #[pymethods]
    impl Watching {
        fn _look(&self, py: Python<'_>) {
            let inbox = self.inbox.bind(py);
            inbox.get().reads();
            Inbox::settle_all(inbox, self.watch.poll_replies());
        }

        fn __traverse__(&self, visit: pyo3::PyVisit<'_>) -> Result<(), pyo3::PyTraverseError> {
            visit.call(&self.inbox)
        }
    }
}

/// Elsewhere threads read.
#[cfg(not(target_os = "linux"))]
pub(crate) use by_threads::Reading;

#[cfg(not(target_os = "linux"))]
mod by_threads {
    use std::sync::Arc;

    use pyo3::prelude::*;
    use tidegate::AsyncLimiter;

    use crate::inbox::Inbox;

    pub(crate) struct Reading {
        pub(crate) limiter: AsyncLimiter,
    }

    impl Reading {
        pub(crate) fn new(limiter: AsyncLimiter) -> Arc<Self> {
            Arc::new(Self { limiter })
        }

        pub(crate) fn asked_by(&self, _: &Bound<'_, Inbox>) -> PyResult<()> {
            Ok(())
        }
    }
}
