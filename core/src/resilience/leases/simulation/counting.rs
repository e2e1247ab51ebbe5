//! Counts the admissions by brute force: never more than the limit in any window.

use super::world::Admission;
use crate::policy::{Algorithm, Limit};

/// The first limit that was passed, if any. `windows` are the windows that the store had open for each limit.
pub(super) fn violation(limits: &[Limit], admissions: &[Admission], windows: &[Vec<u64>]) -> Option<String> {
    let mut sorted: Vec<Admission> = admissions.to_vec();
    sorted.sort_by_key(|admission| admission.at);
    let found = limits.iter().zip(windows).find_map(|(limit, windows)| passed(limit, &sorted, windows));
    found.map(|(limit, text)| format!("{limit} was passed: {text}"))
}

fn passed<'a>(limit: &'a Limit, admissions: &[Admission], windows: &[u64]) -> Option<(&'a Limit, String)> {
    let (count, period) = (limit.count(), limit.period().micros());
    let units = |from: u64, until: u64| -> u64 {
        let within = |admission: &&Admission| (from..until).contains(&admission.at);
        admissions.iter().filter(within).map(|admission| admission.units).sum()
    };
    let text = match limit.algorithm() {
        Algorithm::FixedWindow => windows.iter().find_map(|start| {
            let found = units(*start, start + period);
            (found > count).then(|| format!("{found} units in the window from {start}"))
        }),
        Algorithm::CalendarWindow => admissions.iter().find_map(|admission| {
            let start = admission.at - admission.at % period;
            let found = units(start, start + period);
            (found > count).then(|| format!("{found} units in the window from {start}"))
        }),
        Algorithm::SlidingWindow | Algorithm::SlidingLog => sliding(admissions, count, period),
        Algorithm::SlidingCounter => admissions.iter().find_map(|admission| {
            let start = admission.at - admission.at % period;
            let weight = u128::from(period - admission.at % period);
            let before = u128::from(units(start - period, start)) * weight / u128::from(period);
            let found = before as u64 + units(start, admission.at + 1);
            (found > count).then(|| format!("the estimate is {found} at {}", admission.at))
        }),
        _ => bucket(admissions, limit),
    };
    text.map(|text| (limit, text))
}

/// The units in (t - p, t] of every t.
fn sliding(admissions: &[Admission], count: u64, period: u64) -> Option<String> {
    let (mut first, mut units) = (0, 0);
    for admission in admissions {
        units += admission.units;
        while admissions[first].at + period <= admission.at {
            units -= admissions[first].units;
            first += 1;
        }
        if units > count {
            return Some(format!("{units} units in the period that ends at {}", admission.at));
        }
    }
    None
}

/// The units of any interval are at most the burst and the units that drain in it. With U(t) units until t, that is the
/// least of U(a) - a·rate over all a against U(b) - b·rate.
fn bucket(admissions: &[Admission], limit: &Limit) -> Option<String> {
    let (count, period) = (i128::from(limit.count()), i128::from(limit.period().micros()));
    let burst = i128::from(limit.capacity()) * period;
    let (mut least, mut units) = (i128::MAX, 0_i128);
    for admission in admissions {
        // Everything times the period, so that nothing is rounded.
        let drained = i128::from(admission.at) * count;
        least = least.min(units * period - drained);
        units += i128::from(admission.units);
        let above = units * period - drained - least - burst;
        if above > 0 {
            return Some(format!(
                "{} units too many at {}",
                above.unsigned_abs().div_ceil(period.unsigned_abs()),
                admission.at
            ));
        }
    }
    None
}
