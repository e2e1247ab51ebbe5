//! Where an event loop finds the answers it waits for: one inbox for each loop, kept by the loop itself, so that both go
//! together.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use pyo3::exceptions::PyAttributeError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyList;
use tidegate::Result;
use tidegate::host::{BatchGuard, CompletionQueue, Outcome, Task, Wake, post_task};

use crate::attempt::Attempt;
use crate::decision::Decision;
use crate::error::{RateLimited, raise};
use crate::fork::generation;
use crate::hold::AsyncHold;
use crate::reading::Reading;
use crate::waker::Waker;

/// The answers that have come and were not looked at. Threads of the core put them here; no Python object is touched.
struct Letters {
    list: Mutex<List>,
    waker: Waker,
}

#[derive(Default)]
struct List {
    answers: Vec<(u64, Result<Outcome>)>,
    /// Of those nobody waits for any more, and that will come all the same.
    unwanted: HashSet<u64>,
}

impl Wake for Letters {
    fn wake(&self) {
        self.waker.wake();
    }
}

impl CompletionQueue for Letters {
    fn deliver(&self, ticket: u64, outcome: Result<Outcome>) {
        let mut list = self.list.lock();
        if !list.unwanted.is_empty() && list.unwanted.remove(&ticket) {
            // A hold among them is given back by its drop, which asks the store: not under the lock.
            drop(list);
            drop(outcome);
            return;
        }
        list.answers.push((ticket, outcome));
    }
}

impl Letters {
    /// Nobody waits for this answer any more. `comes` says that it may still come.
    fn unwanted(&self, ticket: u64, comes: bool) {
        let mut list = self.list.lock();
        match list.answers.iter().position(|(number, _)| *number == ticket) {
            Some(index) => {
                let answer = list.answers.swap_remove(index);
                drop(list);
                drop(answer);
            }
            None if comes => {
                list.unwanted.insert(ticket);
            }
            None => {}
        }
    }
}

/// What an awaited call is to become.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Want {
    Decision,
    Nothing,
    Attempts,
    Hold,
}

impl Want {
    pub(crate) fn object(self, py: Python<'_>, outcome: Outcome) -> PyResult<Py<PyAny>> {
        Ok(match (self, outcome) {
            (Self::Decision, Outcome::Decision(decision)) => Py::new(py, Decision::from(decision))?.into_any(),
            (Self::Hold, Outcome::Hold(hold)) => Py::new(py, AsyncHold::new(py, hold)?)?.into_any(),
            (Self::Hold, Outcome::Decision(decision)) => {
                return Err(RateLimited::new_err((Py::new(py, Decision::from(decision))?,)));
            }
            (Self::Attempts, Outcome::Attempts(attempts)) => attempts_list(py, attempts)?.into_any().unbind(),
            _ => py.None(),
        })
    }
}

pub(crate) fn attempts_list(py: Python<'_>, attempts: Vec<tidegate::Attempt>) -> PyResult<Bound<'_, PyList>> {
    let attempts = attempts.into_iter().map(|inner| Attempt { inner }.into_pyobject(py));
    PyList::new(py, attempts.collect::<PyResult<Vec<_>>>()?)
}

/// A future of the loop's, and what it is to become.
struct Waiter {
    future: Py<PyAny>,
    want: Want,
    /// Whom it asked, where nobody else may keep that.
    _limiter: Option<Arc<Reading>>,
}

/// Who waits: a future of the loop's, by ticket. A ticket's upper half tells apart those who had the same place.
#[derive(Default)]
struct Waiting {
    places: Vec<(u32, Option<Waiter>)>,
    free: Vec<u32>,
}

impl Waiting {
    /// A ticket for somebody who is still to come.
    fn reserve(&mut self) -> u64 {
        let place = self.free.pop().unwrap_or_else(|| {
            self.places.push((0, None));
            self.places.len() as u32 - 1
        });
        u64::from(self.places[place as usize].0) << 32 | u64::from(place)
    }

    fn put(&mut self, ticket: u64, waiter: Waiter) {
        self.places[ticket as u32 as usize].1 = Some(waiter);
    }

    /// Who has the ticket; it is worth nothing any more.
    fn take(&mut self, ticket: u64) -> Option<Waiter> {
        let place = self.places.get_mut(ticket as u32 as usize)?;
        if u64::from(place.0) != ticket >> 32 {
            return None;
        }
        place.0 = place.0.wrapping_add(1);
        self.free.push(ticket as u32);
        place.1.take()
    }
}

/// See the module. Python sees it only as what a loop calls.
#[pyclass(module = "tidegate", frozen, name = "_Inbox")]
pub(crate) struct Inbox {
    letters: Arc<Letters>,
    /// The same, as the core takes it.
    home: Arc<dyn CompletionQueue>,
    waiting: Mutex<Waiting>,
    /// Those who were answered together mostly ask again in the same turn of the loop: they leave together, where the first
    /// would leave alone and the others wait for its answer.
    company: Mutex<Option<BatchGuard>>,
    create_future: Py<PyAny>,
    call_soon: Py<PyAny>,
    generation: u64,
    /// Never that of another.
    pub(crate) number: u64,
}

/// The loop calls that when there is something to read. Not in the context of who happened to ask first, which would live
/// as long as the loop with all that is in it.
pub(crate) fn add_reader<'py>(
    running: &Bound<'py, PyAny>,
    file: impl IntoPyObject<'py>,
    look: Bound<'py, PyAny>,
) -> PyResult<()> {
    let context = running.py().import("contextvars")?.getattr("Context")?.call0()?;
    context.call_method1("run", (running.getattr("add_reader")?, file, look)).map(drop)
}

pub(crate) fn running_loop(py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
    static GET_RUNNING_LOOP: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    GET_RUNNING_LOOP.import(py, "asyncio", "get_running_loop")?.call0()
}

impl Inbox {
    /// The inbox of the loop that runs on this thread.
    #[inline]
    pub(crate) fn of_running_loop(py: Python<'_>) -> PyResult<Bound<'_, Self>> {
        let running = running_loop(py)?;
        match running.getattr(intern!(py, "_tidegate_inbox")) {
            Ok(inbox) => match inbox.cast_into::<Self>() {
                Ok(inbox) if inbox.get().generation == generation() => Ok(inbox),
                // The parent's, in a child that was forked.
                _ => Self::open(&running),
            },
            Err(error) if error.is_instance_of::<PyAttributeError>(py) => Self::open(&running),
            Err(error) => Err(error),
        }
    }

    #[cold]
    fn open<'py>(running: &Bound<'py, PyAny>) -> PyResult<Bound<'py, Self>> {
        static NUMBERS: AtomicU64 = AtomicU64::new(1);
        let py = running.py();
        let make = |waker| {
            let letters = Arc::new(Letters { list: Mutex::default(), waker });
            let home: Arc<dyn CompletionQueue> = letters.clone();
            let create_future = running.getattr("create_future")?.unbind();
            let number = NUMBERS.fetch_add(1, Ordering::Relaxed);
            let (waiting, company) = (Mutex::default(), Mutex::default());
            let call_soon = running.getattr("call_soon")?.unbind();
            let generation = generation();
            Bound::new(py, Self { letters, home, waiting, company, create_future, call_soon, generation, number })
        };
        let watched = Waker::file().ok().map(|waker| -> PyResult<_> {
            let inbox = make(waker)?;
            let descriptor = inbox.get().letters.waker.descriptor();
            add_reader(running, descriptor, inbox.getattr("_look")?)?;
            Ok(inbox)
        });
        let inbox = match watched {
            Some(Ok(inbox)) => inbox,
            Some(Err(error)) if !error.is_instance_of::<pyo3::exceptions::PyNotImplementedError>(py) => {
                return Err(error);
            }
            _ => {
                let inbox = make(Waker::call(running.getattr("call_soon_threadsafe")?.unbind()))?;
                inbox.get().letters.waker.calls(inbox.getattr("_look")?.unbind());
                inbox
            }
        };
        running.setattr("_tidegate_inbox", &inbox)?;
        Ok(inbox)
    }

    /// Asks with a ticket; when no answer is at hand, a future for it.
    #[inline]
    pub(crate) fn ask<T>(
        &self,
        py: Python<'_>,
        limiter: Arc<Reading>,
        want: Want,
        ask: impl FnOnce(&tidegate::AsyncLimiter, u64, &Arc<dyn CompletionQueue>, Option<&BatchGuard>) -> Option<T>,
    ) -> PyResult<Asked<T>> {
        let ticket = self.waiting.lock().reserve();
        if let Some(answer) = self.in_company(|batch| ask(&limiter.limiter, ticket, &self.home, batch)) {
            self.waiting.lock().take(ticket);
            return Ok(Asked::Answered(answer));
        }
        // Its answer is looked at by this thread, so it cannot be there before the future is.
        let future = self.create_future.bind(py).call0()?;
        let waiter = Waiter { future: future.clone().unbind(), want, _limiter: Some(limiter) };
        self.waiting.lock().put(ticket, waiter);
        Ok(Asked::Waits(future.unbind()))
    }

    #[inline]
    fn in_company<R>(&self, ask: impl FnOnce(Option<&BatchGuard>) -> R) -> R {
        let Some(company) = self.company.lock().take() else { return ask(None) };
        let answer = ask(Some(&company));
        *self.company.lock() = Some(company);
        answer
    }

    /// So many were answered: they may ask again in company until `_depart`, which the loop calls after them.
    fn gather(slf: &Bound<'_, Self>, company: BatchGuard, count: usize) -> PyResult<()> {
        let inbox = slf.get();
        if inbox.company.lock().is_none() {
            let depart = slf.getattr(intern!(slf.py(), "_depart"))?;
            inbox.call_soon.bind(slf.py()).call1((depart,))?;
        }
        company.expect(count);
        let before = inbox.company.lock().replace(company);
        drop(before);
        Ok(())
    }

    /// A future for what a task of the core brings. Cancelling the future cancels the task, unless the task `must_end`:
    /// then what it brings is given up when it comes.
    pub(crate) fn start(
        slf: &Bound<'_, Self>,
        want: Want,
        must_end: bool,
        task: impl Future<Output = Result<Outcome>> + Send + 'static,
    ) -> PyResult<Py<PyAny>> {
        let (py, inbox) = (slf.py(), slf.get());
        let future = inbox.create_future.bind(py).call0()?;
        let ticket = inbox.waiting.lock().reserve();
        let task = post_task(ticket, &inbox.home, task).map_err(raise)?;
        inbox.waiting.lock().put(ticket, Waiter { future: future.clone().unbind(), want, _limiter: None });
        let given_up = GivenUp { inbox: slf.clone().unbind(), ticket, task: (!must_end).then_some(task) };
        future.call_method1(intern!(py, "add_done_callback"), (Bound::new(py, given_up)?,))?;
        Ok(future.unbind())
    }

    /// The loop reads what a server says: until `settle_all` its thread need not be told of what it finds.
    pub(crate) fn reads(&self) {
        self.letters.waker.hush();
    }

    /// Gives those who wait what has come. Who asks next leaves with the batch.
    pub(crate) fn settle_all(slf: &Bound<'_, Self>, batch: BatchGuard) {
        let (py, inbox) = (slf.py(), slf.get());
        inbox.letters.waker.looks_itself();
        let answers = std::mem::take(&mut inbox.letters.list.lock().answers);
        let count = answers.len();
        for (ticket, outcome) in answers {
            let who = inbox.waiting.lock().take(ticket);
            let Some(Waiter { future, want, _limiter }) = who else { continue };
            if let Err(error) = Self::settle(py, future.bind(py), want, outcome) {
                error.write_unraisable(py, None);
            }
        }
        if count > 1
            && let Err(error) = Self::gather(slf, batch, count)
        {
            error.write_unraisable(py, None);
        }
    }

    fn settle(py: Python<'_>, future: &Bound<'_, PyAny>, want: Want, outcome: Result<Outcome>) -> PyResult<()> {
        let told = match outcome.map_err(raise).and_then(|outcome| want.object(py, outcome)) {
            Ok(object) => future.call_method1(intern!(py, "set_result"), (object,)),
            Err(error) => future.call_method1(intern!(py, "set_exception"), (error.into_value(py),)),
        };
        match told {
            // Cancelled before: what came is dropped, and a hold among it given back by that.
            Err(_) if future.call_method0(intern!(py, "done"))?.is_truthy()? => Ok(()),
            told => told.map(drop),
        }
    }
}

pub(crate) enum Asked<T> {
    Answered(T),
    Waits(Py<PyAny>),
}

#[pymethods]
impl Inbox {
    /// Called by the loop when there are answers.
    fn _look(slf: &Bound<'_, Self>) {
        slf.get().letters.waker.looks();
        Self::settle_all(slf, BatchGuard::default());
    }

    /// Called by the loop when those who were answered together had their turn.
    fn _depart(&self) {
        let company = self.company.lock().take();
        drop(company);
    }

    fn __traverse__(&self, visit: pyo3::PyVisit<'_>) -> std::result::Result<(), pyo3::PyTraverseError> {
        visit.call(&self.create_future)?;
        visit.call(&self.call_soon)?;
        self.letters.waker.traverse(&visit)?;
        // The lock is only ever held by a thread that has the interpreter, as the collector does now.
        let Some(waiting) = self.waiting.try_lock() else { return Ok(()) };
        waiting.places.iter().filter_map(|(_, who)| who.as_ref()).try_for_each(|who| visit.call(&who.future))
    }

    fn __clear__(&self) {
        let waiting = std::mem::take(&mut *self.waiting.lock());
        drop(waiting);
    }
}

/// Called when a future is done: gives up what was asked for when that is because the future was cancelled.
#[pyclass(module = "tidegate", frozen, name = "_GivenUp")]
struct GivenUp {
    inbox: Py<Inbox>,
    ticket: u64,
    task: Option<Task>,
}

#[pymethods]
impl GivenUp {
    fn __call__(&self, py: Python<'_>, future: &Bound<'_, PyAny>) -> PyResult<()> {
        if !future.call_method0(intern!(py, "cancelled"))?.is_truthy()? {
            return Ok(());
        }
        let inbox = self.inbox.get();
        drop(inbox.waiting.lock().take(self.ticket));
        if let Some(task) = &self.task {
            task.cancel();
        }
        inbox.letters.unwanted(self.ticket, self.task.is_none());
        Ok(())
    }
}
