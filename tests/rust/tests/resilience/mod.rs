//! The layers around a shared store, on real servers that are killed, stopped and started again.

mod breaker;
mod continuation;
mod deny_cache;
mod fallback;
mod holds;
mod outages;
mod overrides;
mod partial;
mod rollout;
mod shards;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tidegate::{Builder, Limiter, ManualClock, StoreChange};
use tidegate_tests::any_limiter::AnyLimiter;
use tidegate_tests::servers::Servers;
use tidegate_tests::wait::wait_until;

/// Long enough for a server that answers on a busy machine, short enough for one that does not.
const TIMEOUT: Duration = Duration::from_secs(2);
const SECOND: Duration = Duration::from_secs(1);

fn builder(url: &str) -> Builder {
    Limiter::builder().store(url).timeout(TIMEOUT)
}

fn clock() -> Arc<ManualClock> {
    Arc::new(ManualClock::new(Duration::from_secs(1_800_000_000)))
}

/// How often the server ran a script.
fn scripts(server: &Servers) -> u64 {
    server.calls(0, "evalsha") + server.calls(0, "eval")
}

/// Every `StoreChange` of a limiter.
#[derive(Clone, Default)]
pub(crate) struct ChangeLog(Arc<Mutex<Vec<StoreChange>>>);

impl ChangeLog {
    pub(crate) fn record(&self, builder: Builder) -> Builder {
        let changes = Arc::clone(&self.0);
        builder.on_change(Arc::new(move |change| changes.lock().expect("no panic").push(change.clone())))
    }

    pub(crate) fn all(&self) -> Vec<StoreChange> {
        self.0.lock().expect("no panic").clone()
    }

    pub(crate) fn states(&self) -> Vec<&'static str> {
        self.all().iter().map(|change| change.state.name()).collect()
    }
}

/// Waits for a condition that takes less than half a minute unless something is broken.
#[track_caller]
pub(crate) fn soon(what: &str, holds: impl FnMut() -> bool) -> Duration {
    wait_until(30 * SECOND, what, holds)
}

/// A limiter with an open connection, because the first one may take longer than a call may.
fn warm(builder: Builder, is_async: bool) -> AnyLimiter {
    let limiter = AnyLimiter::new(builder, is_async).expect("a limiter");
    soon("the server answers", || limiter.ping().is_ok());
    limiter
}
