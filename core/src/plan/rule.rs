//! Translates a limit, as a person writes it, into the numbers of its rule.

use crate::algorithm::{Grid, Rule};
use crate::policy::{Algorithm, Limit, Period, Unit};

pub(super) fn rule_of(limit: &Limit) -> Rule {
    let (count, period, burst) = (limit.count(), limit.period().micros(), limit.capacity());
    match limit.algorithm() {
        Algorithm::FixedWindow => Rule::fixed_window(count, period),
        Algorithm::CalendarWindow => Rule::calendar_window(count, grid(limit.period())),
        Algorithm::SlidingLog => Rule::sliding_log(count, period),
        Algorithm::SlidingWindow => Rule::sliding_window(count, period, limit.precision()),
        Algorithm::SlidingCounter => Rule::sliding_counter(count, period),
        Algorithm::TokenBucket => Rule::token_bucket(count, period, burst, limit.initial()),
        Algorithm::Gcra => Rule::gcra(count, period, burst),
        Algorithm::LeakyBucket => Rule::leaky_bucket(count, period, burst),
        Algorithm::Concurrency => Rule::concurrency(count, period),
    }
}

/// The windows of the calendar that a period stands for.
fn grid(period: Period) -> Grid {
    match period.unit() {
        Unit::Year => Grid::Months(12 * period.multiple()),
        Unit::Month => Grid::Months(period.multiple()),
        Unit::Week => Grid::weeks(period.micros()),
        _ => Grid::uniform(period.micros()),
    }
}
