//! Lengths of time and moments, as people write and read them.

use std::time::Duration;

use tidegate::Period;

use tidegate_simulate::{date, time_of_day};

/// Reads `10m`, `1 day`, `250ms`, or a number of seconds.
pub(crate) fn parse(text: &str) -> Result<Duration, String> {
    if let Ok(seconds) = text.trim().parse::<f64>() {
        return match Duration::try_from_secs_f64(seconds) {
            Ok(length) if !length.is_zero() => Ok(length),
            Err(_) if seconds > 0.0 => Err(format!("{text:?} is too long")),
            _ => Err("it must be more than 0 seconds".to_owned()),
        };
    }
    let wrong = |error: tidegate::Error| {
        format!("{text:?} is not a length of time, such as 90s, 10m or \"1 day\": {}", error.message())
    };
    let period: Period = text.parse().map_err(wrong)?;
    Ok(Duration::from_micros(period.micros()))
}

/// `250 µs`, `3.15 s`, `1m 03s`, `2h 05m`, `3d 04h`. Rounded up, so that a caller that waits so long has waited enough.
pub(crate) fn length(time: Duration) -> String {
    let micros = time.as_micros();
    let hundredths = |unit: u128| {
        let count = (micros * 100).div_ceil(unit);
        let text = format!("{}.{:02}", count / 100, count % 100);
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    };
    match micros {
        0 => "0 s".to_owned(),
        1..1_000 => format!("{micros} µs"),
        1_000..1_000_000 => format!("{} ms", hundredths(1_000)),
        1_000_000..60_000_000 => format!("{} s", hundredths(1_000_000)),
        _ => long(micros.div_ceil(1_000_000)),
    }
}

fn long(seconds: u128) -> String {
    let units = [(86_400, "d"), (3_600, "h"), (60, "m"), (1, "s")];
    let first = units.iter().position(|(unit, _)| seconds >= *unit).unwrap_or(3);
    let (unit, name) = units[first];
    let whole = format!("{}{name}", seconds / unit);
    match units.get(first + 1).map(|(next, name)| (seconds % unit / next, *name)) {
        Some((0, _)) | None => whole,
        Some((rest, name)) => format!("{whole} {rest:02}{name}"),
    }
}

/// The date and time in UTC of a moment in microseconds since 1970: `2026-01-31 23:59:59.125`.
pub(crate) fn moment(micros: u64) -> String {
    format!("{} {}", date(micros), time_of_day(micros, 1_000))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_read_and_shown() {
        assert_eq!(parse("10m"), Ok(Duration::from_secs(600)));
        assert_eq!(parse("2.5"), Ok(Duration::from_millis(2_500)));
        assert!(parse("0").is_err() && parse("soon").is_err() && parse("-1").is_err());
        for (micros, text) in [
            (0, "0 s"),
            (250, "250 µs"),
            (3_150, "3.15 ms"),
            (250_000, "250 ms"),
            (3_150_001, "3.16 s"),
            (60_000_000, "1m"),
            (62_100_000, "1m 03s"),
            (7_500_000_000, "2h 05m"),
            (90_000_000_000, "1d 01h"),
        ] {
            assert_eq!(length(Duration::from_micros(micros)), text);
        }
    }

    #[test]
    fn moments_are_dates_of_the_calendar() {
        for (micros, text) in [
            (0, "1970-01-01 00:00:00.000"),
            (951_782_400_000_000, "2000-02-29 00:00:00.000"),
            (1_700_000_000_125_000, "2023-11-14 22:13:20.125"),
            (4_107_542_400_000_000, "2100-03-01 00:00:00.000"),
            (13_574_563_200_000_000, "2400-02-29 00:00:00.000"),
        ] {
            assert_eq!(moment(micros), text);
        }
    }
}
