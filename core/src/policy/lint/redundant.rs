//! Limits that another limit of the same policy makes redundant.
//!
//! A limit is redundant when it admits everything that another limit admits. The sums below are upper bounds, so a
//! warning is never wrong about the nominal numbers of the limits.

use crate::algorithm::TimeUnit;
use crate::algorithm::{Algorithm, AlgorithmKind, Limit};

/// Warns once about every limit that never decides.
pub(super) fn redundant_limits(limits: &[Limit], mut warn: impl FnMut(usize, String)) {
    for (at, limit) in limits.iter().enumerate() {
        let by = limits.iter().enumerate().find(|(other_at, other)| {
            // If two limits are equal, the second is the one to remove.
            *other_at != at && covers(other, limit) && (*other_at < at || !covers(limit, other))
        });
        let Some((_, other)) = by else { continue };
        let advice = match most(other, limit) {
            Some(most) if !limit.algorithm().has_burst() && most <= u128::from(limit.count()) => format!(
                "{other} never lets more than {most}{} pass in that time; remove it, or lower its count below {most}",
                counted(limit)
            ),
            _ => format!("{other} is always the stricter one; remove it, or make it stricter"),
        };
        warn(at, format!("{limit} never decides anything: {advice}"));
    }
}

/// The unit of a limit, to follow a number.
pub(super) fn counted(limit: &Limit) -> String {
    limit.unit().map(|unit| format!(" {unit}")).unwrap_or_default()
}

/// True if `loose` admits everything that `strict` admits.
fn covers(strict: &Limit, loose: &Limit) -> bool {
    use AlgorithmKind::Held;
    // Limits that always deny have a separate warning. Numbers of other units cannot be compared.
    if strict.capacity() == 0 || loose.capacity() == 0 || strict.unit() != loose.unit() {
        return false;
    }
    if strict == loose {
        return true;
    }
    match (strict.algorithm().kind(), loose.algorithm().kind()) {
        // A hold that is not renewed stays at least as long in the stricter one.
        (Held, Held) => strict.count() <= loose.count() && strict.period().micros() >= loose.period().micros(),
        (Held, _) | (_, Held) => false,
        (strict_kind, kind @ (AlgorithmKind::Bucket | AlgorithmKind::Queue)) => {
            let rate = |limit: &Limit, other: &Limit| u128::from(limit.count()) * u128::from(other.period().micros());
            let at_once = peak(strict, 0).is_some_and(|most| most <= u128::from(loose.capacity()));
            // A leaky bucket also delays its callers, so only another leaky bucket replaces it.
            let same_shape = kind != AlgorithmKind::Queue || strict_kind == AlgorithmKind::Queue;
            at_once && rate(strict, loose) <= rate(loose, strict) && same_shape
        }
        (_, _) => most(strict, loose).is_some_and(|most| most <= u128::from(loose.count())),
    }
}

/// The most units that a limit admits within a period of another one. `None` for `concurrency`.
fn most(strict: &Limit, loose: &Limit) -> Option<u128> {
    peak(strict, loose.lengths().1).into_iter().chain(nested(strict, loose)).min()
}

/// The most units that a limit admits within any `micros` microseconds. `None` for `concurrency`.
fn peak(limit: &Limit, micros: u64) -> Option<u128> {
    let (count, period) = (u128::from(limit.count()), u128::from(limit.lengths().0));
    let micros = u128::from(micros);
    match limit.algorithm().kind() {
        AlgorithmKind::MovingWindow => Some(count * micros.div_ceil(period).max(1)),
        // They may begin just before a window ends, and so overlap one window more.
        AlgorithmKind::Windows => Some(count * (micros.div_ceil(period) + 1)),
        AlgorithmKind::Bucket | AlgorithmKind::Queue => Some(u128::from(limit.capacity()) + count * micros / period),
        AlgorithmKind::Held => None,
    }
}

/// The most units if the longer window consists of whole shorter windows of the same kind. For `fixed-window` that holds under
/// steady traffic, and otherwise it hardly matters which of the two decides.
fn nested(strict: &Limit, loose: &Limit) -> Option<u128> {
    let alike = strict.algorithm() == loose.algorithm() && strict.algorithm().kind() == AlgorithmKind::Windows;
    let (short, long) = (strict.period(), loose.period());
    // A week may overlap two months or two years.
    let overlaps = strict.algorithm() == Algorithm::CalendarWindow
        && short.unit() == TimeUnit::Week
        && long.unit() > TimeUnit::Week;
    // Windows of two calendars have other edges.
    let same_calendar = (strict.anchor(), strict.zone()) == (loose.anchor(), loose.zone());
    if !alike || overlaps || !same_calendar {
        return None;
    }
    let windows = if short.unit() >= TimeUnit::Month && long.unit() >= TimeUnit::Month {
        long.micros().div_ceil(short.micros())
    } else {
        loose.lengths().1.div_ceil(short.micros())
    };
    Some(u128::from(strict.count()) * u128::from(windows.max(1)))
}
