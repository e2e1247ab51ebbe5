//! A limiter in memory, with a clock that the test moves.

use std::sync::Arc;
use std::time::Duration;

use tidegate::{Limiter, ManualClock, Policy};

use crate::decision_values::DecisionValues;

/// Monday, 1 January 2024, 00:00 UTC.
pub const START: u64 = 1_704_067_200_000_000;

/// A limiter and its clock.
pub struct TimedLimiter {
    /// The limiter.
    pub limiter: Limiter,
    clock: Arc<ManualClock>,
    /// The time.
    pub now: u64,
}

impl Default for TimedLimiter {
    fn default() -> Self {
        let clock = Arc::new(ManualClock::new(Duration::from_micros(START)));
        let limiter = Limiter::builder().clock(Arc::clone(&clock)).build().expect("a limiter");
        Self { limiter, clock, now: START }
    }
}

impl TimedLimiter {
    /// Sets the clock.
    pub fn set(&mut self, now: u64) {
        self.now = now;
        self.clock.set(Duration::from_micros(now));
    }

    /// Advances the clock.
    pub fn pass(&mut self, time: u64) {
        self.set(self.now + time);
    }

    /// Checks.
    ///
    /// # Panics
    /// When the cost is wrong.
    pub fn check(&self, policy: &Policy, cost: u64) -> DecisionValues {
        DecisionValues::of(&self.limiter.check_n(policy, "key", cost).expect("a check"))
    }

    /// Asks.
    ///
    /// # Panics
    /// When the cost is wrong.
    #[must_use]
    pub fn peek(&self, policy: &Policy, cost: u64) -> DecisionValues {
        DecisionValues::of(&self.limiter.peek(policy, "key", cost).expect("a peek"))
    }

    /// Gives back.
    ///
    /// # Panics
    /// When the cost is wrong.
    pub fn refund(&self, policy: &Policy, cost: u64) {
        self.limiter.refund(policy, "key", cost).expect("a refund");
    }
}
