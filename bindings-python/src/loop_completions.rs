//! The futures of one event loop and the answers to them. The loop itself keeps this object, in an attribute: finding it
//! is one lookup, and it is freed with the loop.

mod cancellation;

use std::any::Any;
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use pyo3::exceptions::{PyAttributeError, PyNotImplementedError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use tidegate::Result;
use tidegate::host::{BatchGuard, CompletionQueue, Outcome, Wake, post_task, process_generation};

use crate::error::raise;
use crate::loop_waker::LoopWaker;
use crate::python_call::PythonCall;
use cancellation::CancellationCallback;

/// Makes the result of a future from the outcome of its call.
pub(crate) type ConvertOutcome = fn(Python<'_>, Outcome) -> PyResult<Py<PyAny>>;

/// Connects the calls of one event loop with its futures.
#[pyclass(module = "tidegate", frozen, name = "_LoopCompletions")]
pub(crate) struct LoopCompletions {
    list: Arc<CompletionList>,
    /// The list of completions, as the core takes it.
    queue: Arc<dyn CompletionQueue>,
    futures: Mutex<FutureTable>,
    /// The batch of the calls that tasks make after they were answered together; until `_end_batch`.
    batch: Mutex<Option<BatchGuard>>,
    create_future: Py<PyAny>,
    call_soon: Py<PyAny>,
    /// The process that made it.
    generation: u64,
    /// Identifies the loop; no number is used twice.
    pub(crate) number: u64,
}

/// Collects the answers for one event loop. Threads of the core put answers here; they touch no Python object.
struct CompletionList {
    state: Mutex<ArrivedAnswers>,
    waker: LoopWaker,
}

#[derive(Default)]
struct ArrivedAnswers {
    answers: Vec<(u64, Result<Outcome>)>,
    /// The tickets of calls that were cancelled and whose answers will still arrive.
    discarded: HashSet<u64>,
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
            // Dropping a hold gives it back, which calls the store: not under the lock.
            drop(state);
            drop(outcome);
            return;
        }
        state.answers.push((ticket, outcome));
    }
}

impl CompletionList {
    fn new(waker: LoopWaker) -> Self {
        Self { state: Mutex::default(), waker }
    }

    /// All answers that have arrived.
    fn take(&self) -> Vec<(u64, Result<Outcome>)> {
        std::mem::take(&mut self.state.lock().answers)
    }

    /// Drops the answer with this ticket: now, or when it arrives, if it `may_arrive`.
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

/// A future of the loop that waits for an answer.
struct PendingFuture {
    future: Py<PyAny>,
    convert: ConvertOutcome,
    /// Kept alive until the answer has arrived, where no task of the core does that.
    _limiter: Option<Arc<dyn Any + Send + Sync>>,
}

impl PendingFuture {
    /// Sets the result or the exception of the future, unless it was cancelled.
    fn set_result(self, py: Python<'_>, outcome: Result<Outcome>) -> PyResult<()> {
        let future = self.future.bind(py);
        let set = match outcome.map_err(raise).and_then(|outcome| (self.convert)(py, outcome)) {
            Ok(object) => future.call_method1(intern!(py, "set_result"), (object,)),
            Err(error) => future.call_method1(intern!(py, "set_exception"), (error.into_value(py),)),
        };
        match set {
            // It was cancelled before. The result is dropped, which gives back a hold.
            Err(_) if future.call_method0(intern!(py, "done"))?.is_truthy()? => Ok(()),
            set => set.map(drop),
        }
    }
}

/// Futures by ticket. The lower half of a ticket is a slot, the upper half says how often the slot was used before.
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
    /// A ticket for a future that `put` may bring.
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

    /// The future with this ticket. The ticket is not valid any more.
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

/// A call that was made: its answer, or the future of it.
pub(crate) enum Posted<T> {
    Answered(T),
    Future(Py<PyAny>),
}

/// The loop calls `callback` when the file is readable. It runs in an empty context: that of the current task would live
/// as long as the loop, with every object in it.
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
    /// That of the loop that runs on this thread.
    #[inline]
    pub(crate) fn of_running_loop(py: Python<'_>) -> PyResult<Bound<'_, Self>> {
        let running = running_loop(py)?;
        match running.getattr(intern!(py, "_tidegate_completions")) {
            Ok(found) => match found.cast_into::<Self>() {
                Ok(completions) if completions.get().generation == process_generation() => Ok(completions),
                // In a forked child it is the parent's.
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
            // The system has no such file, or the loop watches none.
            _ => {
                let waker = LoopWaker::call(running.getattr("call_soon_threadsafe")?.unbind());
                let completions = Self::new(running, waker)?;
                completions.get().list.waker.set_callback(completions.getattr("_on_wake")?.unbind());
                completions
            }
        };
        running.setattr("_tidegate_completions", &completions)?;
        Ok(completions)
    }

    fn open_with_file<'py>(running: &Bound<'py, PyAny>, waker: LoopWaker) -> PyResult<Bound<'py, Self>> {
        let completions = Self::new(running, waker)?;
        let descriptor = completions.get().list.waker.descriptor();
        add_reader(running, descriptor, completions.getattr("_on_wake")?)?;
        Ok(completions)
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
            create_future: running.getattr("create_future")?.unbind(),
            call_soon: running.getattr("call_soon")?.unbind(),
            generation: process_generation(),
            number: NUMBERS.fetch_add(1, Ordering::Relaxed),
        };
        Bound::new(running.py(), completions)
    }

    /// Makes a call of the core with a ticket; without an immediate answer, makes a future for it. The future keeps the
    /// `limiter` alive.
    #[inline]
    pub(crate) fn post<T, L: Any + Send + Sync>(
        &self,
        py: Python<'_>,
        limiter: Arc<L>,
        convert: ConvertOutcome,
        post: impl FnOnce(&L, u64, &Arc<dyn CompletionQueue>, Option<&BatchGuard>) -> Option<T>,
    ) -> PyResult<Posted<T>> {
        let ticket = self.futures.lock().reserve();
        // Taken out meanwhile: sending the batch may run code of the core that takes as long as it likes.
        let batch = self.batch.lock().take();
        let answer = post(&limiter, ticket, &self.queue, batch.as_ref());
        if batch.is_some() {
            *self.batch.lock() = batch;
        }
        if let Some(answer) = answer {
            self.futures.lock().take(ticket);
            return Ok(Posted::Answered(answer));
        }
        // This thread delivers the answer, so it cannot miss the future.
        let future = self.create_future.bind(py).call0()?;
        let pending = PendingFuture { future: future.clone().unbind(), convert, _limiter: Some(limiter) };
        self.futures.lock().put(ticket, pending);
        Ok(Posted::Future(future.unbind()))
    }

    /// Starts a task of the core and makes a future for its outcome. Cancelling the future cancels the task. A task that
    /// `must_finish` goes on: then its outcome is dropped when it arrives.
    pub(crate) fn start_task(
        slf: &Bound<'_, Self>,
        convert: ConvertOutcome,
        must_finish: bool,
        task: impl Future<Output = Result<Outcome>> + Send + 'static,
    ) -> PyResult<Py<PyAny>> {
        let (py, completions) = (slf.py(), slf.get());
        let future = completions.create_future.bind(py).call0()?;
        let ticket = completions.futures.lock().reserve();
        let task = post_task(ticket, &completions.queue, task).map_err(raise)?;
        let pending = PendingFuture { future: future.clone().unbind(), convert, _limiter: None };
        completions.futures.lock().put(ticket, pending);
        let callback = CancellationCallback::new(slf.clone().unbind(), ticket, (!must_finish).then_some(task));
        future.call_method1(intern!(py, "add_done_callback"), (Bound::new(py, callback)?,))?;
        Ok(future.unbind())
    }

    /// The future with this ticket was cancelled.
    fn discard(&self, ticket: u64, may_arrive: bool) {
        let pending = self.futures.lock().take(ticket);
        drop(pending);
        self.list.discard(ticket, may_arrive);
    }

    /// The loop is about to read replies: until `deliver`, what arrives need not wake it.
    pub(crate) fn suppress_wakes(&self) {
        self.list.waker.suppress();
    }

    /// Sets the results of the futures whose answers have arrived. Tasks that continue and call again in the same iteration
    /// of the loop join the batch.
    pub(crate) fn deliver(slf: &Bound<'_, Self>, batch: BatchGuard) {
        let (py, completions) = (slf.py(), slf.get());
        let _call = PythonCall::begin(py);
        completions.list.waker.enable();
        let answers = completions.list.take();
        let count = answers.len();
        for (ticket, outcome) in answers {
            let pending = completions.futures.lock().take(ticket);
            let Some(pending) = pending else { continue };
            if let Err(error) = pending.set_result(py, outcome) {
                error.write_unraisable(py, None);
            }
        }
        if count > 1
            && let Err(error) = Self::begin_batch(slf, batch, count)
        {
            error.write_unraisable(py, None);
        }
    }

    /// The batch is open until `_end_batch`, which the loop calls after it has run the tasks that were answered.
    fn begin_batch(slf: &Bound<'_, Self>, batch: BatchGuard, answered: usize) -> PyResult<()> {
        let completions = slf.get();
        if completions.batch.lock().is_none() {
            let end_batch = slf.getattr(intern!(slf.py(), "_end_batch"))?;
            completions.call_soon.bind(slf.py()).call1((end_batch,))?;
        }
        batch.expect(answered);
        let before = completions.batch.lock().replace(batch);
        drop(before);
        Ok(())
    }
}

#[pymethods]
impl LoopCompletions {
    /// The loop calls this when the waker has woken it.
    fn _on_wake(slf: &Bound<'_, Self>) {
        slf.get().list.waker.acknowledge();
        Self::deliver(slf, BatchGuard::default());
    }

    /// Sends what has joined the batch.
    fn _end_batch(&self) {
        let batch = self.batch.lock().take();
        drop(batch);
    }

    fn __traverse__(&self, visit: pyo3::PyVisit<'_>) -> std::result::Result<(), pyo3::PyTraverseError> {
        visit.call(&self.create_future)?;
        visit.call(&self.call_soon)?;
        self.list.waker.traverse(&visit)?;
        // The lock is only held by a thread that has the interpreter, which the collector has now.
        self.futures.try_lock().map_or(Ok(()), |futures| futures.traverse(&visit))
    }

    fn __clear__(&self) {
        let futures = std::mem::take(&mut *self.futures.lock());
        drop(futures);
    }
}
