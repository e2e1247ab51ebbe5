use proptest::prelude::*;

use super::super::{Algorithm, MAX_COUNT, MAX_LIMITS, Policy, TimeUnit};
use super::*;
use crate::algorithm::Algorithm::*;
use crate::error::ErrorKind;

fn one(text: &str) -> Limit {
    let limits = parse(text).unwrap_or_else(|error| panic!("{text}: {error}"));
    assert_eq!(limits.len(), 1, "{text}");
    limits[0].clone()
}

fn limit(algorithm: Algorithm, count: u64, multiple: u64, unit: TimeUnit) -> Limit {
    Limit::new(algorithm, count, Period::new(multiple, unit).unwrap()).unwrap()
}

fn fails(text: &str) -> (usize, String) {
    let error = parse(text).expect_err(text);
    assert_eq!(error.kind(), ErrorKind::PolicyInvalid);
    let location = error.location().expect("a location");
    assert_eq!((location.file.as_deref(), location.line), (None, 1));
    (location.column, error.message().to_owned())
}

#[test]
fn reads_every_form() {
    let per_minute = limit(SlidingWindow, 20, 1, TimeUnit::Minute);
    for text in
        ["20/minute", "20 per minute", "20/m", " 20 / 1 Minutes ", "20perMIN", "20\tper\n60 s", "020/mins", "20/60sec"]
    {
        assert_eq!(one(text), per_minute, "{text}");
    }
    assert_eq!(one("10 per 2 hours"), limit(SlidingWindow, 10, 2, TimeUnit::Hour));
    assert_eq!(one("10 per2hrs"), limit(SlidingWindow, 10, 2, TimeUnit::Hour));
    assert_eq!(one("1/500ms"), limit(SlidingWindow, 1, 500, TimeUnit::Millisecond));
    assert_eq!(one("1/w"), limit(SlidingWindow, 1, 1, TimeUnit::Week));
    assert_eq!(one("1/3 months"), limit(SlidingWindow, 1, 3, TimeUnit::Month));
    assert_eq!(one("1/year").period().micros(), 360 * 86_400 * 1_000_000);
    assert_eq!(one("0/s").count(), 0);
    assert_eq!(one("1000000000000/day").count(), MAX_COUNT);
    assert_eq!(one("Fixed_Window 5/s"), limit(FixedWindow, 5, 1, TimeUnit::Second));
    assert_eq!(one("gcra 100/s burst 200"), limit(Gcra, 100, 1, TimeUnit::Second).with_burst(200).unwrap());
    assert_eq!(one("gcra100/sec BURST200"), limit(Gcra, 100, 1, TimeUnit::Second).with_burst(200).unwrap());
    assert_eq!(one("concurrency 8"), limit(Concurrency, 8, 60, TimeUnit::Second));
    assert_eq!(one("concurrency 8 TTL 30s"), limit(Concurrency, 8, 30, TimeUnit::Second));
    for algorithm in Algorithm::ALL.into_iter().filter(|algorithm| *algorithm != Concurrency) {
        assert_eq!(one(&format!("{algorithm} 7/day")), limit(algorithm, 7, 1, TimeUnit::Day));
    }
    for text in ["20/minute; 5/3s", "20/minute,5/3s", "20/minute | 5 per 3 s", "20/minute:;5/3s"] {
        assert_eq!(parse(text).unwrap(), [per_minute.clone(), limit(SlidingWindow, 5, 3, TimeUnit::Second)], "{text}");
    }
    assert_eq!(parse("calendar-window 1000/day | concurrency 8 ttl 30s").unwrap().len(), 2);
}

/// Same amounts and seconds as `limits.parse_many` of the `limits` package 5.
#[test]
fn reads_what_the_limits_package_reads() {
    for (text, count, seconds) in [
        ("1 per second", 1, 1),
        ("1PER SECOND", 1, 1),
        ("10/2days", 10, 2 * 86_400),
        ("10 per 1 month", 10, 30 * 86_400),
        ("10 / 2 YEARS", 10, 720 * 86_400),
        ("5per5minutes", 5, 300),
        ("\u{a0}5/\u{1f}hour\u{2003}", 5, 3_600),
        ("7/0 minutes", 7, 60),
        ("007/0002day", 7, 2 * 86_400),
    ] {
        let limit = one(text);
        assert_eq!((limit.count(), limit.period().micros()), (count, seconds * 1_000_000), "{text}");
    }
}

#[test]
fn errors_point_at_the_column() {
    for (text, column, words) in [
        ("", 1, "the text is empty"),
        ("  ", 3, "the text is empty"),
        ("20", 3, "ends too early"),
        ("20/", 4, "ends too early"),
        ("20/minuet; 5/3s", 4, "unknown unit `minuet`; did you mean `minute`?"),
        ("5/3s;", 6, "expected a limit"),
        ("5/3s;;5/s", 6, "unexpected `;`"),
        (";5/s", 1, "unexpected `;`"),
        ("5/s burst 3", 5, "sliding-window has no burst"),
        ("gcra 5/s burst", 15, "expected a count"),
        ("gcra 5/s burst 3 burst 4", 18, "written once"),
        ("gcra 5/s ttl 3s", 10, "only concurrency has a ttl"),
        ("5/s per minute", 5, "one period"),
        ("gcar 5/s", 1, "did you mean `gcra`?"),
        ("fixed window 5/s", 1, "did you mean `fixed-window`?"),
        ("é5/s", 1, "unexpected `é`"),
        ("5/s é", 5, "unexpected `é`"),
        ("5/é", 3, "unexpected `é`"),
        ("-5/s", 1, "cannot be negative"),
        ("1.5/s", 2, "whole number"),
        ("1/1.5h", 4, "whole number of units"),
        ("1,000/day", 2, "without separators"),
        ("5/-3s", 3, "unexpected `-`"),
        ("5/0s", 3, "out of range"),
        ("5/0 weeks", 3, "out of range"),
        ("5/11 years", 3, "out of range"),
        ("5/99999999999999999999 s", 3, "too large"),
        ("1000000000001/s", 1, "too large"),
        ("concurrency 8/s", 14, "no period"),
        ("concurrency 8 ttl", 18, "ends too early"),
        ("concurrency 8 ttl s", 19, "unexpected `s`"),
        ("concurrency 8 burst 3", 15, "burst"),
        ("gcra 1/s burst 99999999999", 16, "100 years"),
        ("20/minute \u{202e}", 11, "U+202E"),
        ("hello", 1, "unknown algorithm `hello`"),
    ] {
        let (at, message) = fails(text);
        assert!(message.contains(words), "{text}: {message}");
        assert_eq!(at, column, "{text}: {message}");
    }
}

#[test]
fn an_error_shows_the_text_and_a_caret() {
    assert_eq!(
        fails("20/minuet; 5/3s").1,
        "unknown unit `minuet`; did you mean `minute`?\n  20/minuet; 5/3s\n     ^\n\
         expected a unit: ms, s, minute, hour, day, week, month or year"
    );
}

#[test]
fn calendars_are_written_as_they_are_read() {
    for (text, canonical) in [
        ("calendar-window 1000/month from day 15 at 06:00", "calendar-window 1000/month from day 15 at 06:00"),
        (
            "Calendar_Window 9 per Day FROM AT 06:30 In europe/berlin",
            "calendar-window 9/day from at 06:30 in Europe/Berlin",
        ),
        ("calendar-window 9/week from Sunday;5/s", "calendar-window 9/week from sunday; 5/s"),
        (
            "calendar-window 9 tokens/year from day 31 in Etc/GMT+5",
            "calendar-window 9 tokens/year from day 31 in Etc/GMT+5",
        ),
        ("calendar-window 9/month from day 1 at 00:00 in UTC", "calendar-window 9/month"),
        ("calendar-window 9/week from monday", "calendar-window 9/week"),
        ("calendar-window 9/24h in Asia/Tokyo,3/m", "calendar-window 9/day in Asia/Tokyo; 3/minute"),
    ] {
        let policy = Policy::parse(text).unwrap();
        assert_eq!(policy.to_string(), canonical);
        assert_eq!(Policy::parse(canonical).unwrap().limits(), policy.limits());
    }
}

#[test]
fn wrong_calendars_are_said_with_what_to_write() {
    for (text, column, words) in [
        ("100/day in Europe/Berlin", 9, "sliding-window has no calendar"),
        ("100/day in Europe/Berlin", 9, "expected `calendar-window 100/day` before it, or the end"),
        ("gcra 5/day from day 3", 12, "gcra has no calendar"),
        (
            "calendar-window 5/2 days from at 06:00",
            26,
            "`from` needs a period of one day, week, month or year, not 2 days",
        ),
        ("calendar-window 5/hour in UTC", 24, "`in` needs a period of one day"),
        ("calendar-window 5/month from", 29, "the text ends too early"),
        ("calendar-window 5/month from", 29, "expected `day` and its number, a weekday or `at` and a time"),
        ("calendar-window 5/month from day", 33, "the number of a day, as in `day 15`"),
        ("calendar-window 5/month from day 0", 34, "expected a number from 1 to 31"),
        ("calendar-window 5/month from day 32", 34, "there is no such day of a month"),
        ("calendar-window 5/month from monday", 30, "a month begins on a day of a month"),
        ("calendar-window 5/week from day 3", 29, "a week begins on a weekday"),
        ("calendar-window 5/day from day 3", 28, "a day begins at a time"),
        ("calendar-window 5/day from at 24:00", 31, "`24:00` is not a time"),
        ("calendar-window 5/day from at 6:00", 31, "expected a time from 00:00 to 23:59"),
        ("calendar-window 5/day in", 25, "expected the IANA name of a time zone"),
        (
            "calendar-window 5/day in Europe/Berlim",
            26,
            "unknown time zone `Europe/Berlim`; did you mean `Europe/Berlin`?",
        ),
        (
            "calendar-window 5/day in Europe/Berlin from at 06:00",
            40,
            "`from` is written once, after the period and before `in`",
        ),
        ("calendar-window 5/day in UTC in UTC", 30, "`in` is written once"),
    ] {
        let (found, message) = fails(text);
        assert!(found == column && message.contains(words), "{text}: {found} {message}");
    }
}

#[test]
fn long_texts_are_shown_around_the_column() {
    let (column, message) = fails(&format!("{}x{}", "5/s; ".repeat(10), "\n5/s".repeat(300_000)));
    assert_eq!(column, 51);
    assert!(message.len() < 400, "{message}");
    let lines: Vec<_> = message.lines().collect();
    let caret = lines[2].chars().count() - 1;
    assert_eq!(lines[1].chars().nth(caret), Some('x'), "{message}");
    assert!(lines[1].starts_with("  …") && lines[1].ends_with('…'), "{message}");
    assert!(fails(&"9".repeat(1 << 20)).1.len() < 400);
    assert!(fails(&"a".repeat(1 << 20)).1.len() < 600);
    assert!(fails(&"5/s;".repeat(1 << 18)).1.contains("more than 15 limits"));
    assert_eq!(fails(&" ".repeat(1 << 20)).0, (1 << 20) + 1);
}

#[test]
fn a_url_in_place_of_a_policy_is_not_repeated() {
    let (_, message) = fails("redis://:hunter2@host/0");
    assert!(message.contains("URL") && !message.contains("hunter2"), "{message}");
}

#[test]
fn durations() {
    assert_eq!(parse_duration(" 10m ").unwrap(), Period::new(10, TimeUnit::Minute).unwrap());
    assert_eq!(parse_duration("day").unwrap(), Period::new(1, TimeUnit::Day).unwrap());
    for text in ["", "10", "m10", "10m 3s", "-1s", "11 years", "0s", "10 fortnights"] {
        assert!(parse_duration(text).is_err(), "{text}");
    }
}

fn any_limit() -> impl Strategy<Value = Limit> {
    (0_usize..9, 0_u64..=MAX_COUNT, 1_u64..=9, 0_usize..8, proptest::option::of(0_u64..1_000)).prop_map(
        |(algorithm, count, multiple, unit, burst)| {
            let limit = limit(Algorithm::ALL[algorithm], count, multiple, TimeUnit::ALL[unit]);
            match burst {
                Some(burst) if limit.algorithm().has_burst() => limit.clone().with_burst(burst).unwrap_or(limit),
                _ => limit,
            }
        },
    )
}

proptest! {
    #[test]
    fn display_parses_back(limits in proptest::collection::vec(any_limit(), 1..=MAX_LIMITS)) {
        let policy = Policy::new(limits, super::super::Options::default()).unwrap();
        prop_assert_eq!(&Policy::parse(&policy.to_string()).unwrap(), &policy);
        prop_assert_eq!(&Policy::parse(policy.name()).unwrap(), &policy);
    }

    #[test]
    fn no_text_panics(text in "\\PC*|[\\x00-\\x7f]*") {
        let _ = parse(&text);
        let _ = parse_duration(&text);
    }

    #[test]
    fn no_near_miss_panics(words in proptest::collection::vec(
        prop::sample::select(vec![
            "20", "0", "/", "per", "minute", "s", " ", ";", ",", "|", ":", "gcra", "burst", "ttl", "concurrency", "calendar-window ", " from ", "day", "monday", " at ", "06:00", " in ", "Asia/Tokyo", "-", "é",
            "\u{0}", "99999999999999999999999", "month", "token_bucket", ".", "\u{202e}", "\u{1d}",
        ]), 0..12)
    ) {
        let text = words.concat();
        if let Err(error) = parse(&text) {
            let column = error.location().unwrap().column;
            prop_assert!(column <= text.chars().count() + 1);
            // The error does not show the text of a URL.
            prop_assert!(error.message().contains('^') || may_be_url(&text));
        }
    }
}
