//! The time that `acquire` waits, by the limiter's clock.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::decision::Decision;
use crate::limiter::LimiterCore;
use crate::process::clock::{ManualClock, Signal};

/// The longest sleep if others wait in other processes, because their line keeps a place for a second.
const MAX_SLEEP: Duration = Duration::from_millis(400);
/// The shortest sleep. A process asks no more often about a key.
const MIN_SLEEP: Duration = Duration::from_millis(10);
/// The longest sleep for held units, which may come back at any time …
const MAX_SLEEP_OF_HOLDS: Duration = Duration::from_millis(50);
/// … and the part of its wait that a caller sleeps. If holds are short, a unit that another process gives back is soon taken.
const SLEPT_PART: u32 = 8;
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

    /// Lets a clock that is moved by hand notify the signal, because such a clock does not end a sleep by itself.
    pub(super) fn listen(&self, signal: &Arc<Signal>) {
        if let Some(clock) = self.clock {
            clock.notify_on_change(signal);
        }
    }

    pub(super) fn left(&self) -> Option<Duration> {
        self.left_at(self.clock.map(|clock| clock.now()))
    }

    /// The time that is left when a clock that is moved by hand shows `shown`.
    fn left_at(&self, shown: Option<Duration>) -> Option<Duration> {
        let passed = shown.map_or_else(|| self.began.elapsed(), |shown| shown.saturating_sub(self.began_manually));
        self.timeout.map(|timeout| timeout.saturating_sub(passed))
    }

    /// When the time is over, unless it follows a clock that is moved by hand.
    pub(super) fn end(&self) -> Option<Instant> {
        self.timeout.filter(|_| self.clock.is_none()).and_then(|timeout| self.began.checked_add(timeout))
    }

    pub(super) fn is_over(&self) -> bool {
        self.left().is_some_and(|left| left.is_zero())
    }

    /// The sleep before the next question of a caller that has asked for `asked_for`. `None` if another question is of
    /// no use: the check was admitted, never will be, or not before the deadline.
    pub(super) fn pause(&self, decision: &Decision, asked_for: Duration) -> Option<Pause> {
        if decision.allowed() || self.is_over() {
            return None;
        }
        let wait = decision.retry_after()?;
        // Holds may end at any time.
        let is_held = decision.plan().is_held;
        let known = if is_held { known_wait(decision) } else { wait };
        // A clock that is moved by hand may have moved while the answer came.
        let asked_at = self.clock.map(|_| Duration::from_micros(decision.answer().now));
        if self.left_at(asked_at).is_some_and(|left| known > left) {
            return None;
        }
        let random = self.core.hold_count.fetch_add(0x9e37_79b9, Ordering::Relaxed) ^ self.core.seed;
        if self.core.layers.is_none() {
            // In memory no other process waits, and a hold that ends notifies the signal. The jitter is up to a
            // sixteenth of the wait, and never negative, so that no check is too early.
            let jitter = Duration::from_micros(random % (wait.as_micros() as u64 / 16 + 1).min(MAX_JITTER));
            return Some(Pause { longest: wait + jitter, polls: false });
        }
        let shortest = if is_held { (asked_for / SLEPT_PART).clamp(MIN_SLEEP, MAX_SLEEP_OF_HOLDS) } else { MIN_SLEEP };
        let longest = known.clamp(shortest, MAX_SLEEP) + Duration::from_micros(random % MAX_JITTER);
        Some(Pause { longest, polls: is_held })
    }

    /// The longest that a sleep may take: until the pause or the deadline is over. `None` means without end, for a
    /// clock that is moved by hand and wakes the sleeper.
    pub(super) fn sleep(&self, pause: Option<Pause>) -> Option<Duration> {
        match pause {
            Some(pause) if self.clock.is_some() => pause.polls.then_some(pause.longest),
            Some(pause) => Some(self.left().map_or(pause.longest, |left| left.min(pause.longest))),
            None if self.clock.is_some() => None,
            None => self.left(),
        }
    }
}

/// A sleep before the store is asked again.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pause {
    longest: Duration,
    /// True if only another question shows the result, whatever the clock shows.
    polls: bool,
}

/// The least length of a denial: until the end of a block, or until the limits without held units admit the call.
fn known_wait(decision: &Decision) -> Duration {
    let answer = decision.answer();
    let limits = decision.plan().rules.iter().zip(&answer.views).filter(|(rule, _)| !rule.holds());
    let known = limits.filter_map(|(_, view)| view.admits_at).fold(answer.blocked_until, u64::max);
    Duration::from_micros(known.saturating_sub(answer.now))
}
