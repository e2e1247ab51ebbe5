//! Calls that wait for a task of the core without blocking the thread all the time, so that others can run.
//!
//! Python handles signals on the main thread only, and not while that thread waits. So it waits in short intervals, and looks for
//! signals between them. A greenlet of gevent waits for a file, so that its hub runs other greenlets meanwhile. Without that, the
//! units that it waits for might never be given back.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use tidegate::host::Mutex;
use tidegate::host::{Admission, CallerQuestions, CompletionQueue, Outcome, Started, Wake, post_begun};
use tidegate::store::WaitingCaller;
use tidegate::{CheckOptions, Decision, Error, HoldAnswer, Result};

use crate::error::{ClosedError, config, raise, raise_about};
use crate::loop_waker::LoopWaker;
use crate::outgoing_call::SharedCall;
use crate::own_store::OwnStore;
use crate::policy_argument::{OwnedPolicy, PolicyArgument};

/// The longest time that Ctrl-C may have to wait.
const SIGNAL_INTERVAL: Duration = Duration::from_millis(100);

/// Sends the outcome of a task to the waiting thread, and wakes its hub.
struct ThreadCompletion {
    sender: Mutex<Sender<Result<Outcome>>>,
    waker: Option<LoopWaker>,
    /// The queue of a store of the application, whose calls the waiting thread makes.
    callers: Option<Arc<CallerQuestions>>,
}

impl Wake for ThreadCompletion {
    fn wake(&self) {
        if let Some(waker) = &self.waker {
            waker.wake();
        }
        if let Some(callers) = &self.callers {
            callers.wake();
        }
    }
}

impl CompletionQueue for ThreadCompletion {
    fn deliver(&self, _: u64, outcome: Result<Outcome>) {
        // The send fails if the thread was interrupted. Then the outcome is dropped, which gives back a hold.
        drop(self.sender.lock().send(outcome));
    }
}

/// `Limiter.acquire`.
pub(super) fn acquire(
    py: Python<'_>,
    limiter: &tidegate::Limiter,
    policy: PolicyArgument<'_>,
    key: &str,
    options: CheckOptions,
    timeout: Option<Duration>,
) -> PyResult<Decision> {
    let raise = |error| raise_about(error, policy.text());
    let at_once = limiter.to_async().acquire_at_once(policy, key, &options);
    if let Some(decision) = at_once.map_err(raise)? {
        return Ok(decision);
    }
    match Way::of(py, timeout)? {
        Way::Blocks => py.detach(|| limiter.acquire_with(policy, key, &options, timeout)).map_err(raise),
        Way::Looks { wait_read } => {
            let (limiter, owned, key) = (limiter.to_async(), OwnedPolicy::from(policy), key.to_owned());
            let callers = callers_of(&limiter);
            let task = async move { limiter.acquire_with(owned, &key, &options, timeout).await.map(Outcome::Decision) };
            match wait(py, wait_read, callers, false, task, raise)? {
                Outcome::Decision(decision) => Ok(decision),
                _ => Err(ended()),
            }
        }
    }
}

/// `Limiter.hold`.
pub(super) fn hold(
    py: Python<'_>,
    limiter: &tidegate::Limiter,
    policy: PolicyArgument<'_>,
    key: &str,
    options: CheckOptions,
    timeout: Option<Duration>,
) -> PyResult<HoldAnswer> {
    let raise = |error| raise_about(error, policy.text());
    match Way::of(py, timeout)? {
        Way::Blocks => {
            let hold = || limiter.hold_within(policy, key, &options, timeout);
            let waits = limiter.waits() || timeout != Some(Duration::ZERO);
            let answer = if waits { py.detach(hold) } else { hold() };
            answer.map_err(raise)
        }
        Way::Looks { wait_read } => {
            let (limiter, owned, key) = (limiter.to_async(), OwnedPolicy::from(policy), key.to_owned());
            let callers = callers_of(&limiter);
            let task = async move {
                Ok(match limiter.hold_within(owned, &key, &options, timeout).await? {
                    HoldAnswer::Held(hold) => Outcome::Hold(hold),
                    denied => Outcome::Decision(denied.decision().clone()),
                })
            };
            match wait(py, wait_read, callers, timeout == Some(Duration::ZERO), task, raise)? {
                Outcome::Hold(hold) => Ok(HoldAnswer::Held(hold)),
                Outcome::Decision(decision) => Ok(HoldAnswer::Denied(decision)),
                _ => Err(ended()),
            }
        }
    }
}

/// The turn of a call that goes out.
pub(super) fn turn(
    py: Python<'_>,
    limiter: &tidegate::Limiter,
    call: SharedCall,
    timeout: Option<Duration>,
    announces: bool,
) -> PyResult<Admission> {
    if let Some(turn) = limiter.turn_at_once(&*call, announces).map_err(raise)? {
        return Ok(turn);
    }
    match Way::of(py, timeout)? {
        Way::Blocks => py.detach(|| limiter.turn(&*call, timeout, announces)).map_err(raise),
        Way::Looks { wait_read } => {
            let limiter = limiter.to_async();
            let callers = callers_of(&limiter);
            let task = async move {
                limiter.turn(&*call, timeout, announces).await.map(|answer| Outcome::Admission(Box::new(answer)))
            };
            match wait(py, wait_read, callers, false, task, raise)? {
                Outcome::Admission(answer) => Ok(*answer),
                _ => Err(ended()),
            }
        }
    }
}

/// The queue of a store of the application whose methods block.
fn callers_of(limiter: &tidegate::AsyncLimiter) -> Option<Arc<CallerQuestions>> {
    OwnStore::of(limiter)?.callers()
}

/// How a thread waits.
enum Way<'py> {
    /// It blocks for the whole time.
    Blocks,
    /// It looks for signals meanwhile, or lets other greenlets run.
    Looks { wait_read: Option<Bound<'py, PyAny>> },
}

impl<'py> Way<'py> {
    fn of(py: Python<'py>, timeout: Option<Duration>) -> PyResult<Self> {
        let wait_read = greenlet_wait(py)?;
        let looks = wait_read.is_some() || is_long(timeout) && is_main_thread(py)?;
        Ok(if looks { Self::Looks { wait_read } } else { Self::Blocks })
    }
}

/// True if signals might have to wait for too long.
fn is_long(timeout: Option<Duration>) -> bool {
    timeout.is_none_or(|timeout| timeout > SIGNAL_INTERVAL)
}

fn is_main_thread(py: Python<'_>) -> PyResult<bool> {
    let threading = py.import("threading")?;
    Ok(threading.call_method0("current_thread")?.is(&threading.call_method0("main_thread")?))
}

fn ended() -> PyErr {
    ClosedError::new_err(("the limiter was closed while this call waited: keep it open until its calls have ended",))
}

/// The function that waits for a file in a greenlet: gevent's `wait_read`, if gevent has patched Python's modules.
fn greenlet_wait(py: Python<'_>) -> PyResult<Option<Bound<'_, PyAny>>> {
    let modules = py.import("sys")?.getattr(intern!(py, "modules"))?;
    let Some(monkey) = modules.cast::<PyDict>()?.get_item(intern!(py, "gevent.monkey"))? else { return Ok(None) };
    if !monkey.call_method1("is_module_patched", ("socket",))?.is_truthy()? {
        return Ok(None);
    }
    py.import("gevent.socket")?.getattr("wait_read").map(Some)
}

/// Waits for a task, in a greenlet if `wait_read` is passed. An exception meanwhile cancels the task, unless it
/// `must_finish`. It may come from a signal handler or from the end of the greenlet.
fn wait(
    py: Python<'_>,
    wait_read: Option<Bound<'_, PyAny>>,
    callers: Option<Arc<CallerQuestions>>,
    must_finish: bool,
    task: impl Future<Output = Result<Outcome>> + Send + 'static,
    to_exception: impl Fn(Error) -> PyErr,
) -> PyResult<Outcome> {
    let waker = wait_read.as_ref().map(|_| LoopWaker::file()).transpose();
    let waker = waker.map_err(|error| config(format!("a greenlet of gevent cannot wait on this system: {error}")))?;
    let (sender, outcome) = channel();
    // Only this thread uses it, but `detach` requires that it is `Sync`. The lock makes it so.
    let outcome = Mutex::new(outcome);
    let completion = Arc::new(ThreadCompletion { sender: Mutex::new(sender), waker, callers });
    // A greenlet must not wait within a call of a store, so a thread makes the calls.
    let caller =
        completion.callers.clone().filter(|_| wait_read.is_none()).map(|callers| WaitingCaller::enter(callers));
    let queue: Arc<dyn CompletionQueue> = completion.clone();
    let task = match py.detach(|| post_begun(0, &queue, task)).map_err(&to_exception)? {
        Started::Done(outcome) => return outcome.map_err(to_exception),
        Started::Waits(task) => task,
    };
    drop(queue);
    loop {
        let waited = match (&wait_read, &completion.waker) {
            (Some(wait_read), Some(waker)) => {
                let waited = wait_read.call1((waker.descriptor(),));
                waker.acknowledge();
                waited.map(drop)
            }
            _ => Ok(()),
        };
        let interval = if wait_read.is_some() { Duration::ZERO } else { SIGNAL_INTERVAL };
        match waited.and_then(|()| received(py, &outcome, caller.as_ref(), interval)) {
            Ok(Some(outcome)) => return outcome.map_err(to_exception),
            Ok(None) => {}
            Err(interrupted) => {
                if !must_finish {
                    task.cancel();
                }
                return Err(interrupted);
            }
        }
    }
}

/// The outcome, or `None` if it takes longer than the interval. Raises the exception of a signal handler.
fn received(
    py: Python<'_>,
    outcome: &Mutex<Receiver<Result<Outcome>>>,
    caller: Option<&WaitingCaller>,
    interval: Duration,
) -> PyResult<Option<Result<Outcome>>> {
    let wait = || {
        let Some(caller) = caller else { return outcome.lock().recv_timeout(interval) };
        let mut arrived = Err(RecvTimeoutError::Timeout);
        let mut look = || {
            arrived = outcome.lock().recv_timeout(Duration::ZERO);
            !matches!(arrived, Err(RecvTimeoutError::Timeout))
        };
        caller.work(&mut look, Instant::now() + interval);
        arrived
    };
    match py.detach(wait) {
        Ok(outcome) => Ok(Some(outcome)),
        Err(RecvTimeoutError::Timeout) => py.check_signals().map(|()| None),
        Err(RecvTimeoutError::Disconnected) => Err(ended()),
    }
}
