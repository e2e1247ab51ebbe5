//! How a limiter tells what it has counted, and how a forked child starts at zero.

use std::sync::atomic::Ordering;

use super::LimiterCore;
use super::asynchronous::AsyncLimiter;
use super::blocking::Limiter;
use crate::counting::Stats;
use crate::process::fork::ForkListener;
use crate::resilience::Layers;

impl LimiterCore {
    fn stats(&self) -> Stats {
        Stats {
            policies: self.answers.decisions.read(),
            store: self.layers.as_ref().map(Layers::store_stats).unwrap_or_default(),
            breaker: self.layers.as_ref().map(Layers::conditions).unwrap_or_default(),
            counters: self.counters(),
        }
    }
}

impl ForkListener for LimiterCore {
    fn forked(&self) {
        self.answers.decisions.forked();
        for count in [&self.hold_renewer.failed, &self.hold_renewer.lost] {
            count.store(0, Ordering::Relaxed);
        }
        self.answers.wait_queues.forget_refused();
        self.forgotten_denials.reset();
        if let Some(layers) = &self.layers {
            layers.forked();
        }
    }
}

impl Limiter {
    /// What was counted since the limiter was made. It needs no store. A forked child starts at zero.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.core.stats()
    }
}

impl AsyncLimiter {
    /// As [`Limiter::stats`].
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.core.stats()
    }
}
