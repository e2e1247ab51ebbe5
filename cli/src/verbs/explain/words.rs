//! Limits and options in words.

use std::time::Duration;

use tidegate::host::{OptionKind, OptionValue, POLICY_OPTIONS, PolicyOption};
use tidegate::{Algorithm, Limit, Period, Policy, Unit};

use crate::number_text::number;
use crate::time_text::length;

/// `minute`, `second`, `10s`: what follows "any" and "per".
pub(super) fn name(period: Period) -> String {
    match (period.multiple(), period.unit()) {
        (1, Unit::Second) => "second".to_owned(),
        _ => period.to_string(),
    }
}

/// `a minute`, `an hour`, `10s`: what follows "after".
fn span(period: Period) -> String {
    match (period.multiple(), name(period)) {
        (1, name) if name == "hour" => "an hour".to_owned(),
        (1, name) if period.micros() == period.unit().micros() && period.unit() > Unit::Millisecond => {
            format!("a {name}")
        }
        (_, name) => name,
    }
}

/// What a limit does, as a sentence.
pub(super) fn limit(limit: &Limit) -> String {
    let (count, period) = (number(limit.count()), limit.period());
    let (span, any) = (span(period), name(period));
    let capacity = number(limit.capacity());
    if limit.capacity() == 0 {
        return "Denies every check.".to_owned();
    }
    let micros = |part: u64| length(Duration::from_micros(part));
    let each = micros(period.micros().div_ceil(limit.count()));
    match limit.algorithm() {
        Algorithm::FixedWindow => format!(
            "At most {count} in a window of {span} that the first admitted check opens; around the edge of two windows up \
             to twice that."
        ),
        Algorithm::CalendarWindow => format!(
            "At most {count} in each {any} of the calendar (UTC{}); around the edge of two windows up to twice that.",
            if period.unit() == Unit::Week { ", from Monday" } else { "" }
        ),
        Algorithm::SlidingLog => {
            format!("At most {count} in any {any}; a unit comes back exactly {span} after it was used.")
        }
        Algorithm::SlidingWindow => format!(
            "At most {count} in any {any}; a unit comes back {span} after it was used, at most {} later.",
            micros(period.micros() / u64::from(limit.precision()))
        ),
        Algorithm::SlidingCounter => format!(
            "About {count} in any {any}: an estimate from the counts of this window and the one before, which assumes that \
             calls came evenly."
        ),
        Algorithm::TokenBucket => {
            let starts =
                limit.initial().map_or("starts full".to_owned(), |units| format!("starts with {}", number(units)));
            format!("A bucket of {capacity} that {starts} and gets one unit back every {each}.")
        }
        Algorithm::Gcra => format!("Up to {capacity} at once, and one more every {each}."),
        Algorithm::LeakyBucket => format!(
            "A queue of {capacity} places that lets one unit go every {each}: what is admitted gets a delay, and leaves evenly."
        ),
        Algorithm::Concurrency => format!(
            "At most {count} in progress at the same time; a hold that is not renewed is given back after {span}. How many \
             pass over time depends on how long each takes."
        ),
        algorithm => format!("{algorithm}, {count} in {span}."),
    }
}

/// What the options of a policy do, a sentence each.
pub(super) fn options(policy: &Policy) -> Vec<String> {
    let mut options: Vec<_> = POLICY_OPTIONS.iter().filter(|option| option.is_set(policy.options())).collect();
    // What happens when the store fails comes last.
    options.sort_by_key(|option| option.kind == OptionKind::OnStoreError);
    let sentence = |option: &PolicyOption| {
        let value = match option.get(policy.options())? {
            OptionValue::Count(count) => number(count.into()),
            value => value.to_string(),
        };
        Some(option.effect.replace("{}", &value))
    };
    options.into_iter().filter_map(sentence).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_algorithm_is_explained() {
        for algorithm in Algorithm::ALL {
            let notation = if algorithm == Algorithm::Concurrency {
                "concurrency 8".to_owned()
            } else {
                format!("{algorithm} 8/s")
            };
            let policy = Policy::parse(&notation).expect("a policy");
            let words = limit(&policy.limits()[0]);
            assert!(!words.starts_with(algorithm.name()), "{words}");
        }
    }
}
