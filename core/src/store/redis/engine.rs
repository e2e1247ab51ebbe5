//! One thread and one connection for all calls that do not block.
//!
//! What waits at the same moment travels as one script call. A call that is alone is sent at once; while calls are in
//! flight newcomers gather, and go when there are enough of them or when nothing is in flight any more. Sending before the
//! answer is back keeps the server busy while the callers work.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::{FuturesUnordered, StreamExt};
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, RedisError, Value};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::Instant;

use super::{Target, failure, is_unknown_script};
use crate::error::{Error, ErrorKind, Result};
use crate::script::{Batch, Request};
use crate::store::{AllDone, Answer, Done, Home, Homes, Pinged, tell};

/// Calls in flight at once when they fold …
const FLIGHTS: usize = 4;
/// … and when each travels alone.
const LONE_FLIGHTS: usize = 1_024;
/// While something is in flight, this many are worth a call of their own.
const WORTH: usize = 32;

/// A call that waits, and who waits for it.
pub(super) struct Job {
    requests: Vec<Request>,
    now: Option<u64>,
    deadline: Instant,
    done: Waiter,
}

enum Waiter {
    One(Done),
    All(AllDone),
    Ping(Pinged),
}

impl Waiter {
    fn fail(self, error: &Error) -> Home {
        match self {
            Self::One(done) => done(Err(error.clone())),
            Self::All(done) => done(Err(error.clone())),
            Self::Ping(done) => done(Err(error.clone())),
        }
    }
}

impl Job {
    pub(super) fn one(request: Request, now: Option<u64>, timeout: Duration, done: Done) -> Self {
        Self { requests: vec![request], now, deadline: Instant::now() + timeout, done: Waiter::One(done) }
    }

    pub(super) fn all(requests: Vec<Request>, now: Option<u64>, timeout: Duration, done: AllDone) -> Self {
        Self { requests, now, deadline: Instant::now() + timeout, done: Waiter::All(done) }
    }

    pub(super) fn ping(timeout: Duration, done: Pinged) -> Self {
        Self { requests: Vec::new(), now: None, deadline: Instant::now() + timeout, done: Waiter::Ping(done) }
    }

    pub(super) fn fail(self, error: &Error) -> Home {
        self.done.fail(error)
    }

    /// What must agree for two jobs to travel together: nothing for a job that stands or falls as a whole.
    fn fold(&self) -> Option<(Option<u64>, bool)> {
        match self.done {
            Waiter::One(_) => Some((self.now, self.requests[0].plan.has_companions())),
            Waiter::All(_) | Waiter::Ping(_) => None,
        }
    }
}

/// The way in: cheap to call from any thread.
pub(super) struct Engine {
    jobs: UnboundedSender<Option<Job>>,
}

impl Engine {
    pub(super) fn start(target: Target) -> Result<Self> {
        let (sender, receiver) = unbounded_channel();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| cannot_start(&error))?;
        std::thread::Builder::new()
            .name("tidegate-redis".to_owned())
            .spawn(move || runtime.block_on(Loop::new(target).run(receiver)))
            .map_err(|error| cannot_start(&error))?;
        Ok(Self { jobs: sender })
    }

    pub(super) fn enqueue(&self, job: Job) {
        if let Err(refused) = self.jobs.send(Some(job))
            && let Some(job) = refused.0
        {
            tell(job.fail(&closed()));
        }
    }

    /// Ends the thread; what waits is answered with `closed`.
    pub(super) fn stop(&self) {
        // The thread is gone already when this fails.
        let _ = self.jobs.send(None);
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.stop();
    }
}

fn cannot_start(error: &std::io::Error) -> Error {
    Error::new(ErrorKind::StoreUnavailable, format!("the thread for Redis cannot be started: {error}"))
}

fn closed() -> Error {
    Error::new(ErrorKind::Closed, "the limiter is closed")
}

/// Jobs that travel as one call.
struct Flight {
    batch: Batch,
    waiters: Vec<Waiter>,
    reply: Result<Value>,
    lost: bool,
}

struct Loop {
    target: Arc<Target>,
    waiting: VecDeque<Job>,
    connection: Option<MultiplexedConnection>,
}

impl Loop {
    fn new(target: Target) -> Self {
        Self { target: Arc::new(target), waiting: VecDeque::new(), connection: None }
    }

    async fn run(mut self, mut jobs: UnboundedReceiver<Option<Job>>) {
        let mut flights = FuturesUnordered::new();
        let mut open = true;
        while open || !flights.is_empty() {
            let oldest = self.waiting.front().map(|job| job.deadline);
            tokio::select! {
                biased;
                Some(flight) = flights.next(), if !flights.is_empty() => self.land(flight),
                job = jobs.recv(), if open => {
                    open = self.gather(job.flatten(), &mut jobs);
                }
                () = expiry(oldest), if oldest.is_some() => self.expire(),
            }
            while self.departs(flights.len()) {
                if !self.ready().await {
                    break;
                }
                let Some(connection) = self.connection.clone() else { break };
                if let Some((batch, waiters)) = self.board() {
                    flights.push(fly(Arc::clone(&self.target), connection, batch, waiters));
                }
            }
        }
        let mut homes = Homes::default();
        for job in self.waiting.drain(..) {
            homes.add(job.fail(&closed()));
        }
        jobs.close();
        while let Some(job) = jobs.recv().await {
            if let Some(job) = job {
                homes.add(job.fail(&closed()));
            }
        }
    }

    /// Whether the next call goes now.
    fn departs(&self, flights: usize) -> bool {
        match self.waiting.len() {
            0 => false,
            _ if self.target.fold == 1 => flights < LONE_FLIGHTS,
            waiting => flights == 0 || flights < FLIGHTS && waiting >= WORTH,
        }
    }

    /// Takes a job and all that came with it; says whether more will come.
    fn gather(&mut self, first: Option<Job>, jobs: &mut UnboundedReceiver<Option<Job>>) -> bool {
        let Some(first) = first else { return false };
        self.waiting.push_back(first);
        while let Ok(job) = jobs.try_recv() {
            match job {
                Some(job) => self.waiting.push_back(job),
                None => return false,
            }
        }
        true
    }

    fn next_if(&mut self, wanted: impl FnOnce(&Job) -> bool) -> Option<Job> {
        self.waiting.front().is_some_and(wanted).then(|| self.waiting.pop_front()).flatten()
    }

    fn expire(&mut self) {
        let now = Instant::now();
        let mut homes = Homes::default();
        while let Some(job) = self.next_if(|job| job.deadline <= now) {
            homes.add(job.fail(&failure::late(&self.target.shown, self.target.timeout)));
        }
    }

    /// Connects where that is needed; when it fails, everything that waits fails with it.
    async fn ready(&mut self) -> bool {
        if self.connection.is_some() {
            return true;
        }
        let timeout = self.target.timeout;
        let config =
            AsyncConnectionConfig::new().set_connection_timeout(Some(timeout)).set_response_timeout(Some(timeout));
        match self.target.client.get_multiplexed_async_connection_with_config(&config).await {
            Ok(connection) => {
                self.connection = Some(connection);
                true
            }
            Err(error) => {
                let error = failure::of(&error, &self.target.shown, timeout);
                let mut homes = Homes::default();
                for job in self.waiting.drain(..) {
                    homes.add(job.fail(&error));
                }
                false
            }
        }
    }

    /// The next jobs that may travel together, oldest first.
    fn board(&mut self) -> Option<(Batch, Vec<Waiter>)> {
        self.expire();
        let first = self.waiting.pop_front()?;
        let (fold, now) = (first.fold(), first.now);
        let together = matches!(first.done, Waiter::All(_));
        let (mut requests, mut waiters) = (first.requests, vec![first.done]);
        while fold.is_some() && waiters.len() < self.target.fold {
            match self.next_if(|job| job.fold() == fold) {
                Some(job) => {
                    requests.extend(job.requests);
                    waiters.push(job.done);
                }
                None => break,
            }
        }
        Some((Batch::new(Arc::clone(&self.target.prefix), now, together, requests), waiters))
    }

    fn land(&mut self, flight: Flight) {
        if flight.lost {
            self.connection = None;
        }
        let Flight { batch, waiters, reply, .. } = flight;
        // Woken when all answers of the flight are given out, not once for each.
        let mut homes = Homes::default();
        match reply.and_then(|reply| batch.answers(reply)) {
            Err(error) => waiters.into_iter().for_each(|waiter| homes.add(waiter.fail(&error))),
            Ok(answers) => {
                let mut answers = answers.into_iter();
                for waiter in waiters {
                    homes.add(match waiter {
                        Waiter::One(done) => {
                            done(answers.next().unwrap_or_else(|| Err(failure::silence(&self.target.shown))))
                        }
                        Waiter::All(done) => done(answers.by_ref().collect::<Result<Vec<Answer>>>()),
                        Waiter::Ping(done) => done(Ok(())),
                    });
                }
            }
        }
    }
}

async fn expiry(oldest: Option<Instant>) {
    if let Some(deadline) = oldest {
        tokio::time::sleep_until(deadline).await;
    }
}

async fn fly(target: Arc<Target>, mut connection: MultiplexedConnection, batch: Batch, waiters: Vec<Waiter>) -> Flight {
    let reply = async {
        if matches!(waiters[..], [Waiter::Ping(_)]) {
            connection.send_packed_command(&redis::cmd("PING")).await?;
            return Ok(Value::Array(vec![Value::Int(0), Value::Array(Vec::new())]));
        }
        let reply = connection.send_packed_command(&batch.command()).await?;
        if is_unknown_script(&reply) {
            return connection.send_packed_command(&batch.command_in_full()).await;
        }
        Ok::<Value, RedisError>(reply)
    };
    let reply = reply.await;
    let lost = reply.as_ref().is_err_and(|error| error.is_unrecoverable_error() || error.is_connection_dropped());
    let reply = reply.map_err(|error| failure::of(&error, &target.shown, target.timeout));
    Flight { batch, waiters, reply, lost }
}
