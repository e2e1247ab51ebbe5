//! One thread for what takes its time and may be cancelled, for hosts that have no executor of Rust's.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::task::AbortHandle;

use crate::error::{Error, ErrorKind, Result};
use crate::fork::PerProcess;

/// Started by the first task of the process.
static THREAD: PerProcess<Thread> = PerProcess::new();

struct Thread {
    handle: Handle,
    /// Dropping it ends the thread.
    _stop: oneshot::Sender<()>,
}

/// Something that is being done.
#[derive(Debug)]
pub struct Task(AbortHandle);

impl Task {
    /// Gives it up; what it has not done, it does not do any more. Nothing is left behind in a line or a store.
    pub fn cancel(&self) {
        self.0.abort();
    }
}

pub(crate) fn spawn(task: impl Future<Output = ()> + Send + 'static) -> Result<Task> {
    let thread = THREAD.get_or_try_init(start)?;
    Ok(Task(thread.1.handle.spawn(task).abort_handle()))
}

/// What came of a task that was begun: what it said at once, or the task that goes on.
pub(crate) enum Begun<T> {
    Done(T),
    Waits(Pin<Box<dyn Future<Output = T> + Send>>),
}

/// Takes the first step on the calling thread: whoever has nothing to wait for is spared the way to the other and back.
pub(crate) fn begin<T>(task: impl Future<Output = T> + Send + 'static) -> Result<Begun<T>> {
    let thread = THREAD.get_or_try_init(start)?;
    // Timers want to know where they belong. Whatever wakes the first step is looked at again by the second.
    let _entered = thread.1.handle.enter();
    let mut task = Box::pin(task);
    Ok(match task.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(said) => Begun::Done(said),
        Poll::Pending => Begun::Waits(task),
    })
}

fn start() -> Result<Thread> {
    let failed = |error| Error::new(ErrorKind::StoreUnavailable, format!("the thread for tasks cannot start: {error}"));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
    let handle = runtime.handle().clone();
    let (stop, stopped) = oneshot::channel();
    let run = move || drop(runtime.block_on(stopped));
    std::thread::Builder::new().name("tidegate-tasks".to_owned()).spawn(run).map_err(failed)?;
    Ok(Thread { handle, _stop: stop })
}
