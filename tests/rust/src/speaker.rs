//! Both limiters behind one face, so that a test says once what both must do.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tidegate::{AsPolicy, AsyncLimiter, Attempt, Builder, CheckOptions, Decision, HoldAnswer, Limiter, Result};
use tokio::runtime::Runtime;

/// A limiter for threads or one for tasks.
pub enum Speaker {
    /// For threads.
    Blocking(Limiter),
    /// For tasks, with what runs them.
    Tasks(AsyncLimiter, Runtime),
}

/// One line for each call: the same words, awaited where that is needed.
macro_rules! both {
    ($speaker:expr, $limiter:ident => $call:expr) => {
        match $speaker {
            Speaker::Blocking($limiter) => $call,
            Speaker::Tasks($limiter, runtime) => runtime.block_on($call),
        }
    };
}

/// A prefix that no other limiter of this process uses, and with which no other begins: what follows a prefix is a digest,
/// which may go on as a longer number would.
#[must_use]
pub fn fresh_prefix() -> String {
    static USED: AtomicU64 = AtomicU64::new(0);
    format!("t{}-{:08}", std::process::id(), USED.fetch_add(1, Ordering::Relaxed))
}

/// What runs tasks in a test.
///
/// # Panics
/// When the system has no threads left.
#[must_use]
pub fn runtime() -> Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime")
}

#[expect(missing_docs, clippy::missing_errors_doc, reason = "the calls of the limiters, as they are")]
impl Speaker {
    pub fn new(builder: Builder, tasks: bool) -> Result<Self> {
        Ok(if tasks { Self::Tasks(builder.build_async()?, runtime()) } else { Self::Blocking(builder.build()?) })
    }

    pub fn check(&self, policy: impl AsPolicy, key: &str, cost: u64, meta: Option<Vec<u8>>) -> Result<Decision> {
        let options = CheckOptions { cost, meta };
        both!(self, limiter => limiter.check_with(policy, key, &options))
    }

    pub fn peek(&self, policy: impl AsPolicy, key: &str, cost: u64) -> Result<Decision> {
        both!(self, limiter => limiter.peek(policy, key, cost))
    }

    pub fn charge(&self, policy: impl AsPolicy, key: &str, cost: u64) -> Result<Decision> {
        both!(self, limiter => limiter.charge(policy, key, cost))
    }

    pub fn refund(&self, policy: impl AsPolicy, key: &str, cost: u64) -> Result<Decision> {
        both!(self, limiter => limiter.refund(policy, key, cost))
    }

    pub fn settle(&self, decision: &Decision, actual: u64) -> Result<()> {
        both!(self, limiter => limiter.settle(decision, actual))
    }

    pub fn check_all(&self, entries: &[(String, String, u64)]) -> Result<Decision> {
        let entries = entries.iter().map(|(policy, key, cost)| (policy.as_str(), key.as_str(), *cost));
        both!(self, limiter => limiter.check_all(entries))
    }

    pub fn hold(&self, policy: impl AsPolicy, key: &str, cost: u64) -> Result<HoldAnswer> {
        both!(self, limiter => limiter.hold(policy, key, cost))
    }

    pub fn block(&self, policy: impl AsPolicy, key: &str, length: Duration) -> Result<()> {
        both!(self, limiter => limiter.block(policy, key, length))
    }

    pub fn unblock(&self, policy: impl AsPolicy, key: &str) -> Result<()> {
        both!(self, limiter => limiter.unblock(policy, key))
    }

    pub fn clear(&self, policy: impl AsPolicy, key: &str) -> Result<()> {
        both!(self, limiter => limiter.clear(policy, key))
    }

    pub fn journal(&self, policy: impl AsPolicy, key: &str) -> Result<Vec<Attempt>> {
        both!(self, limiter => limiter.journal(policy, key))
    }

    pub fn ping(&self) -> Result<()> {
        both!(self, limiter => limiter.ping())
    }

    pub fn reload(&self) -> Result<()> {
        match self {
            Self::Blocking(limiter) => limiter.reload(),
            Self::Tasks(limiter, _) => limiter.reload(),
        }
    }

    pub fn close(&self) {
        match self {
            Self::Blocking(limiter) => limiter.close(),
            Self::Tasks(limiter, _) => limiter.close(),
        }
    }
}
