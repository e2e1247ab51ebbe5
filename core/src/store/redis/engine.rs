//! One thread for all calls that do not block, and the way to it.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Poll, Waker};
use std::time::Duration;

use parking_lot::Mutex;

use super::Target;
use super::desk::Desk;
use super::job::Job;
use super::lane::Outcome;
use super::lookout::{Lookout, Reader};
use super::survey::Survey;
use crate::error::{Error, ErrorKind, Result};
use crate::store::batch_guard::{BatchGuard, Flush};
use crate::store::completion::{WakeSet, wake};

/// How long a thread that connects or asks for the chart stays for the next time.
const IDLE_THREAD: Duration = Duration::from_secs(1);

/// The way in: cheap to call from any thread.
pub(super) struct Engine {
    shared: Arc<Shared>,
}

/// What callers and the thread have in common.
pub(super) struct Shared {
    /// Jobs on their way to the desk.
    queue: Mutex<Queue>,
    /// Whoever has it serves the queue: mostly the thread, and a caller whose job can leave at once.
    desk: Mutex<Desk>,
    /// Whether there is something for the thread to do since it began to look. What that is may be anywhere: a caller may
    /// have taken a job from the queue, and found that it cannot be sent now.
    called: AtomicBool,
    /// How to wake the thread, while it sleeps.
    sleeper: Mutex<Option<Waker>>,
}

#[derive(Default)]
pub(super) struct Queue {
    pub(super) jobs: VecDeque<Job>,
    pub(super) closed: bool,
    /// News of who reads, which the thread has not heard.
    pub(super) news: Option<Reader>,
}

impl Engine {
    pub(super) fn start(target: Target, survey: Arc<Survey>) -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().thread_keep_alive(IDLE_THREAD).build();
        let runtime = runtime.map_err(|error| cannot_start(&error))?;
        let shared = Arc::new(Shared {
            queue: Mutex::default(),
            desk: Mutex::new(Desk::new(target, survey)),
            called: AtomicBool::new(false),
            sleeper: Mutex::default(),
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
        thread.spawn(run).map_err(|error| cannot_start(&error))?;
        Ok(Self { shared })
    }

    pub(super) fn enroll(&self, lookout: &Lookout) {
        lookout.enroll(&self.shared);
    }

    /// Queues a job and sends it, now or with its batch.
    pub(super) fn enqueue(&self, job: Job, batch: Option<&BatchGuard>) {
        let mut queue = self.shared.queue.lock();
        if queue.closed {
            drop(queue);
            return wake(job.fail(&closed()));
        }
        queue.jobs.push_back(job);
        drop(queue);
        match batch {
            Some(batch) => batch.join(&self.shared),
            None => self.shared.serve(),
        }
    }

    /// Ends the thread; what waits is answered with `closed`.
    pub(super) fn stop(&self) {
        self.shared.queue.lock().closed = true;
        self.shared.wake();
    }
}

impl Flush for Shared {
    fn flush(&self) {
        self.serve();
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Shared {
    /// Sends what can leave at once from here, which spares the way to the thread; else the thread is woken, if there is
    /// anything to do for it now.
    pub(super) fn serve(&self) {
        // The thread that has the desk looks once more before it sleeps.
        let Some(mut desk) = self.desk.try_lock() else { return self.wake() };
        let served = desk.serve(&self.queue);
        drop(desk);
        if !served {
            self.wake();
        }
    }

    /// From now on an event loop reads what comes, or the thread does again.
    pub(super) fn watched_by(&self, reader: Reader) {
        self.queue.lock().news = Some(reader);
        self.wake();
    }

    /// Reads what has come, from the thread of that loop. Nobody departs yet: whoever is answered may ask again.
    pub(super) fn look(&self) {
        // Who is told is told at the end, when the desk is free for what he asks next.
        let mut outcome = Outcome::default();
        // Whoever has the desk may wait for a lock that this thread has. What is left unread is told of once more.
        let Some(mut desk) = self.desk.try_lock() else { return };
        let looked = desk.look(&mut outcome);
        drop(desk);
        if !looked {
            self.wake();
        }
    }

    fn wake(&self) {
        // With `run` below in this order: either it sees that it is called, or we see that it sleeps.
        if !self.called.swap(true, Ordering::SeqCst)
            && let Some(waker) = self.sleeper.lock().take()
        {
            waker.wake();
        }
    }

    /// What the thread does.
    async fn run(&self) {
        let mut alarm = Box::pin(tokio::time::sleep(Duration::ZERO));
        poll_fn(|cx| {
            loop {
                *self.sleeper.lock() = None;
                self.called.store(false, Ordering::SeqCst);
                if self.desk.lock().poll(cx, &self.queue, &mut alarm).is_ready() {
                    return Poll::Ready(());
                }
                *self.sleeper.lock() = Some(cx.waker().clone());
                if !self.called.load(Ordering::SeqCst) {
                    return Poll::Pending;
                }
            }
        })
        .await;
        let mut homes = WakeSet::default();
        self.desk.lock().close(&closed(), &mut homes);
        let left = std::mem::take(&mut self.queue.lock().jobs);
        for job in left {
            homes.add(job.fail(&closed()));
        }
    }
}

pub(super) fn cannot_start(error: &std::io::Error) -> Error {
    Error::new(ErrorKind::StoreUnavailable, format!("the thread for Redis cannot be started: {error}"))
}

fn closed() -> Error {
    Error::new(ErrorKind::Closed, "the limiter is closed")
}
