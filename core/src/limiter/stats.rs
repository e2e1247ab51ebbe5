//! How a limiter tells what it has counted, and how a forked child starts at zero.

use std::sync::atomic::Ordering;

use super::LimiterCore;
use crate::counting::Stats;
use crate::process::fork::ForkListener;

impl LimiterCore {
    pub(super) fn stats(&self) -> Stats {
        let telemetry = self.layers.as_ref().map(|layers| &layers.telemetry);
        Stats {
            policies: self.answers.decisions.read(),
            store: telemetry.map(|telemetry| telemetry.store_stats()).unwrap_or_default(),
            breaker: telemetry.map(|telemetry| telemetry.conditions()).unwrap_or_default(),
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
            layers.telemetry.forked();
        }
    }
}
