//! Limits and options in words.

use std::time::Duration;

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
    let options = policy.options();
    let mut sentences = Vec::new();
    if options.shadow {
        sentences.push("A shadow: it counts and reports denials, and denies nothing.".to_owned());
    }
    if let Some(time) = options.block_for {
        sentences.push(format!("Once denied, a key stays denied for {time}, whatever its usage."));
    }
    if options.count_denied {
        sentences.push("Denied checks count too: a caller that keeps trying stays out.".to_owned());
    }
    if options.journal > 0 {
        sentences.push(format!("The newest {} attempts are kept with their metadata.", number(options.journal.into())));
    }
    if let Some(lease) = options.lease {
        sentences.push(format!("Each process takes blocks of {lease} in advance and spends them without a call."));
    }
    if let Some(choice) = options.on_store_error {
        sentences.push(format!("When the store fails: {choice}."));
    }
    sentences
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
