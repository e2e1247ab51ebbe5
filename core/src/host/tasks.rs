//! Calls that may take several steps and may be cancelled, for hosts without a Rust executor. One thread runs them all.

use std::future::Future;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::task::AbortHandle;

use super::{CompletionQueue, Outcome};
use crate::error::{Error, ErrorKind, Result};
use crate::process::fork::PerProcess;

/// Started by the first task of the process.
static THREAD: PerProcess<Thread> = PerProcess::new();

struct Thread {
    handle: Handle,
    /// Dropping it ends the thread.
    _stop: oneshot::Sender<()>,
}

/// A task that is running.
#[derive(Debug)]
pub struct Task(AbortHandle);

impl Task {
    /// Cancels it: the rest of it does not run. It leaves the queue of `acquire`.
    pub fn cancel(&self) {
        self.0.abort();
    }
}

/// The state of a task after its first step.
#[derive(Debug)]
pub enum Started {
    /// It is done: nothing will be delivered.
    Done(Result<Outcome>),
    /// It waits for something.
    Waits(Task),
}

/// Runs a task and delivers its outcome to the queue, once, unless the task is cancelled before.
///
/// # Errors
/// `store_unavailable` when the thread for tasks cannot be started.
pub fn post_task(
    ticket: u64,
    queue: &Arc<dyn CompletionQueue>,
    task: impl Future<Output = Result<Outcome>> + Send + 'static,
) -> Result<Task> {
    let queue = Arc::clone(queue);
    let thread = THREAD.get_or_try_init(start)?;
    let task = thread.handle.spawn(async move {
        queue.deliver(ticket, task.await);
        queue.wake();
    });
    Ok(Task(task.abort_handle()))
}

/// Runs a task like [`post_task`], but takes its first step on the calling thread. A task that has nothing to wait for
/// does not go to the other thread and back, and its outcome is returned.
///
/// # Errors
/// As [`post_task`].
pub fn post_begun(
    ticket: u64,
    queue: &Arc<dyn CompletionQueue>,
    task: impl Future<Output = Result<Outcome>> + Send + 'static,
) -> Result<Started> {
    let mut task = Box::pin(task);
    // This comes first, so that nothing was done if it fails.
    THREAD.get_or_try_init(start)?;
    // A wake-up of this step may be lost, but the next step polls again.
    if let Poll::Ready(outcome) = task.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        return Ok(Started::Done(outcome));
    }
    Ok(Started::Waits(post_task(ticket, queue, task)?))
}

fn start() -> Result<Thread> {
    let failed = |error| Error::new(ErrorKind::StoreUnavailable, format!("the thread for tasks cannot start: {error}"));
    let runtime = tokio::runtime::Builder::new_current_thread().build().map_err(failed)?;
    let handle = runtime.handle().clone();
    let (stop, stopped) = oneshot::channel();
    let run = move || drop(runtime.block_on(stopped));
    std::thread::Builder::new().name("tidegate-tasks".to_owned()).spawn(run).map_err(failed)?;
    Ok(Thread { handle, _stop: stop })
}
