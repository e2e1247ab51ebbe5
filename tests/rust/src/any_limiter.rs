//! The blocking and the async limiter behind one interface, so that a test states once what both must do.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tidegate::{
    AsPolicy, AsyncLimiter, Attempt, Builder, CheckOptions, Cost, Decision, HoldAnswer, KeyOverride, Limiter,
    OverriddenKey, Result,
};
use tokio::runtime::Runtime;

/// A blocking limiter, or an async one with its runtime.
pub enum AnyLimiter {
    /// Calls block the thread.
    Blocking(Limiter),
    /// Calls are awaited on the runtime.
    Async(AsyncLimiter, Runtime),
}

/// The same call for both, awaited if the limiter is async.
macro_rules! call {
    ($any:expr, $limiter:ident => $call:expr) => {
        match $any {
            AnyLimiter::Blocking($limiter) => $call,
            AnyLimiter::Async($limiter, runtime) => runtime.block_on($call),
        }
    };
}

/// A prefix that no other limiter of this process uses. No prefix begins with another one: a digest follows the prefix,
/// and the digits of a shorter number could continue into it.
#[must_use]
pub fn fresh_prefix() -> String {
    static USED: AtomicU64 = AtomicU64::new(0);
    format!("t{}-{:08}", std::process::id(), USED.fetch_add(1, Ordering::Relaxed))
}

/// A runtime on the calling thread.
///
/// # Panics
/// When the system has no threads left.
#[must_use]
pub fn runtime() -> Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime")
}

#[expect(missing_docs, clippy::missing_errors_doc, reason = "the calls of both limiters, unchanged")]
impl AnyLimiter {
    pub fn new(builder: Builder, is_async: bool) -> Result<Self> {
        Ok(if is_async { Self::Async(builder.build_async()?, runtime()) } else { Self::Blocking(builder.build()?) })
    }

    pub fn check(&self, policy: impl AsPolicy, key: &str, cost: u64, meta: Option<Vec<u8>>) -> Result<Decision> {
        let options = CheckOptions { cost, meta, ..CheckOptions::default() };
        call!(self, limiter => limiter.check_with(policy, key, &options))
    }

    pub fn check_with(&self, policy: impl AsPolicy, key: &str, options: &CheckOptions) -> Result<Decision> {
        call!(self, limiter => limiter.check_with(policy, key, options))
    }

    pub fn take(&self, policy: impl AsPolicy, key: &str, cost: u64, meta: Option<Vec<u8>>) -> Result<Decision> {
        let options = CheckOptions { cost, meta, partial: true, ..CheckOptions::default() };
        call!(self, limiter => limiter.check_with(policy, key, &options))
    }

    pub fn peek(&self, policy: impl AsPolicy, key: &str, cost: impl Into<Cost>) -> Result<Decision> {
        call!(self, limiter => limiter.peek(policy, key, cost))
    }

    pub fn peek_with(&self, policy: impl AsPolicy, key: &str, options: &CheckOptions) -> Result<Decision> {
        call!(self, limiter => limiter.peek_with(policy, key, options))
    }

    pub fn charge(&self, policy: impl AsPolicy, key: &str, cost: impl Into<Cost>) -> Result<Decision> {
        call!(self, limiter => limiter.charge(policy, key, cost))
    }

    pub fn refund(&self, policy: impl AsPolicy, key: &str, cost: impl Into<Cost>) -> Result<Decision> {
        call!(self, limiter => limiter.refund(policy, key, cost))
    }

    pub fn settle(&self, decision: &Decision, actual: impl Into<Cost>) -> Result<()> {
        call!(self, limiter => limiter.settle(decision, actual))
    }

    pub fn check_all(&self, entries: &[(String, String, u64)]) -> Result<Decision> {
        let entries = entries.iter().map(|(policy, key, cost)| (policy.as_str(), key.as_str(), *cost));
        call!(self, limiter => limiter.check_all(entries))
    }

    pub fn check_all_of(&self, entries: Vec<(&str, String, CheckOptions)>) -> Result<Decision> {
        call!(self, limiter => limiter.check_all(entries))
    }

    pub fn hold(&self, policy: impl AsPolicy, key: &str, cost: impl Into<Cost>) -> Result<HoldAnswer> {
        call!(self, limiter => limiter.hold(policy, key, cost))
    }

    pub fn hold_with(&self, policy: impl AsPolicy, key: &str, options: &CheckOptions) -> Result<HoldAnswer> {
        call!(self, limiter => limiter.hold_with(policy, key, options))
    }

    pub fn block(&self, policy: impl AsPolicy, key: &str, length: Duration) -> Result<()> {
        call!(self, limiter => limiter.block(policy, key, length))
    }

    pub fn unblock(&self, policy: impl AsPolicy, key: &str) -> Result<()> {
        call!(self, limiter => limiter.unblock(policy, key))
    }

    pub fn set_override(
        &self,
        policy: impl AsPolicy,
        key: &str,
        own: Option<&KeyOverride>,
        ttl: Option<Duration>,
    ) -> Result<()> {
        call!(self, limiter => limiter.set_override(policy, key, own, ttl))
    }

    pub fn overrides(&self, policy: impl AsPolicy) -> Result<Vec<OverriddenKey>> {
        call!(self, limiter => limiter.overrides(policy))
    }

    pub fn set_rollout(&self, percent: f64) -> Result<()> {
        match self {
            Self::Blocking(limiter) => limiter.set_rollout(percent),
            Self::Async(limiter, _) => limiter.set_rollout(percent),
        }
    }

    pub fn clear(&self, policy: impl AsPolicy, key: &str) -> Result<()> {
        call!(self, limiter => limiter.clear(policy, key))
    }

    pub fn clear_all(&self) -> Result<()> {
        call!(self, limiter => limiter.clear_all())
    }

    pub fn journal(&self, policy: impl AsPolicy, key: &str) -> Result<Vec<Attempt>> {
        call!(self, limiter => limiter.journal(policy, key))
    }

    pub fn ping(&self) -> Result<()> {
        call!(self, limiter => limiter.ping())
    }

    pub fn reload(&self) -> Result<()> {
        match self {
            Self::Blocking(limiter) => limiter.reload(),
            Self::Async(limiter, _) => limiter.reload(),
        }
    }

    pub fn close(&self) {
        match self {
            Self::Blocking(limiter) => limiter.close(),
            Self::Async(limiter, _) => limiter.close(),
        }
    }
}
