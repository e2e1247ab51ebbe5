//! The clock of the store, and the time that it is away.

use std::time::{Duration, Instant};

/// The bounds of a swap beyond its moment: twice the round trip and this, at most `MAX_SLACK`.
const LEAST_SLACK: Duration = Duration::from_millis(2);
const MAX_SLACK: Duration = Duration::from_millis(20);

/// What is known of the store's clock and of the way to the store.
#[derive(Debug, Default)]
pub(super) struct StoreClock {
    /// The last moment that the store has returned, in microseconds since 1970, and when it arrived.
    last: Option<(u64, Instant)>,
    /// The mean of the round trips, where the newest counts an eighth.
    round_trip: Duration,
}

impl StoreClock {
    /// Takes the moment that a call has brought, and the time that the call took.
    pub(super) fn heard(&mut self, clock: Option<u64>, sent: Instant, now: Instant) {
        let took = now.saturating_duration_since(sent);
        self.round_trip = if self.round_trip.is_zero() { took } else { (self.round_trip * 7 + took) / 8 };
        // An answer that was long on the way knows less than an earlier one, unless the clock of the store was set back.
        let set_back = MAX_SLACK.as_micros() as u64;
        if let Some(clock) = clock
            && self.least(now).is_none_or(|least| clock > least || clock + set_back < least)
        {
            self.last = Some((clock, now));
        }
    }

    /// The least that the clock of the store can show now: its last moment, and the steady time since that arrived.
    pub(super) fn least(&self, now: Instant) -> Option<u64> {
        let (clock, at) = self.last?;
        Some(clock + now.saturating_duration_since(at).as_micros() as u64)
    }

    pub(super) const fn round_trip(&self) -> Duration {
        self.round_trip
    }

    /// How long after its moment a swap may still be done.
    pub(super) fn slack(&self) -> Duration {
        (2 * self.round_trip + LEAST_SLACK).min(MAX_SLACK)
    }
}
