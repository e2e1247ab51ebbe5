//! A bar on standard error, for simulations that take longer than a second.

use std::time::{Duration, Instant};

use crate::Output;

/// How long a simulation may take before the bar appears.
const SILENCE: Duration = Duration::from_secs(1);
const INTERVAL: Duration = Duration::from_millis(100);
const WIDTH: usize = 30;

/// The work that is done so far.
pub(super) struct Progress {
    started: Instant,
    shown: Option<Instant>,
    policies: usize,
    calls: u64,
}

impl Progress {
    pub(super) fn new(policies: usize) -> Self {
        Self { started: Instant::now(), shown: None, policies, calls: 0 }
    }

    /// Adds calls that went through every policy. `share` is the part of the traffic that is done, if that is known.
    pub(super) fn show(&mut self, calls: usize, share: Option<f64>, output: &mut Output) {
        self.calls += calls as u64;
        let is_due = self.shown.map_or(self.started.elapsed() >= SILENCE, |shown| shown.elapsed() >= INTERVAL);
        if is_due {
            self.shown = Some(Instant::now());
            output.progress(&self.line(share));
        }
    }

    fn line(&self, share: Option<f64>) -> String {
        let elapsed = self.started.elapsed().as_secs_f64();
        let per_second = (self.calls * self.policies as u64) as f64 / elapsed.max(0.001);
        let said = format!("{} calls through {} policies, {per_second:.0} checks/s", self.calls, self.policies);
        let Some(share) = share.map(|share| share.clamp(0.0, 1.0)) else { return said };
        let full = (share * WIDTH as f64) as usize;
        let left = elapsed * (1.0 - share) / share.max(0.001);
        format!("[{}{}] {:3.0} % {said}, {left:.0} s left", "#".repeat(full), "-".repeat(WIDTH - full), share * 100.0)
    }
}

#[cfg(test)]
mod tests {
    use super::Progress;

    #[test]
    fn the_bar_shows_the_share() {
        let mut progress = Progress::new(4);
        progress.calls = 1_000;
        let line = progress.line(Some(0.5));
        assert!(line.starts_with(&format!(
            "[{}{}]  50 % 1000 calls through 4 policies",
            "#".repeat(15),
            "-".repeat(15)
        )));
        assert!(!progress.line(None).contains('['));
    }
}
