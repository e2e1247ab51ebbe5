//! How long somebody waits for a limit, by the limiter's clock.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::LimiterCore;
use crate::algorithm::Rule;
use crate::clock::{ManualClock, Signal};
use crate::decision::Decision;

/// The longest sleep for a `concurrency` limit: another process may give its hold back any time.
const GLANCE: Duration = Duration::from_millis(250);

/// A deadline, and the sleeps before it.
pub(super) struct Patience<'a> {
    core: &'a LimiterCore,
    clock: Option<&'a Arc<ManualClock>>,
    began: Instant,
    began_manually: Duration,
    timeout: Option<Duration>,
}

impl<'a> Patience<'a> {
    pub(super) fn new(core: &'a LimiterCore, timeout: Option<Duration>) -> Self {
        let clock = core.clock.as_ref();
        let began_manually = clock.map_or(Duration::ZERO, |clock| clock.now());
        Self { core, clock, began: Instant::now(), began_manually, timeout }
    }

    /// A clock that moves by hand wakes who sleeps.
    pub(super) fn listen(&self, signal: &Arc<Signal>) {
        if let Some(clock) = self.clock {
            clock.tell(signal);
        }
    }

    fn left(&self) -> Option<Duration> {
        let passed = match self.clock {
            Some(clock) => clock.now().saturating_sub(self.began_manually),
            None => self.began.elapsed(),
        };
        self.timeout.map(|timeout| timeout.saturating_sub(passed))
    }

    pub(super) fn is_over(&self) -> bool {
        self.left().is_some_and(|left| left.is_zero())
    }

    /// What to sleep before asking again; `None` when asking again is of no use: it was admitted, never will be, or
    /// not before the deadline.
    pub(super) fn pause(&self, decision: &Decision) -> Option<Duration> {
        if decision.allowed() || self.is_over() {
            return None;
        }
        let concurrent = decision.plan().rules.iter().any(|rule| matches!(rule, Rule::Concurrency(_)));
        let wait = decision.retry_after()?;
        // Upward, so that it is never too early: up to a sixteenth, and no more than 5 ms.
        let random = self.core.holds.fetch_add(0x9e37_79b9, Ordering::Relaxed) ^ self.core.seed;
        let jitter = random % (wait.as_micros() as u64 / 16 + 1).min(5_000);
        match self.left() {
            // A hold may come back before its ttl; nothing else comes early.
            Some(left) if concurrent => Some(wait.min(GLANCE).min(left)),
            Some(left) if wait > left => None,
            _ if concurrent => Some(wait.min(GLANCE)),
            _ => Some(wait + Duration::from_micros(jitter)),
        }
    }

    /// How long to sleep at most: until the deadline or the pause is over, without end for a clock that wakes us.
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
