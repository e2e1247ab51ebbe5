//! The ticks of an axis, and their labels.

use crate::calendar::{DAY, MINUTE, SECOND, date, time_of_day};
use crate::text::number;
use crate::traffic::moment::trimmed;

/// Steps of time that read well, in microseconds.
fn time_steps() -> impl Iterator<Item = u64> {
    let decimal = |unit: u64| (0..6).flat_map(move |power| [1, 2, 5].map(|digit| digit * 10_u64.pow(power) * unit));
    let of_sixty = |unit: u64| [1, 2, 5, 10, 15, 30].map(|count| count * unit);
    let hours = [1, 2, 3, 6, 12].map(|hours| hours * 60 * MINUTE);
    decimal(1).chain(of_sixty(SECOND)).chain(of_sixty(MINUTE)).chain(hours).chain(decimal(DAY))
}

/// The most ticks of the axis of time.
const MOST_TICKS: u64 = 10;

/// The axis of time: seconds since the start, with labels.
pub(crate) struct TimeAxis {
    start: u64,
    step: u64,
    span: u64,
    is_recorded: bool,
}

impl TimeAxis {
    pub(crate) fn new(start: u64, end: u64, is_recorded: bool) -> Self {
        let span = (end - start).max(1);
        let step = time_steps().find(|step| span / step <= MOST_TICKS).unwrap_or(span);
        Self { start, step, span, is_recorded }
    }

    /// The end, in seconds since the start.
    pub(crate) fn end(&self) -> f64 {
        self.span as f64 / SECOND as f64
    }

    /// The positions of the ticks, in seconds since the start.
    pub(crate) fn ticks(&self) -> Vec<f64> {
        let first = if self.is_recorded { self.start.next_multiple_of(self.step) - self.start } else { 0 };
        (first..=self.span).step_by(self.step as usize).map(|tick| tick as f64 / SECOND as f64).collect()
    }

    /// The label of a tick: the time of day of recorded traffic, else the time since the start.
    pub(crate) fn label(&self, seconds: f64) -> String {
        let since = (seconds * SECOND as f64).round() as u64;
        if self.is_recorded {
            let moment = self.start + since;
            return if self.step >= DAY { date(moment) } else { time_of_day(moment, self.step) };
        }
        let (unit, name) = match self.span {
            0..2_000 => (1, "µs"),
            2_000..2_000_000 => (1_000, "ms"),
            2_000_000..=300_000_000 => (SECOND, "s"),
            300_000_001..=7_200_000_000 => (MINUTE, "min"),
            7_200_000_001..=259_200_000_000 => (60 * MINUTE, "h"),
            _ => (DAY, "d"),
        };
        format!("{} {name}", trimmed(since as f64 / unit as f64))
    }

    /// The text below the axis.
    pub(crate) fn description(&self) -> String {
        if !self.is_recorded {
            return "time since the start".to_owned();
        }
        if self.step >= DAY { "date (UTC)".to_owned() } else { format!("time (UTC) from {}", date(self.start)) }
    }
}

/// The ticks of an axis of units, from 0 to a little more than `most`: at most five.
pub(crate) fn unit_ticks(most: f64) -> Vec<f64> {
    let most = if most > 0.0 { most } else { 1.0 };
    let power = 10_f64.powf((most / 4.0).log10().floor());
    let step = [1.0, 2.0, 2.5, 5.0, 10.0].into_iter().map(|digit| digit * power).find(|step| most / step <= 4.0);
    let step = step.unwrap_or(10.0 * power);
    (0..=5).map(|tick| f64::from(tick) * step).take_while(|tick| *tick < most + step).collect()
}

/// The label of such a tick.
pub(crate) fn unit_label(units: f64) -> String {
    if units >= 1e7 {
        format!("{} M", trimmed(units / 1e6))
    } else if units >= 100.0 {
        number(units.round() as u64)
    } else {
        trimmed(units)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_length_has_some_ticks() {
        for span in [1, 999, 1_500_000, 180 * SECOND, 3_600 * SECOND, DAY, 5 * DAY, 31 * DAY, 3_000 * DAY] {
            let axis = TimeAxis::new(0, span, false);
            let ticks = axis.ticks();
            assert!((2..=11).contains(&ticks.len()), "{span}: {ticks:?}");
        }
        let axis = TimeAxis::new(1_704_067_215 * SECOND, 1_704_067_515 * SECOND, true);
        assert_eq!(axis.label(axis.ticks()[0]), "00:00:30");
    }

    #[test]
    fn units_have_at_most_six_ticks() {
        for most in [0.0, 0.3, 1.0, 7.0, 20.0, 39.0, 400.0, 123_456.0, 3e9] {
            let ticks = unit_ticks(most);
            assert!(
                (2..=6).contains(&ticks.len()) && ticks.last().is_some_and(|last| *last >= most),
                "{most}: {ticks:?}"
            );
        }
        assert_eq!(unit_ticks(39.0), [0.0, 10.0, 20.0, 30.0, 40.0]);
    }
}
