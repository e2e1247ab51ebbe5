//! When the topology is discovered anew, and when a server that lacks the script is asked again.

use std::hash::{BuildHasher, RandomState};
use std::time::{Duration, Instant};

use crate::process::fork;

/// The least time between two discoveries.
pub(crate) const MIN_INTERVAL: Duration = Duration::from_millis(100);
/// The age at which a topology is discovered anew before a read of its replicas. There is no other way to find a
/// replica that came back.
const REPLICA_REFRESH: Duration = Duration::from_secs(5);
/// The bounds of the time that a discovery may take.
const DURATION: std::ops::RangeInclusive<Duration> = Duration::from_millis(250)..=Duration::from_secs(1);
/// The longest time after which a process that found no script on a server asks again by its digest.
const MAX_SCRIPT_PAUSE: Duration = Duration::from_millis(10);

/// A random time to wait before the script is sent to a server that lacks it. Processes that start together wait for
/// different times, so one of them sends the script and the others find it. `timeout` is the time that a call may take.
pub(crate) fn script_pause(timeout: Duration) -> Duration {
    let random = RandomState::new().hash_one(fork::id());
    MAX_SCRIPT_PAUSE.min(timeout / 8).mul_f64(random as f64 / u64::MAX as f64)
}

/// The pause before the script is sent to a server that lacks it. No batch is sent meanwhile.
#[derive(Debug, Default)]
pub(crate) struct ScriptPause(Option<Instant>);

impl ScriptPause {
    /// True if the script is to be awaited: another process may be about to send it. After one pause it is sent.
    pub(crate) fn begin(&mut self, now: Instant, pause: impl FnOnce() -> Duration) -> bool {
        now < *self.0.get_or_insert_with(|| now + pause())
    }

    /// When it ends, if it lasts now.
    pub(crate) fn ends(&self, now: Instant) -> Option<Instant> {
        self.0.filter(|ends| now < *ends)
    }
}

/// Decides when to look for the servers again.
#[derive(Debug, Default)]
pub(crate) struct DiscoverySchedule {
    last: Option<Instant>,
    running: bool,
}

impl DiscoverySchedule {
    /// The time that a discovery may take.
    pub(crate) fn duration(timeout: Duration) -> Duration {
        timeout.clamp(*DURATION.start(), *DURATION.end())
    }

    /// The earliest moment of the next discovery, unless one is running.
    pub(crate) fn next(&self) -> Option<Instant> {
        (!self.running).then_some(self.last? + MIN_INTERVAL)
    }

    /// True if the last discovery is so recent that the next one would find nothing new.
    pub(crate) fn is_settled(&self, now: Instant) -> bool {
        !self.running && self.last.is_some_and(|last| now < last + MIN_INTERVAL)
    }

    /// True if a discovery may begin now.
    pub(crate) fn may_begin(&self, now: Instant) -> bool {
        !self.running && self.last.is_none_or(|last| now >= last + MIN_INTERVAL)
    }

    pub(crate) const fn is_running(&self) -> bool {
        self.running
    }

    pub(crate) const fn begin(&mut self) {
        self.running = true;
    }

    pub(crate) const fn end(&mut self, now: Instant) {
        (self.running, self.last) = (false, Some(now));
    }

    /// True if the topology is too old for a read of its replicas.
    pub(crate) fn replicas_are_old(&self, now: Instant) -> bool {
        self.last.is_none_or(|last| now.saturating_duration_since(last) > REPLICA_REFRESH)
    }
}

/// The next moment with something to do, or an earlier one.
#[derive(Debug, Default)]
pub(crate) struct NextMoment(Option<Instant>);

impl NextMoment {
    /// Makes the moment no later than this one.
    pub(crate) fn set(&mut self, at: Instant) {
        self.0 = Some(self.0.map_or(at, |next| next.min(at)));
    }

    pub(crate) const fn next(&self) -> Option<Instant> {
        self.0
    }
}
