//! Moments and lengths of time: as traces write them, and as people read them. All are microseconds.

use crate::calendar::{DAY, MINUTE, SECOND, day_number};

/// The latest moment that a limiter's clock can show.
pub const LATEST: u64 = (1 << 52) - 1;
const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

/// The times that a trace may have, for messages.
pub(crate) const EXPECTED: &str =
    "a time: seconds since 1970 (1700000000.25; milliseconds from 10^11 on), or RFC 3339 (2026-03-01T12:00:00Z)";

/// A moment in any spelling that a trace may have.
pub(crate) fn parse(text: &str) -> Option<u64> {
    let text = text.trim();
    let moment = if text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.') {
        of_number(text)
    } else {
        of_rfc3339(text).or_else(|| of_float(text))
    };
    moment.filter(|moment| *moment <= LATEST)
}

/// Reads seconds, or milliseconds, microseconds or nanoseconds if the number is too large for seconds. A moment before
/// the year 5138 has less than 10^11 seconds.
fn of_number(text: &str) -> Option<u64> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let whole: u64 = whole.parse().ok()?;
    if fraction.bytes().any(|byte| !byte.is_ascii_digit()) {
        return None;
    }
    let (numerator, denominator) = scale(whole);
    let micros = whole.checked_mul(numerator)? / denominator;
    let digits = fraction.bytes().take(6).enumerate();
    let parts = digits.fold(0, |sum, (place, digit)| sum + u64::from(digit - b'0') * 10_u64.pow(5 - place as u32));
    Some(micros + parts * numerator / denominator / SECOND)
}

/// The factor and the divisor that turn such a number into microseconds.
fn scale(number: u64) -> (u64, u64) {
    match number {
        0..100_000_000_000 => (SECOND, 1),
        100_000_000_000..100_000_000_000_000 => (1_000, 1),
        100_000_000_000_000..100_000_000_000_000_000 => (1, 1),
        _ => (1, 1_000),
    }
}

fn of_float(text: &str) -> Option<u64> {
    let seconds: f64 = text.parse().ok()?;
    (0.0..1e11).contains(&seconds).then(|| (seconds * SECOND as f64).round() as u64)
}

/// Reads `2026-03-01T12:00:00.5+01:00`. As in many logs, a blank may stand for `T`, and no zone means UTC.
fn of_rfc3339(text: &str) -> Option<u64> {
    if !text.is_ascii() || text.len() < 19 {
        return None;
    }
    let (date, rest) = text.split_at(10);
    let mut date = date.split('-');
    let (year, month, day) = (number(date.next()?, 4)?, number(date.next()?, 2)?, number(date.next()?, 2)?);
    let time = rest.strip_prefix(['T', 't', ' '])?;
    let (clock, mut zone) = time.split_at(8);
    let mut micros = of_clock(clock)?;
    if let Some(fraction) = zone.strip_prefix(['.', ',']) {
        let end = fraction.find(|c: char| !c.is_ascii_digit()).unwrap_or(fraction.len());
        if end == 0 {
            return None;
        }
        micros += of_number(&format!("0.{}", &fraction[..end]))?;
        zone = &fraction[end..];
    }
    at(day_number(year, month, day)?, micros, of_zone(zone)?)
}

/// `10/Oct/2000:13:55:36 -0700`, as access logs have it.
pub(crate) fn of_access_log(text: &str) -> Option<u64> {
    if !text.is_ascii() {
        return None;
    }
    let (date, zone) = text.split_once(' ')?;
    let (date, clock) = date.split_once(':')?;
    let mut date = date.split('/');
    let (day, name, year) = (date.next()?, date.next()?, date.next()?);
    let month = MONTHS.iter().position(|month| month.eq_ignore_ascii_case(name))? as u64 + 1;
    let moment = at(day_number(number(year, 4)?, month, number(day, 2)?)?, of_clock(clock)?, of_zone(zone)?);
    moment.filter(|moment| *moment <= LATEST)
}

fn at(day: u64, micros: u64, zone: i64) -> Option<u64> {
    (day * DAY + micros).checked_add_signed(-zone)
}

/// `13:55:36` as microseconds of its day. A leap second counts as the second before it.
fn of_clock(text: &str) -> Option<u64> {
    let mut parts = text.split(':');
    let (hour, minute, second) = (number(parts.next()?, 2)?, number(parts.next()?, 2)?, number(parts.next()?, 2)?);
    let valid = parts.next().is_none() && hour < 24 && minute < 60 && second <= 60;
    valid.then(|| ((hour * 60 + minute) * 60 + second.min(59)) * SECOND)
}

/// The microseconds by which a zone is ahead of UTC.
fn of_zone(text: &str) -> Option<i64> {
    let text = text.trim();
    if matches!(text, "" | "Z" | "z" | "UTC" | "GMT") {
        return Some(0);
    }
    let (sign, digits) =
        text.strip_prefix('+').map(|rest| (1, rest)).or_else(|| Some((-1, text.strip_prefix('-')?)))?;
    let digits = digits.replace(':', "");
    let (hours, minutes) = digits.split_at_checked(2)?;
    let (hours, minutes) = (number(hours, 2)?, number(minutes, 2)?);
    (hours < 24 && minutes < 60).then(|| sign * ((hours * 60 + minutes) * MINUTE) as i64)
}

fn number(text: &str, digits: usize) -> Option<u64> {
    (text.len() == digits && text.bytes().all(|byte| byte.is_ascii_digit())).then(|| text.parse().ok())?
}

/// A length of time for people: `1 h 30 min`.
pub(crate) fn words(micros: u64) -> String {
    const UNITS: [(u64, &str); 4] = [(DAY, "d"), (60 * MINUTE, "h"), (MINUTE, "min"), (SECOND, "s")];
    if micros == 0 {
        return "0 s".to_owned();
    }
    if micros < SECOND {
        return if micros < 1_000 { format!("{micros} µs") } else { format!("{} ms", trimmed(micros as f64 / 1e3)) };
    }
    if micros < 2 * MINUTE && !micros.is_multiple_of(MINUTE) {
        return format!("{} s", trimmed(micros as f64 / 1e6));
    }
    let mut rest = (micros + SECOND / 2) / SECOND * SECOND;
    let mut parts = Vec::new();
    for (length, unit) in UNITS {
        if rest >= length && parts.len() < 2 {
            parts.push(format!("{} {unit}", rest / length));
        } else if !parts.is_empty() {
            break;
        }
        rest %= length;
    }
    parts.join(" ")
}

/// A number with at most two digits after the point, and no zeros at the end.
pub(crate) fn trimmed(number: f64) -> String {
    let text = if number.abs() < 100.0 { format!("{number:.2}") } else { format!("{number:.1}") };
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::{of_access_log, parse, words};
    use crate::calendar::{date, time_of_day};

    #[test]
    fn moments_of_traces() {
        let wanted = Some(1_000_000_000_500_000);
        for text in ["1000000000.5", "1000000000500", "1000000000500000", "1000000000500000000", "1.0000000005e9"] {
            assert_eq!(parse(text), wanted, "{text}");
        }
        for text in ["2001-09-09T01:46:40.5Z", "2001-09-09 01:46:40.500", "2001-09-09t03:46:40.5+02:00"] {
            assert_eq!(parse(text), wanted, "{text}");
        }
        assert_eq!(of_access_log("10/Oct/2000:13:55:36 -0700"), Some(971_211_336_000_000));
        assert_eq!(parse("2024-02-29T00:00:00Z"), Some(1_709_164_800_000_000));
        for text in ["", ".", "x", "-1", "2023-02-29T00:00:00Z", "2024-13-01T00:00:00Z", "NaN", "inf", "1.2.3"] {
            assert_eq!(parse(text), None, "{text:?}");
        }
    }

    #[test]
    fn dates_are_those_that_were_read() {
        for text in ["1970-01-01", "1999-12-31", "2000-02-29", "2024-02-29", "2026-11-22", "2100-03-01"] {
            let moment = parse(&format!("{text}T13:55:36.25Z")).expect("a moment");
            assert_eq!(date(moment), text);
            assert_eq!(time_of_day(moment, 1_000), "13:55:36.250");
        }
    }

    #[test]
    fn lengths() {
        let spoken = [(250, "250 µs"), (40_000_000, "40 s"), (90_500_000, "90.5 s"), (5_400_000_000, "1 h 30 min")];
        for (micros, text) in spoken {
            assert_eq!(words(micros), text);
        }
    }
}
