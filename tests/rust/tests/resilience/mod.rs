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
use tidegate_tests::lateness::stretched;
use tidegate_tests::servers::Servers;
use tidegate_tests::wait::wait_until;

/// Long enough for a server that answers on a busy machine, short enough for one that does not.
const TIMEOUT: Duration = Duration::from_millis(150);
const SECOND: Duration = Duration::from_secs(1);

fn timeout() -> Duration {
    stretched(TIMEOUT)
}

fn builder(url: &str) -> Builder {
    Limiter::builder().store(url).timeout(timeout())
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
struct ChangeLog(Arc<Mutex<Vec<StoreChange>>>);

impl ChangeLog {
    fn record(&self, builder: Builder) -> Builder {
        let changes = Arc::clone(&self.0);
        builder.on_change(Arc::new(move |change| changes.lock().expect("no panic").push(change.clone())))
    }

    fn all(&self) -> Vec<StoreChange> {
        self.0.lock().expect("no panic").clone()
    }

    fn states(&self) -> Vec<&'static str> {
        self.all().iter().map(|change| change.state.name()).collect()
    }
}

/// Waits for what takes less than ten seconds unless something is broken.
#[track_caller]
fn soon(what: &str, holds: impl FnMut() -> bool) -> Duration {
    wait_until(10 * SECOND, what, holds)
}

/// A limiter whose first connection may take longer than a call may.
fn warm(builder: Builder, is_async: bool) -> AnyLimiter {
    let limiter = AnyLimiter::new(builder, is_async).expect("a limiter");
    soon("the server answers", || limiter.ping().is_ok());
    limiter
}
