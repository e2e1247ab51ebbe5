//! The clock of the store, and the time that it is away.

use std::time::{Duration, Instant};

/// The bounds of a swap beyond its moment: twice the round trip and this, at most `MAX_SLACK`.
const LEAST_SLACK: Duration = Duration::from_millis(2);
const MAX_SLACK: Duration = Duration::from_millis(20);
/// A clock that shows so many microseconds less was set back. Less may come from the different pace of two clocks.
const SET_BACK: u64 = 20_000;

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
        let Some(clock) = clock else { return };
        // An answer that was long on the way knows less than an earlier one. Only a clock that was read behind that one, and shows
        // less, was set back.
        let was_set_back = self.last.is_some_and(|(_, at)| at <= sent)
            && self.least(sent).is_some_and(|least| clock + SET_BACK < least);
        if was_set_back || self.least(now).is_none_or(|least| clock > least) {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_late_answer_does_not_set_the_clock_back_and_a_clock_that_was_set_back_does() {
        let (began, mut clock) = (Instant::now(), StoreClock::default());
        let at = |milliseconds: u64| began + Duration::from_millis(milliseconds);
        clock.heard(Some(1_000_000), at(0), at(10));
        assert_eq!(clock.least(at(10)), Some(1_000_000));
        // It was sent before the first answer arrived, and was 300 ms on the way.
        clock.heard(Some(990_000), at(0), at(300));
        assert_eq!(clock.least(at(300)), Some(1_290_000));
        // It was read behind the first answer.
        clock.heard(Some(500_000), at(301), at(302));
        assert_eq!(clock.least(at(302)), Some(500_000));
    }
}
