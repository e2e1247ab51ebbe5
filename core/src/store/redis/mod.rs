//! One Redis or Valkey server: blocking calls on the calling thread, others through one engine that folds them.

mod engine;
mod failure;
mod pool;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use redis::{Client, Value};

use super::url::Server;
use super::{AllDone, Answer, Done, Entry, Pinged, Store, tell};
use crate::error::{Error, ErrorKind, Result};
use crate::fork::PerProcess;
use crate::script::{Batch, Request};
use engine::{Engine, Job};
use pool::Pool;

/// What both ways to the server need to know.
#[derive(Clone)]
pub(crate) struct Target {
    pub(crate) client: Client,
    pub(crate) prefix: Arc<str>,
    pub(crate) timeout: Duration,
    /// The most requests that travel in one call.
    pub(crate) fold: usize,
    /// The URL without secrets, for messages.
    pub(crate) shown: String,
}

/// See the module.
pub(crate) struct Redis {
    target: Target,
    pool: PerProcess<Pool>,
    /// Started by the first call that does not block: a blocking program has no thread of ours.
    engine: PerProcess<Engine>,
    closed: AtomicBool,
}

impl Redis {
    /// A store on that server. Nothing is connected before the first call.
    pub(crate) fn new(server: Server, prefix: &str, timeout: Duration, fold: usize) -> Result<Self> {
        let Server { info, certificates, shown } = server;
        let client = match certificates {
            Some(certificates) => {
                // Somebody else may have installed a provider before: theirs is as good.
                let _ = rustls::crypto::ring::default_provider().install_default();
                Client::build_with_tls(info, certificates)
            }
            None => Client::open(info),
        };
        let client = client.map_err(|error| Error::config(format!("{shown} cannot be used: {error}")))?;
        let target = Target { client, prefix: prefix.into(), timeout, fold, shown };
        Ok(Self { target, pool: PerProcess::new(), engine: PerProcess::new(), closed: AtomicBool::new(false) })
    }

    fn open(&self) -> Result<()> {
        if self.closed.load(Ordering::Relaxed) {
            return Err(Error::new(ErrorKind::Closed, "the limiter is closed"));
        }
        Ok(())
    }

    fn pool(&self) -> Result<Arc<(u64, Pool)>> {
        self.open()?;
        self.pool.get_or_try_init(|| Ok(Pool::new(self.target.clone())))
    }

    fn requests(&self, entries: &[Entry<'_>]) -> Vec<Request> {
        entries.iter().map(|entry| Request::new(&self.target.prefix, entry)).collect()
    }

    fn run(&self, requests: Vec<Request>, now: Option<u64>, together: bool) -> Result<Vec<Result<Answer>>> {
        let pool = self.pool()?;
        let batch = Batch::new(Arc::clone(&self.target.prefix), now, together, requests);
        batch.answers(pool.1.call(&batch)?)
    }

    fn enqueue(&self, job: Job) {
        let engine = self.open().and_then(|()| self.engine.get_or_try_init(|| Engine::start(self.target.clone())));
        match engine {
            Ok(engine) => engine.1.enqueue(job),
            Err(error) => tell(job.fail(&error)),
        }
    }
}

/// Whether the server does not know the script, so that the call did not run.
fn is_unknown_script(reply: &Value) -> bool {
    matches!(reply, Value::ServerError(error) if error.code() == "NOSCRIPT")
}

impl Store for Redis {
    fn ask(&self, entry: &Entry<'_>, now: Option<u64>) -> Result<Answer> {
        let request = vec![Request::new(&self.target.prefix, entry)];
        self.run(request, now, false)?.pop().unwrap_or_else(|| Err(failure::silence(&self.target.shown)))
    }

    fn ask_all(&self, entries: &[Entry<'_>], now: Option<u64>) -> Result<Vec<Answer>> {
        self.run(self.requests(entries), now, true)?.into_iter().collect()
    }

    fn submit(&self, entry: &Entry<'_>, now: Option<u64>, done: Done) {
        self.enqueue(Job::one(Request::new(&self.target.prefix, entry), now, self.target.timeout, done));
    }

    fn submit_all(&self, entries: &[Entry<'_>], now: Option<u64>, done: AllDone) {
        self.enqueue(Job::all(self.requests(entries), now, self.target.timeout, done));
    }

    fn ping(&self) -> Result<()> {
        self.pool()?.1.ping()
    }

    fn submit_ping(&self, done: Pinged) {
        self.enqueue(Job::ping(self.target.timeout, done));
    }

    fn close(&self) {
        self.closed.store(true, Ordering::Relaxed);
        if let Some(pool) = self.pool.get() {
            pool.1.clear();
        }
        if let Some(engine) = self.engine.get() {
            engine.1.stop();
        }
    }

    fn at_hand(&self, _: &Entry<'_>, _: Option<u64>) -> Option<Result<Answer>> {
        None
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        self.close();
    }
}
