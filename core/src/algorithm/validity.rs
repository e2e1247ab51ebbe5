//! Whether a state that was read from a store can be one of a rule. Another program, or a damaged server, may have written it;
//! a rule counts with its numbers without asking again.

use super::{MAX_SAFE_INTEGER, Rule, State, calendar_window, sliding_log};

const fn fits(number: u64) -> bool {
    number <= MAX_SAFE_INTEGER
}

/// Whether all moments fit, and the parts of a list are together at most the total.
fn fit(mut moments: impl Iterator<Item = u64>, mut units: impl Iterator<Item = u64>, total: u64) -> bool {
    let sum = units.try_fold(0_u64, |sum, units| sum.checked_add(units));
    moments.all(fits) && fits(total) && sum.is_some_and(|sum| sum <= total)
}

impl Rule {
    /// See the module.
    pub(crate) fn can_have(&self, state: &State) -> bool {
        match (self, state) {
            (Self::FixedWindow(_), State::FixedWindow(state)) => fits(state.opened) && fits(state.used),
            (Self::CalendarWindow(rule), State::CalendarWindow(state)) => {
                state.index <= calendar_window::index_of(rule.grid, MAX_SAFE_INTEGER) && fits(state.used)
            }
            (Self::SlidingCounter(_), State::SlidingCounter(state)) => {
                fits(state.touched) && fits(state.previous) && fits(state.current)
            }
            (Self::SlidingWindow(_), State::SlidingWindow(state)) => {
                let older = state.older.iter();
                let moments = older.clone().map(|(last, _)| *last).chain([state.touched]);
                fit(moments, older.map(|(_, units)| *units).chain([state.newest]), state.total)
            }
            (Self::Concurrency(_), State::Concurrency(state)) => {
                let holds = state.holds.iter();
                let moments = holds.clone().map(|hold| hold.expires).chain([state.touched]);
                fit(moments, holds.map(|hold| hold.units), state.total)
            }
            (Self::SlidingLog(_), State::SlidingLog(state)) => {
                let entries = state.entries.iter();
                entries.clone().all(|(at, total)| fits(*at) && *total <= sliding_log::MAX_UNITS)
            }
            (rule, State::TokenBucket(state) | State::Gcra(state) | State::LeakyBucket(state)) => {
                rule.meter().is_some_and(|meter| {
                    fits(state.since) && state.units <= meter.max_units && state.fraction < meter.interval_units
                })
            }
            _ => false,
        }
    }
}
