//! Redis or Valkey: blocking calls on the calling thread, others through one engine that folds them.

mod chart;
mod desk;
mod engine;
mod failure;
mod flight;
mod hello;
mod job;
mod lane;
mod link;
mod lookout;
mod party;
mod ping;
mod pool;
mod resp;
pub(crate) mod script;
mod socket;
mod survey;
mod tls;
mod verdict;
#[cfg(target_os = "linux")]
mod watched;
mod wire;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::Store;
use super::batch_guard::BatchGuard;
use super::call_context::CallContext;
use super::completion::{BatchCompletion, MakeCompletion, PingCompletion, wake};
use super::layer_states::LayerStates;
use super::request::{Answer, Entry, Operation};
use super::url::Endpoints;
use crate::error::{Error, ErrorKind, Result};
use crate::fork::{PerProcess, ProcessValue};
use engine::Engine;
use job::{Job, Ride};
use party::Party;
use pool::Pools;
use script::{Grouping, Request};
use survey::Survey;

pub(crate) use lookout::{Lookout, Set};

/// How long a call waits before it asks a server again that could not serve it.
const PAUSE: Duration = Duration::from_millis(5);
/// The least time between two looks at who serves what.
const SURVEYS: Duration = Duration::from_millis(100);

/// How old a chart may be whose replicas are asked: those that come back are found by nobody else.
const REPLICAS: Duration = Duration::from_secs(5);
/// A call that is sent from node to node this often waits a little before the next time.
const HOPS: u8 = 4;

/// What both ways to the servers need to know.
#[derive(Clone)]
struct Target {
    prefix: Arc<str>,
    timeout: Duration,
    /// The most requests that travel in one call.
    fold: usize,
}

/// See the module.
pub(crate) struct Redis {
    target: Target,
    survey: Arc<Survey>,
    pools: PerProcess<Pools>,
    /// Started by the first call that does not block: a blocking program has no thread of ours.
    engine: PerProcess<Engine>,
    lookout: Arc<PerProcess<Lookout>>,
    closed: AtomicBool,
}

impl Redis {
    /// A store on that server or those servers. Nothing is connected before the first call.
    pub(crate) fn new(
        endpoints: Endpoints,
        prefix: &str,
        timeout: Duration,
        fold: usize,
        lookout: Arc<PerProcess<Lookout>>,
    ) -> Result<Self> {
        let target = Target { prefix: prefix.into(), timeout, fold };
        let survey = Arc::new(Survey::new(endpoints, timeout)?);
        let (pools, engine) = (PerProcess::new(), PerProcess::new());
        Ok(Self { target, survey, pools, engine, lookout, closed: AtomicBool::new(false) })
    }

    fn open(&self) -> Result<()> {
        if self.closed.load(Ordering::Relaxed) {
            return Err(Error::new(ErrorKind::Closed, "the limiter is closed"));
        }
        Ok(())
    }

    fn request(&self, entry: &Entry<'_>) -> Request {
        Request::new(&self.target.prefix, entry)
    }

    fn slot(&self, request: &Request) -> u16 {
        if self.survey.has_slots() { chart::slot_of(request.redis_key.as_bytes()) } else { 0 }
    }

    /// Whether a replica may answer.
    fn reads(&self, operation: &Operation) -> bool {
        self.survey.reads_replicas() && matches!(operation, Operation::Peek { .. })
    }

    fn pools(&self) -> Result<Arc<ProcessValue<Pools>>> {
        self.open()?;
        self.pools.get_or_try_init(|| Ok(Pools::new(Arc::clone(&self.survey), Arc::clone(&self.target.prefix))))
    }

    /// Runs requests of one slot.
    fn run(
        &self,
        requests: Vec<Request>,
        grouping: Grouping,
        now: Option<u64>,
        reads: bool,
        deadline: Instant,
    ) -> Result<Vec<Result<Answer>>> {
        let pools = self.pools()?;
        let slot = requests.first().map_or(0, |request| self.slot(request));
        pools.run(requests, grouping, now, slot, reads, deadline)
    }

    fn engine(&self) -> Result<Arc<ProcessValue<Engine>>> {
        self.open()?;
        self.engine.get_or_try_init(|| {
            let engine = Engine::start(self.target.clone(), Arc::clone(&self.survey))?;
            self.lookout.with(Lookout::default, |lookout| engine.enroll(lookout));
            Ok(engine)
        })
    }

    fn is_of_one_slot(&self, requests: &[Request]) -> bool {
        !self.survey.has_slots() || requests.windows(2).all(|pair| self.slot(&pair[0]) == self.slot(&pair[1]))
    }

    /// Requests of several slots, which stand or fall together all the same.
    fn gather(&self, requests: Vec<Request>, now: Option<u64>, deadline: Instant, done: BatchCompletion) {
        match self.engine() {
            Ok(engine) => {
                let slots = requests.iter().map(|request| self.slot(request)).collect();
                let times = (deadline.into(), self.target.timeout);
                Party::gather(engine, requests, slots, now, times, done);
            }
            Err(error) => wake(done(Err(error))),
        }
    }

    fn enqueue(&self, job: Job, batch: Option<&BatchGuard>) {
        match self.engine() {
            Ok(engine) => engine.enqueue(job, batch),
            Err(error) => wake(job.fail(&error)),
        }
    }

    /// Of a call that begins now.
    fn deadline(&self, context: CallContext<'_>) -> Instant {
        context.deadline.unwrap_or_else(|| Instant::now() + self.target.timeout)
    }

    /// A ping never takes longer than any other call.
    fn ping_deadline(&self, context: CallContext<'_>) -> Instant {
        let latest = Instant::now() + self.target.timeout;
        context.deadline.map_or(latest, |deadline| deadline.min(latest))
    }

    fn silence(&self) -> Error {
        failure::silence(self.survey.shown())
    }
}

impl Store for Redis {
    fn ask(&self, entry: &Entry<'_>, context: CallContext<'_>) -> Result<Answer> {
        let (requests, deadline) = (vec![self.request(entry)], self.deadline(context));
        let answers = self.run(requests, Grouping::Independent, context.now, self.reads(&entry.operation), deadline);
        answers?.pop().unwrap_or_else(|| Err(self.silence()))
    }

    fn ask_all(&self, entries: &[Entry<'_>], context: CallContext<'_>) -> Result<Vec<Answer>> {
        let deadline = self.deadline(context);
        let requests: Vec<Request> = entries.iter().map(|entry| self.request(entry)).collect();
        if self.is_of_one_slot(&requests) {
            return self.run(requests, Grouping::AllOrNothing, context.now, false, deadline)?.into_iter().collect();
        }
        // Several nodes are asked at the same time, which the engine does.
        let (answer, answered) = std::sync::mpsc::channel();
        self.gather(
            requests,
            context.now,
            deadline,
            Box::new(move |result| {
                // Nobody may be waiting any more.
                let _ = answer.send(result);
                None
            }),
        );
        let left = deadline.saturating_duration_since(Instant::now()) + PAUSE;
        let late = || failure::late(self.survey.shown(), self.target.timeout);
        answered.recv_timeout(left).unwrap_or_else(|_| Err(late()))
    }

    fn submit(
        &self,
        entry: &Entry<'_>,
        context: CallContext<'_>,
        states: &mut LayerStates,
        make: MakeCompletion<'_>,
    ) -> Option<Result<Answer>> {
        let ride = Ride::new(self.deadline(context).into(), self.reads(&entry.operation));
        let request = self.request(entry);
        let slot = self.slot(&request);
        self.enqueue(Job::one(request, context.now, slot, ride, make(*states)), context.batch);
        None
    }

    fn submit_all(&self, entries: &[Entry<'_>], context: CallContext<'_>, done: BatchCompletion) {
        let deadline = self.deadline(context);
        let requests: Vec<Request> = entries.iter().map(|entry| self.request(entry)).collect();
        if !self.is_of_one_slot(&requests) {
            return self.gather(requests, context.now, deadline, done);
        }
        let slot = requests.first().map_or(0, |request| self.slot(request));
        let job = Job::all(requests, Grouping::AllOrNothing, context.now, slot, deadline.into(), done);
        self.enqueue(job, context.batch);
    }

    fn ping(&self, context: CallContext<'_>) -> Result<()> {
        ping::all(&*self.pools()?, self.ping_deadline(context))
    }

    fn submit_ping(&self, context: CallContext<'_>, done: PingCompletion) {
        let deadline = self.ping_deadline(context);
        if !self.survey.has_slots() {
            let (request, ride) = (ping::request(&self.target.prefix, 0), Ride::new(deadline.into(), false));
            let job = Job::one(request, None, 0, ride, Box::new(|answer| done(answer.map(drop))));
            return self.enqueue(job, context.batch);
        }
        // Every node is asked, which only the blocking way knows how to do.
        let pools = match self.pools() {
            Ok(pools) => pools,
            Err(error) => return wake(done(Err(error))),
        };
        let done = Arc::new(parking_lot::Mutex::new(Some(done)));
        let answer = Arc::clone(&done);
        let finish = move |result| {
            let done = answer.lock().take();
            if let Some(done) = done {
                wake(done(result));
            }
        };
        let run = {
            let finish = finish.clone();
            move || finish(ping::all(&pools, deadline))
        };
        if let Err(error) = std::thread::Builder::new().name("tidegate-ping".to_owned()).spawn(run) {
            finish(Err(engine::cannot_start(&error)));
        }
    }

    fn close(&self) {
        self.closed.store(true, Ordering::Relaxed);
        if let Some(pools) = self.pools.get() {
            pools.clear();
        }
        if let Some(engine) = self.engine.get() {
            engine.stop();
        }
    }

    fn try_immediate(&self, _: &Entry<'_>, _: CallContext<'_>) -> Option<Result<Answer>> {
        None
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        self.close();
    }
}
