//! Units that a process takes in advance and spends within a `life`. A unit counts until the last moment at which it could be
//! spent has left the window; docs/adr/0022 says why that is so for each algorithm.
//!
//! | algorithm | a lease is charged | and can be spent until |
//! |---|---|---|
//! | windows of a clock, `sliding-counter` | as a check | the window ends |
//! | `sliding-window` | as a check | the granule ends |
//! | `sliding-log` | as of the end of its life | the end of its life |
//! | `token-bucket`, `gcra` | above a level that takes its life to drain | the end of its life |

use super::{Meter, Rule, State, View, meter};

/// What a lease asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LeaseTerms {
    pub(crate) units: u64,
    /// For how many microseconds after the charge units may be spent, at most.
    pub(crate) life: u64,
}

/// A lease takes at most this part of what is left, so that the last units are found by the calls that need them.
pub(crate) const LEASED_PART: u64 = 4;

impl Meter {
    /// The state at `now`, of a meter that is not empty before `now + life`.
    pub(crate) fn raised(&self, state: &meter::State, now: u64, life: u64) -> meter::State {
        let mut raised = self.state_at(state, now);
        let drained = self.units_drained(&raised, now + life);
        raised.units = raised.units.max(drained.saturating_add(1)).min(self.max_units);
        raised
    }
}

impl Rule {
    /// When units that were charged at `charged_at` end together with a window, whatever their life; `view` is of that moment.
    pub(crate) fn lease_ends(&self, view: &View, charged_at: u64) -> Option<u64> {
        match self {
            Self::FixedWindow(_) => Some(view.resets_at),
            Self::CalendarWindow(rule) => Some(rule.window_ends(charged_at)),
            Self::SlidingWindow(rule) => Some(charged_at - charged_at % rule.granule + rule.granule),
            Self::SlidingCounter(rule) => Some(charged_at - charged_at % rule.period + rule.period),
            _ => None,
        }
    }

    /// The units that leases of that life could take at `now`, all of them.
    pub(crate) fn leasable(&self, state: &State, now: u64, life: u64) -> u64 {
        let used = match (self, state) {
            (Self::Gcra(meter), State::Gcra(state)) => meter.raised(state, now, life).units,
            (Self::TokenBucket(rule), State::TokenBucket(state)) => {
                rule.meter().raised(&rule.started(state, now), now, life).units
            }
            (rule, state) => rule.used(state, now),
        };
        self.capacity().saturating_sub(used)
    }

    /// Charges units that may be spent until `now + life`.
    pub(crate) fn charge_lease(&self, state: &mut State, now: u64, LeaseTerms { units, life }: LeaseTerms) {
        match (self, state) {
            (Self::Gcra(meter), State::Gcra(state)) => {
                *state = meter.raised(state, now, life);
                meter.charge(state, now, units);
            }
            (Self::TokenBucket(rule), State::TokenBucket(state)) => {
                *state = rule.meter().raised(&rule.started(state, now), now, life);
                rule.charge(state, now, units);
            }
            (Self::SlidingLog(rule), State::SlidingLog(state)) => rule.charge_as_of(state, now, now + life, units),
            (rule, state) => rule.charge(state, now, units, 0),
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::algorithm::calendar_window::Grid;
    use crate::algorithm::{Rule, View};

    #[test]
    fn units_of_windows_end_with_them_and_others_with_their_life() {
        let view = View { resets_at: 17, ..View::default() };
        let hours = Grid::Uniform { length: 3_600, shift: 0 };
        for (rule, ends) in [
            (Rule::fixed_window(5, 10), Some(17)),
            (Rule::calendar_window(5, hours), Some(10_800)),
            (Rule::sliding_window(5, 1_000, 10), Some(7_400)),
            (Rule::sliding_counter(5, 1_000), Some(8_000)),
            (Rule::sliding_log(5, 1_000), None),
            (Rule::gcra(5, 1_000, 5), None),
        ] {
            assert_eq!(rule.lease_ends(&view, 7_345), ends, "{rule:?}");
        }
    }
}
