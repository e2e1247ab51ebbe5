//! How long `acquire` waits, by the limiter's clock.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::decision::Decision;
use crate::limiter::LimiterCore;
use crate::process::clock::{ManualClock, Signal};

/// The longest sleep where others wait in other processes: the place in their line is kept for a second. And the shortest.
const MAX_SLEEP: Duration = Duration::from_millis(400);
const MIN_SLEEP: Duration = Duration::from_millis(1);
/// The longest random addition to a sleep, in microseconds.
const MAX_JITTER: u64 = 5_000;

/// A deadline, and the sleeps before it.
pub(super) struct WaitDeadline<'a> {
    core: &'a LimiterCore,
    clock: Option<&'a Arc<ManualClock>>,
    began: Instant,
    began_manually: Duration,
    timeout: Option<Duration>,
}

impl<'a> WaitDeadline<'a> {
    pub(super) fn new(core: &'a LimiterCore, timeout: Option<Duration>) -> Self {
        let clock = core.clock.as_ref();
        let began_manually = clock.map_or(Duration::ZERO, |clock| clock.now());
        Self { core, clock, began: Instant::now(), began_manually, timeout }
    }

    /// Has a clock that is moved by hand notify the signal: such a clock does not end a sleep by itself.
    pub(super) fn listen(&self, signal: &Arc<Signal>) {
        if let Some(clock) = self.clock {
            clock.notify_on_change(signal);
        }
    }

    pub(super) fn left(&self) -> Option<Duration> {
        let passed = match self.clock {
            Some(clock) => clock.now().saturating_sub(self.began_manually),
            None => self.began.elapsed(),
        };
        self.timeout.map(|timeout| timeout.saturating_sub(passed))
    }

    pub(super) fn is_over(&self) -> bool {
        self.left().is_some_and(|left| left.is_zero())
    }

    /// How long to sleep before asking again. `None` when asking again is of no use: the check was admitted, never will
    /// be, or not before the deadline.
    pub(super) fn pause(&self, decision: &Decision) -> Option<Duration> {
        if decision.allowed() || self.is_over() {
            return None;
        }
        let wait = decision.retry_after()?;
        // The addition is never negative, so that no check is too early: up to a sixteenth of the wait.
        let random = self.core.hold_count.fetch_add(0x9e37_79b9, Ordering::Relaxed) ^ self.core.seed;
        let jitter = random % (wait.as_micros() as u64 / 16 + 1).min(MAX_JITTER);
        match self.left() {
            Some(left) if wait > left => None,
            // In memory nothing else waits.
            _ if self.core.layers.is_none() => Some(wait + Duration::from_micros(jitter)),
            _ => Some((wait + Duration::from_micros(jitter)).clamp(MIN_SLEEP, MAX_SLEEP)),
        }
    }

    /// The longest that a sleep may take: until the pause or the deadline is over. `None` is without end, for a clock that
    /// is moved by hand and wakes the sleeper.
    pub(super) fn sleep(&self, pause: Option<Duration>) -> Option<Duration> {
        if self.clock.is_some() {
            return None;
        }
        match (pause, self.left()) {
            (Some(pause), _) => Some(pause),
            (None, left) => left,
        }
    }
}
