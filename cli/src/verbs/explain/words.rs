//! Limits and options in words.

use std::time::Duration;

use tidegate::host::{OptionKind, OptionValue, POLICY_OPTIONS, PolicyOption, algorithm_words};
use tidegate::{Algorithm, Limit, Period, Policy, TimeUnit};
use tidegate_simulate::text::number;

use crate::time_text::length;

/// The text after "any" and "per": `minute`, `second`, `10s`.
pub(super) fn name(period: Period) -> String {
    match (period.multiple(), period.unit()) {
        (1, TimeUnit::Second) => "second".to_owned(),
        _ => period.to_string(),
    }
}

/// The text after "after": `a minute`, `an hour`, `10s`.
fn span(period: Period) -> String {
    match (period.multiple(), name(period)) {
        (1, name) if name == "hour" => "an hour".to_owned(),
        (1, name) if period.micros() == period.unit().micros() && period.unit() > TimeUnit::Millisecond => {
            format!("a {name}")
        }
        (_, name) => name,
    }
}

/// The time zone of calendar windows, and their beginning if it is not the obvious one.
fn calendar(limit: &Limit) -> String {
    let monday = || (limit.period().unit() == TimeUnit::Week).then(|| "from Monday".to_owned());
    let anchor = limit.anchor().map(|anchor| format!("from {anchor}")).or_else(monday);
    let zone = limit.zone().unwrap_or("UTC").to_owned();
    anchor.map_or(zone.clone(), |anchor| format!("{zone}, {anchor}"))
}

/// The effect of a limit, as a sentence.
pub(super) fn limit(limit: &Limit) -> String {
    if limit.capacity() == 0 {
        return "Denies every check.".to_owned();
    }
    let period = limit.period();
    // A queue has places, whatever the unit of the limit.
    let counted = |count: u64| match limit.unit().filter(|_| limit.algorithm() != Algorithm::LeakyBucket) {
        Some(unit) => format!("{} {unit}", number(count)),
        None => number(count),
    };
    let micros = |micros: u64| length(Duration::from_micros(micros));
    let values = [
        ("{count}", counted(limit.count())),
        ("{capacity}", counted(limit.capacity())),
        ("{any}", name(period)),
        ("{span}", span(period)),
        ("{each}", micros(period.micros().div_ceil(limit.count()))),
        ("{granule}", micros(period.micros() / u64::from(limit.precision()))),
        ("{initial}", limit.initial().map_or("full".to_owned(), |units| format!("with {}", number(units)))),
        ("{calendar}", calendar(limit)),
    ];
    let words = algorithm_words(limit.algorithm()).to_owned();
    values.iter().fold(words, |words, (name, value)| words.replace(name, value))
}

/// The effects of a policy's options, a sentence each.
pub(super) fn options(policy: &Policy) -> Vec<String> {
    let mut options: Vec<_> = POLICY_OPTIONS.iter().filter(|option| option.is_set(policy.options())).collect();
    // The option for a store that fails comes last.
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
            assert!(!words.contains(['{', '}']), "{words}");
        }
    }

    #[test]
    fn a_limit_says_what_it_counts() {
        let words = |notation: &str| limit(&Policy::parse(notation).expect("a policy").limits()[0]);
        assert!(words("100000 tokens/minute").starts_with("At most 100,000 tokens in any minute;"));
        assert!(words("token-bucket 20 pages/s").starts_with("A bucket of 20 pages that starts full"));
        assert!(words("leaky-bucket 20 pages/s").starts_with("A queue of 20 places"));
    }

    #[test]
    fn a_calendar_of_ones_own_is_named() {
        let words = |notation| limit(&Policy::parse(notation).expect("a policy").limits()[0]);
        for (notation, calendar) in [
            ("calendar-window 8/month", "(UTC)"),
            ("calendar-window 8/week", "(UTC, from Monday)"),
            ("calendar-window 8/day in Europe/Berlin", "(Europe/Berlin)"),
            ("calendar-window 8/week from friday at 06:00 in Asia/Tokyo", "(Asia/Tokyo, from friday at 06:00)"),
        ] {
            assert!(words(notation).contains(calendar), "{}", words(notation));
        }
    }
}
