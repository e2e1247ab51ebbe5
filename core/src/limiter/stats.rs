//! How a limiter tells what it has counted, how it counts what a host has repeated, and how a forked child starts at zero.

use std::sync::atomic::Ordering;

use super::LimiterCore;
use crate::counting::Stats;
use crate::plan::plan_cache::plan_of;
use crate::policy::Policy;
use crate::process::fork::ForkListener;
use crate::resilience::{DenialGenerations, Layers};

/// How many generations of denials there are.
pub const DENIAL_GENERATIONS: usize = DenialGenerations::COUNT;

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

    #[inline]
    pub(crate) fn copy_denial_generations(&self, seen: &mut u32, copies: &mut [f64]) {
        if let Some(generations) = self.layers.as_ref().and_then(Layers::denial_generations) {
            generations.copy(seen, copies);
        }
    }

    pub(crate) fn count_repeated(&self, policy: &Policy, times: u64) {
        if let Some(layers) = &self.layers {
            layers.count_repeated(times);
            self.answers.decisions.count_repeated(&plan_of(policy), times);
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
