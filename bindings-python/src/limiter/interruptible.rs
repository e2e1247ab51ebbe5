//! `acquire` on the main thread. Python handles signals on that thread only, and not while it waits: so it waits for a task
//! of the core in short intervals, and looks for signals between them.

use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::Duration;

use parking_lot::Mutex;
use pyo3::prelude::*;
use tidegate::CheckOptions;
use tidegate::host::{CompletionQueue, Outcome, Wake, post_task};

use crate::error::{ClosedError, raise_about};
use crate::policy_argument::{OwnedPolicy, PolicyArgument};

/// How long Ctrl-C may have to wait.
pub(super) const SIGNAL_INTERVAL: Duration = Duration::from_millis(100);

/// Sends the outcome of a task to the thread that waits for it.
struct ThreadCompletion(Mutex<Sender<tidegate::Result<Outcome>>>);

impl Wake for ThreadCompletion {
    fn wake(&self) {}
}

impl CompletionQueue for ThreadCompletion {
    fn deliver(&self, _: u64, outcome: tidegate::Result<Outcome>) {
        // It fails when the thread was interrupted.
        drop(self.0.lock().send(outcome));
    }
}

/// Waits until it is admitted, as `acquire` does, or until a signal handler raises.
pub(super) fn acquire(
    py: Python<'_>,
    limiter: tidegate::AsyncLimiter,
    policy: PolicyArgument<'_>,
    key: &str,
    options: CheckOptions,
    timeout: Option<Duration>,
) -> PyResult<tidegate::Decision> {
    let to_exception = |error| raise_about(error, policy.text());
    let (sender, outcome) = channel();
    // Only this thread uses it. `detach` requires that it is `Sync`, which the lock makes it.
    let outcome = Mutex::new(outcome);
    let queue: Arc<dyn CompletionQueue> = Arc::new(ThreadCompletion(Mutex::new(sender)));
    let (owned_policy, key) = (OwnedPolicy::from(policy), key.to_owned());
    let acquire =
        async move { limiter.acquire_with(owned_policy, &key, &options, timeout).await.map(Outcome::Decision) };
    let task = post_task(0, &queue, acquire).map_err(to_exception)?;
    loop {
        match py.detach(|| outcome.lock().recv_timeout(SIGNAL_INTERVAL)) {
            Ok(Ok(Outcome::Decision(decision))) => return Ok(decision),
            Ok(Err(error)) => return Err(to_exception(error)),
            Err(RecvTimeoutError::Timeout) => {}
            _ => return Err(ClosedError::new_err(("the limiter ended while this call waited",))),
        }
        if let Err(interrupted) = py.check_signals() {
            task.cancel();
            return Err(interrupted);
        }
    }
}
