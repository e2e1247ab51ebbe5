//! The futures of one event loop and the answers to them. The loop itself keeps this object in an attribute, so that it
//! takes one lookup to find it, and it is freed with the loop.

mod answer_future;

use std::any::Any;
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use pyo3::exceptions::{PyAttributeError, PyNotImplementedError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyList;
use tidegate::Result;
use tidegate::host::Mutex;
use tidegate::host::{BatchGuard, CompletionQueue, Outcome, Wake, post_task, process_generation};

use crate::error::raise;
use crate::loop_waker::LoopWaker;
use crate::python_call::PythonCall;
pub(crate) use answer_future::AnswerFuture;
use answer_future::{StartedTask, Waiter};

/// Makes the result of a future from the outcome of its call.
pub(crate) type ConvertOutcome = fn(Python<'_>, Outcome) -> PyResult<Py<PyAny>>;

/// Connects the calls of one event loop with its futures.
#[pyclass(module = "tidegate", frozen, name = "_LoopCompletions")]
pub(crate) struct LoopCompletions {
    list: Arc<CompletionList>,
    /// The list of completions in the form that the core needs.
    queue: Arc<dyn CompletionQueue>,
    futures: Mutex<FutureTable>,
    /// The batch for the calls that tasks make after several answers arrived together. It lasts until `_end`.
    batch: Mutex<Option<BatchGuard>>,
    event_loop: Py<PyAny>,
    /// The process that made this.
    generation: u64,
    /// Identifies the loop. No number is used twice.
    pub(crate) number: u64,
}

/// Work that begins on an event loop.
pub(crate) trait LoopWork: Send + Sync {
    fn begin(&self, event_loop: &Bound<'_, PyAny>) -> PyResult<()>;
}

/// An event loop that takes work from any thread.
pub(crate) trait AskedLoop: Send + Sync {
    /// The loop begins this work soon, once.
    fn ask(&self, work: Arc<dyn LoopWork>);
}

/// Collects the answers for one event loop. Threads of the core put answers here, and touch no Python object.
struct CompletionList {
    state: Mutex<ArrivedAnswers>,
    waker: LoopWaker,
}

#[derive(Default)]
struct ArrivedAnswers {
    answers: Vec<(u64, Result<Outcome>)>,
    /// The tickets of cancelled calls that will still get an answer.
    discarded: HashSet<u64>,
    /// The work that the loop begins when it takes the answers.
    work: Vec<Arc<dyn LoopWork>>,
}

impl Wake for CompletionList {
    fn wake(&self) {
        self.waker.wake();
    }
}

impl CompletionQueue for CompletionList {
    fn deliver(&self, ticket: u64, outcome: Result<Outcome>) {
        let mut state = self.state.lock();
        if !state.discarded.is_empty() && state.discarded.remove(&ticket) {
            // The drop of a hold gives it back, which calls the store, so the lock must not be held.
            drop(state);
            drop(outcome);
            return;
        }
        state.answers.push((ticket, outcome));
    }
}

impl AskedLoop for CompletionList {
    fn ask(&self, work: Arc<dyn LoopWork>) {
        let mut state = self.state.lock();
        if !state.work.iter().any(|known| Arc::ptr_eq(known, &work)) {
            state.work.push(work);
        }
        drop(state);
        self.waker.wake();
    }
}

impl CompletionList {
    fn new(waker: LoopWaker) -> Self {
        Self { state: Mutex::default(), waker }
    }

    /// Takes all answers that have arrived.
    fn take(&self) -> Vec<(u64, Result<Outcome>)> {
        std::mem::take(&mut self.state.lock().answers)
    }

    /// Drops the answer with this ticket now or, if it `may_arrive`, later.
    fn discard(&self, ticket: u64, may_arrive: bool) {
        let mut state = self.state.lock();
        match state.answers.iter().position(|(number, _)| *number == ticket) {
            Some(index) => {
                let answer = state.answers.swap_remove(index);
                drop(state);
                drop(answer);
            }
            None if may_arrive => {
                state.discarded.insert(ticket);
            }
            None => {}
        }
    }
}

/// A future that waits for an answer.
struct PendingFuture {
    future: Py<AnswerFuture>,
    convert: ConvertOutcome,
    /// Keeps the limiter alive until the answer has arrived, if no task of the core does.
    _limiter: Option<Arc<dyn Any + Send + Sync>>,
}

impl PendingFuture {
    /// Sets the answer. A cancelled future drops its result, which gives back a hold.
    fn set(&self, py: Python<'_>, outcome: Result<Outcome>) -> Option<Waiter> {
        let answer = outcome.map_err(raise).and_then(|outcome| (self.convert)(py, outcome));
        self.future.get().set(answer.map_err(|error| error.into_value(py)))
    }
}

/// Futures by ticket. The lower half of a ticket is a slot, the upper half counts the earlier uses of the slot.
#[derive(Default)]
struct FutureTable {
    slots: Vec<Slot>,
    free: Vec<u32>,
}

#[derive(Default)]
struct Slot {
    uses: u32,
    future: Option<PendingFuture>,
}

impl FutureTable {
    /// Reserves a ticket for a future that `put` may add.
    fn reserve(&mut self) -> u64 {
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot::default());
            self.slots.len() as u32 - 1
        });
        u64::from(self.slots[index as usize].uses) << 32 | u64::from(index)
    }

    fn put(&mut self, ticket: u64, future: PendingFuture) {
        self.slots[ticket as u32 as usize].future = Some(future);
    }

    /// Takes the future with this ticket. The ticket is not valid any more.
    fn take(&mut self, ticket: u64) -> Option<PendingFuture> {
        let slot = self.slots.get_mut(ticket as u32 as usize)?;
        if u64::from(slot.uses) != ticket >> 32 {
            return None;
        }
        slot.uses = slot.uses.wrapping_add(1);
        self.free.push(ticket as u32);
        slot.future.take()
    }

    fn traverse(&self, visit: &pyo3::PyVisit<'_>) -> std::result::Result<(), pyo3::PyTraverseError> {
        self.slots.iter().filter_map(|slot| slot.future.as_ref()).try_for_each(|pending| visit.call(&pending.future))
    }
}

/// A call that was made: its answer, or its future.
pub(crate) enum Posted<T> {
    Answered(T),
    Future(Py<AnswerFuture>),
}

/// Makes the loop call `callback` when the file is readable. It runs in an empty context, because the context of the
/// current task would live as long as the loop, with every object in it.
pub(crate) fn add_reader<'py>(
    running: &Bound<'py, PyAny>,
    file: impl IntoPyObject<'py>,
    callback: Bound<'py, PyAny>,
) -> PyResult<()> {
    let context = running.py().import("contextvars")?.getattr("Context")?.call0()?;
    context.call_method1("run", (running.getattr("add_reader")?, file, callback)).map(drop)
}

pub(crate) fn running_loop(py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
    static GET_RUNNING_LOOP: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    GET_RUNNING_LOOP.import(py, "asyncio", "get_running_loop")?.call0()
}

impl LoopCompletions {
    /// The completions of the loop that runs on this thread.
    #[inline]
    pub(crate) fn of_running_loop(py: Python<'_>) -> PyResult<Bound<'_, Self>> {
        let running = running_loop(py)?;
        match running.getattr(intern!(py, "_tidegate_completions")) {
            Ok(found) => match found.cast_into::<Self>() {
                Ok(completions) if completions.get().generation == process_generation() => Ok(completions),
                // In a forked child these are the parent's.
                _ => Self::open(&running),
            },
            Err(error) if error.is_instance_of::<PyAttributeError>(py) => Self::open(&running),
            Err(error) => Err(error),
        }
    }

    #[cold]
    fn open<'py>(running: &Bound<'py, PyAny>) -> PyResult<Bound<'py, Self>> {
        let py = running.py();
        let completions = match LoopWaker::file().ok().map(|waker| Self::open_with_file(running, waker)) {
            Some(Ok(completions)) => completions,
            Some(Err(error)) if !error.is_instance_of::<PyNotImplementedError>(py) => return Err(error),
            // The system has no such file, or the loop cannot watch it.
            _ => {
                let waker = LoopWaker::call(running.getattr("call_soon_threadsafe")?.unbind());
                let completions = Self::new(running, waker)?;
                let callback = Self::continuing(&completions, completions.getattr("_on_wake")?)?;
                completions.get().list.waker.set_callback(callback.unbind());
                completions
            }
        };
        running.setattr("_tidegate_completions", &completions)?;
        Ok(completions)
    }

    fn open_with_file<'py>(running: &Bound<'py, PyAny>, waker: LoopWaker) -> PyResult<Bound<'py, Self>> {
        let completions = Self::new(running, waker)?;
        let descriptor = completions.get().list.waker.descriptor();
        add_reader(running, descriptor, Self::continuing(&completions, completions.getattr("_on_wake")?)?)?;
        Ok(completions)
    }

    /// A callback of the loop that continues the tasks in the list that `answered` returns.
    pub(crate) fn continuing<'py>(
        completions: &Bound<'py, Self>,
        answered: Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let event_loop = &completions.get().event_loop;
        let continuing = completions.py().import("tidegate._event_loop")?.getattr("continuing")?;
        continuing.call1((event_loop, answered, completions.getattr("_end")?))
    }

    fn new<'py>(running: &Bound<'py, PyAny>, waker: LoopWaker) -> PyResult<Bound<'py, Self>> {
        static NUMBERS: AtomicU64 = AtomicU64::new(1);
        let list = Arc::new(CompletionList::new(waker));
        let queue: Arc<dyn CompletionQueue> = list.clone();
        let completions = Self {
            list,
            queue,
            futures: Mutex::default(),
            batch: Mutex::default(),
            event_loop: running.clone().unbind(),
            generation: process_generation(),
            number: NUMBERS.fetch_add(1, Ordering::Relaxed),
        };
        Bound::new(running.py(), completions)
    }

    /// Makes a call of the core with a ticket. If there is no immediate answer, makes a future for it. The future keeps
    /// the `limiter` alive.
    #[inline]
    pub(crate) fn post<T, L: Any + Send + Sync>(
        slf: &Bound<'_, Self>,
        limiter: Arc<L>,
        convert: ConvertOutcome,
        post: impl FnOnce(&L, u64, &Arc<dyn CompletionQueue>, Option<&BatchGuard>) -> Option<T>,
    ) -> PyResult<Posted<T>> {
        let completions = slf.get();
        let ticket = completions.futures.lock().reserve();
        // The batch is taken out meanwhile, because sending it may run code of the core for any length of time.
        let batch = completions.batch.lock().take();
        let answer = post(&limiter, ticket, &completions.queue, batch.as_ref());
        if batch.is_some() {
            *completions.batch.lock() = batch;
        }
        if let Some(answer) = answer {
            completions.futures.lock().take(ticket);
            return Ok(Posted::Answered(answer));
        }
        // This thread delivers the answer, so the answer cannot miss the future.
        Self::wait(slf, ticket, None, convert, Some(limiter)).map(Posted::Future)
    }

    /// Starts a task of the core and makes a future for its outcome. To cancel the future cancels the task. A task that
    /// `must_finish` goes on, and its outcome is dropped when it arrives.
    pub(crate) fn start_task(
        slf: &Bound<'_, Self>,
        convert: ConvertOutcome,
        must_finish: bool,
        task: impl Future<Output = Result<Outcome>> + Send + 'static,
    ) -> PyResult<Py<AnswerFuture>> {
        let completions = slf.get();
        let ticket = completions.futures.lock().reserve();
        let task = post_task(ticket, &completions.queue, task).map_err(raise)?;
        let started = StartedTask { ticket, task: (!must_finish).then_some(task) };
        Self::wait(slf, ticket, Some(started), convert, None)
    }

    /// Makes the future for the answer with this ticket.
    #[inline]
    fn wait(
        slf: &Bound<'_, Self>,
        ticket: u64,
        started: Option<StartedTask>,
        convert: ConvertOutcome,
        limiter: Option<Arc<dyn Any + Send + Sync>>,
    ) -> PyResult<Py<AnswerFuture>> {
        let py = slf.py();
        let future = Py::new(py, AnswerFuture::new(slf.clone().unbind(), started))?;
        let pending = PendingFuture { future: future.clone_ref(py), convert, _limiter: limiter };
        slf.get().futures.lock().put(ticket, pending);
        Ok(future)
    }

    /// Drops the cancelled future with this ticket, and its answer.
    fn discard(&self, ticket: u64, may_arrive: bool) {
        let pending = self.futures.lock().take(ticket);
        drop(pending);
        self.list.discard(ticket, may_arrive);
    }

    /// The loop, for work of other threads.
    pub(crate) fn asked(&self) -> Arc<dyn AskedLoop> {
        Arc::clone(&self.list) as Arc<dyn AskedLoop>
    }

    /// Notes that the loop is about to read replies. Until `deliver`, arriving answers need not wake it.
    pub(crate) fn suppress_wakes(&self) {
        self.list.waker.suppress();
    }

    /// Sets the arrived answers on their futures. Returns the tasks to continue now, each with its context and its
    /// future. The calls that they make join the batch.
    pub(crate) fn deliver<'py>(slf: &Bound<'py, Self>, batch: BatchGuard) -> PyResult<Bound<'py, PyList>> {
        let (py, completions) = (slf.py(), slf.get());
        let _call = PythonCall::begin(py);
        completions.list.waker.enable();
        let work = std::mem::take(&mut completions.list.state.lock().work);
        work.iter().try_for_each(|work| work.begin(completions.event_loop.bind(py)))?;
        let (answers, waiting) = (completions.list.take(), PyList::empty(py));
        if answers.len() > 1 {
            batch.expect(answers.len());
            let before = completions.batch.lock().replace(batch);
            drop(before);
        }
        for (ticket, outcome) in answers {
            let pending = completions.futures.lock().take(ticket);
            let Some(pending) = pending else { continue };
            if let Some(Waiter { wake, context }) = pending.set(py, outcome) {
                waiting.append((context, wake, pending.future))?;
            }
        }
        Ok(waiting)
    }
}

#[pymethods]
impl LoopCompletions {
    /// The answers that have arrived when the waker has woken the loop.
    fn _on_wake<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyList>> {
        slf.get().list.waker.acknowledge();
        Self::deliver(slf, BatchGuard::default())
    }

    /// The tasks were continued: sends what has joined the batch.
    fn _end(&self) {
        let batch = self.batch.lock().take();
        drop(batch);
    }

    fn __traverse__(&self, visit: pyo3::PyVisit<'_>) -> std::result::Result<(), pyo3::PyTraverseError> {
        visit.call(&self.event_loop)?;
        self.list.waker.traverse(&visit)?;
        // Without a global lock the collector may have stopped a thread that holds this one. Then it frees these another time.
        self.futures.try_lock().map_or(Ok(()), |futures| futures.traverse(&visit))
    }

    fn __clear__(&self) {
        let futures = std::mem::take(&mut *self.futures.lock());
        drop(futures);
    }
}
