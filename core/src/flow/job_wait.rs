//! When a refused job of a task queue asks again.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::Duration;

use crate::algorithm::{Algorithm, Limit, Period};
use crate::decision::{Decision, LimitState};
use crate::error::Result;
use crate::limiter::{AsyncLimiter, Call, CheckOptions, Limiter, LimiterCore, on_this_thread};
use crate::policy::{Options, Policy};
use crate::process::waits::Waits;

/// A line has room for the jobs that a limit admits in this many seconds, or in 50 of its periods if they are longer.
const LINE: f64 = 7.0 * 86_400.0;
const MOST: f64 = 1e12;
/// How many seconds a job waits for a store that is missing.
const STORE_MISSING: f64 = 1.0;
/// The length of a job, in seconds, before any has ended.
const USUAL_LENGTH: f64 = 0.25;

/// A job that was refused.
#[derive(Debug, Clone)]
pub struct RefusedJob {
    /// The policy of its Decision, with the limits that its key has.
    pub policy: Policy,
    /// The key of its Decision.
    pub key: String,
    /// True if the store failed and the policy refuses calls then.
    pub unavailable: bool,
    /// The wait that the Decision names.
    pub retry_after: Option<Duration>,
    /// The state of each limit of the policy.
    pub limits: Vec<RefusingLimit>,
    /// True if it was refused before, and asked again when it was told to.
    pub came_back: bool,
    /// The typical run time of jobs in this process, if any has ended. The length of holds in other processes is not known.
    pub usual_length: Option<Duration>,
}

/// A limit of the Decision that refused a job.
#[derive(Debug, Clone, Copy)]
pub struct RefusingLimit {
    /// True if it refused.
    pub exceeded: bool,
    /// The time until it admits the cost.
    pub retry_after: Option<Duration>,
    /// The time until it is as if unused.
    pub reset_after: Duration,
    /// The units that the job asked of it.
    pub cost: u64,
    /// The most units that it admits at once.
    pub limit: u64,
}

impl RefusedJob {
    /// The job that a Decision refused.
    #[must_use]
    pub fn of(decision: &Decision, came_back: bool, usual_length: Option<Duration>) -> Self {
        let limit = |LimitState { exceeded, retry_after, reset_after, cost, limit, .. }| RefusingLimit {
            exceeded,
            retry_after,
            reset_after,
            cost,
            limit,
        };
        Self {
            policy: decision.plan().policy.clone(),
            key: decision.key().to_owned(),
            unavailable: decision.unavailable(),
            retry_after: decision.retry_after(),
            limits: decision.limits().map(limit).collect(),
            came_back,
            usual_length,
        }
    }

    /// The limit that refuses longest. Concurrency comes last, because its wait is not known.
    fn refusing(&self) -> Option<(&Limit, &RefusingLimit)> {
        let order = |(limit, state): &(&Limit, &RefusingLimit)| {
            (state.exceeded, limit.algorithm() != Algorithm::Concurrency, state.retry_after.unwrap_or_default())
        };
        // The first of equal ones counts.
        self.policy.limits().iter().zip(&self.limits).rev().max_by_key(order)
    }

    /// The rest of a block of the key, in seconds. No limit names such a wait.
    fn blocked(&self) -> f64 {
        let wait = seconds(self.retry_after);
        if self.limits.iter().all(|limit| wait > seconds(limit.retry_after)) { wait } else { 0.0 }
    }

    /// The length of a job in seconds: a power of two, so that processes agree on the policy of a line.
    fn length(&self) -> f64 {
        let usual = self.usual_length.map_or(USUAL_LENGTH, |length| length.as_secs_f64().clamp(0.01, 86_400.0));
        usual.log2().floor().exp2()
    }
}

#[doc(hidden)]
impl Limiter {
    /// As [`AsyncLimiter::job_wait`], on this thread.
    ///
    /// # Errors
    /// As `check`.
    pub fn job_wait(&self, job: &RefusedJob) -> Result<Duration> {
        on_this_thread(job_wait(&self.core, job, Waits::Here))
    }
}

#[doc(hidden)]
impl AsyncLimiter {
    /// The time until a refused job asks again.
    ///
    /// A single job waits exactly as long as its Decision asks. If many jobs wait for a key, each gets a different moment: they stand in a
    /// line, a leaky-bucket in the store with the rate of the limit that refused. Jobs that are refused again at their moment stand in a
    /// separate line, so that they are not behind all others.
    ///
    /// # Errors
    /// As `check`.
    pub async fn job_wait(&self, job: &RefusedJob) -> Result<Duration> {
        job_wait(&self.core, job, Waits::TASK).await
    }
}

async fn job_wait(core: &Arc<LimiterCore>, job: &RefusedJob, waits: Waits) -> Result<Duration> {
    let Some((limit, state)) = job.refusing().filter(|_| !job.unavailable) else {
        return Ok(length(seconds(job.retry_after).max(STORE_MISSING * (1.0 + random_share()))));
    };
    let is_held = limit.algorithm() == Algorithm::Concurrency;
    let mut period = if is_held { job.length() } else { limit.period().micros() as f64 / 1e6 };
    if limit.algorithm() == Algorithm::SlidingWindow {
        // Units leave the window one granule after the period.
        period += period / f64::from(limit.precision());
    }
    let count = limit.count().max(1) as f64;
    let key = format!("line:{}:{}:{}", job.policy.name(), u8::from(job.came_back), job.key);
    let call = Call::check(CheckOptions::of_cost(state.cost));
    let stood = core.call_of(&line(count, period)?, &key, &call, waits).await?;
    let delay = if stood.allowed() { stood.delay() } else { stood.reset_after() }.as_secs_f64();
    if is_held {
        return Ok(length((delay + state.cost as f64 * period / count).max(job.blocked())));
    }
    // The used units come back between `retry_after` and `reset_after`. They admit the first batch, then the next follows.
    let batch = state.limit.max(1) as f64 * period / count;
    let (within, retry) = (delay % batch, seconds(state.retry_after));
    let spread = (state.reset_after.as_secs_f64() - retry).max(0.0);
    Ok(length(retry.max(job.blocked()) + delay - within + spread * within / batch))
}

/// The policy of a line.
fn line(count: f64, period: f64) -> Result<Policy> {
    let room = (count * (LINE / period).ceil().max(50.0)).min(MOST).max(count);
    let period = Period::from_micros((period * 1e6).round() as u64)?;
    let limit = Limit::new(Algorithm::LeakyBucket, count as u64, period)?.with_burst(room as u64)?;
    Policy::new(vec![limit], Options::default())
}

fn seconds(length: Option<Duration>) -> f64 {
    length.unwrap_or_default().as_secs_f64()
}

fn length(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)
}

/// From 0 to 1, another one each time.
pub(crate) fn random_share() -> f64 {
    RandomState::new().hash_one(0_u8) as f64 / u64::MAX as f64
}
