//! A clock for tests.

use std::sync::Arc;
use std::time::Duration;

use napi_derive::napi;

use crate::number::micros;

/// A clock that moves only by `set`.
#[napi]
pub struct Clock {
    pub(crate) clock: Arc<tidegate::ManualClock>,
}

#[napi]
impl Clock {
    /// A clock that stands at that many milliseconds since 1970.
    #[napi(factory, catch_unwind)]
    pub fn at(now: f64) -> Self {
        Self { clock: Arc::new(tidegate::ManualClock::new(time(now))) }
    }

    /// Sets the time, also to an earlier one.
    #[napi(catch_unwind)]
    pub fn set(&self, now: f64) {
        self.clock.set(time(now));
    }
}

/// Converts a time that the TypeScript side has checked.
fn time(milliseconds: f64) -> Duration {
    Duration::from_micros(micros(milliseconds).unwrap_or_default())
}
