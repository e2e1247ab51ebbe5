//! The engine: one thread for all calls that do not block, and the way to it.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use parking_lot::Mutex;

use super::connection::Connector;
use super::driver::{Driver, DriverState};
use super::engine_call::{CallQueue, EngineCall, EngineCallers, closed, complete_all};
use super::epoll_set::ReplyReader;
use super::handover::Handover;
use super::host_loop::{PolledEngine, ReaderRegistry};
use crate::error::{Error, Result};
use crate::store::batch_guard::{BatchGuard, Flush};
use crate::store::completion::WakeSet;
use crate::store::redis::protocol::{Completed, Router, ServerDirectory};

/// How long a thread that opened a connection waits for the next one.
const IDLE_THREAD: Duration = Duration::from_secs(1);

/// The way in: cheap to call from any thread.
pub(crate) struct Engine {
    shared: Arc<EngineShared>,
}

/// What callers and the thread have in common.
pub(crate) struct EngineShared {
    handover: Handover<CallQueue, Driver>,
    /// An empty list for the completions that an event loop gives out, so that it is not allocated anew each time.
    completed: Mutex<Vec<Completed<EngineCallers>>>,
}

impl Engine {
    pub(crate) fn start(
        directory: Arc<ServerDirectory>,
        connector: Arc<Connector>,
        prefix: Arc<str>,
        max_batch: usize,
    ) -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().thread_keep_alive(IDLE_THREAD).build();
        let runtime = runtime.map_err(|error| Error::no_thread(&error))?;
        let driver = Driver::new(Router::new(directory, prefix, max_batch), connector);
        let shared = Arc::new(EngineShared {
            handover: Handover::new(CallQueue::default(), driver),
            completed: Mutex::default(),
        });
        let run = {
            let shared = Arc::clone(&shared);
            move || {
                runtime.block_on(shared.run());
                // An attempt to connect may be under way; it ends by itself.
                runtime.shutdown_background();
            }
        };
        let thread = std::thread::Builder::new().name("tidegate-redis".to_owned());
        thread.spawn(run).map_err(|error| Error::no_thread(&error))?;
        Ok(Self { shared })
    }

    pub(crate) fn register(&self, readers: &ReaderRegistry) {
        let engine: Arc<dyn PolledEngine> = self.shared.clone();
        readers.register(&engine);
    }

    /// Queues a call. With a guard it is sent with the others of the guard, else at once.
    pub(crate) fn enqueue(&self, call: EngineCall, batch: Option<&BatchGuard>) {
        let refused = self.shared.handover.with_queue(|queue| {
            if queue.closed {
                return Some(call);
            }
            queue.calls.push_back(call);
            None
        });
        match (refused, batch) {
            (Some(call), _) => WakeSet::default().add(call.fail(&closed())),
            (None, Some(batch)) => batch.join(&self.shared),
            (None, None) => self.shared.flush(),
        }
    }

    /// Ends the thread. Calls that wait fail with `closed`.
    pub(crate) fn stop(&self) {
        self.shared.handover.with_queue(|queue| queue.closed = true);
        self.shared.handover.wake();
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Flush for EngineShared {
    /// Sends what can be sent from this thread: that spares the way to the engine's.
    fn flush(&self) {
        self.handover.serve(|driver, queue| driver.guarded(false, |driver| driver.serve(queue)));
    }
}

impl PolledEngine for EngineShared {
    fn read_through(&self, reader: ReplyReader) {
        self.handover.with_queue(|queue| queue.reader_change = Some(reader));
        self.handover.wake();
    }

    fn poll_replies(&self) {
        let mut completed = std::mem::take(&mut *self.completed.lock());
        // The thread that has the driver may wait for a lock of this one. What is left unread is reported once more.
        let done =
            self.handover.try_with_machine(|driver| driver.guarded(false, |driver| driver.read_polled(&mut completed)));
        complete_all(&mut completed);
        *self.completed.lock() = completed;
        if done == Some(false) {
            self.handover.wake();
        }
    }
}

impl EngineShared {
    /// What the thread does.
    async fn run(&self) {
        let mut timer = Box::pin(tokio::time::sleep(Duration::ZERO));
        let mut completed = Vec::new();
        poll_fn(|cx| {
            self.handover.poll(cx, |cx, driver, queue| {
                loop {
                    let state = driver
                        .lock()
                        .guarded(DriverState::Busy, |driver| driver.poll(cx, queue, timer.as_mut(), &mut completed));
                    // The callers are told before more is done, and without the lock: they may call again.
                    complete_all(&mut completed);
                    match state {
                        DriverState::Busy => {}
                        DriverState::Idle => return Poll::Pending,
                        DriverState::Closed => return Poll::Ready(()),
                    }
                }
            })
        })
        .await;
        let left = self.handover.with_queue(|queue| std::mem::take(&mut queue.calls));
        let mut wakes = WakeSet::default();
        left.into_iter().for_each(|call| wakes.add(call.fail(&closed())));
    }
}
