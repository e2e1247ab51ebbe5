//! Lengths of time and moments, in every form that services write.

use std::time::Duration;

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::fmt::{rfc2822, strtime};
use jiff::tz::TimeZone;

use crate::policy::TimeUnit;

const SECOND: u128 = 1_000_000;
/// The longest wait that is believed, in microseconds.
const BELIEVABLE: i128 = super::BELIEVABLE.as_micros() as i128;
/// A number of seconds from here on is a time since 1970. As a wait it would be three years, as a time it is in 1973.
const LEAST_UNIX_SECONDS: u128 = 100_000_000;
/// A number from here on is in milliseconds. As seconds it would be in the year 5138, as milliseconds it is in 1973.
const LEAST_UNIX_MILLIS: u128 = 100_000_000_000;
/// A number from here on is no time.
const PAST_UNIX_MILLIS: u128 = 100_000_000_000_000;
/// The longest text of a time.
const LONGEST: usize = 64;
/// The forms of HTTP dates that are no longer written, but must be read: those of RFC 850 and of `asctime`.
const OLD_DATES: [&str; 2] = ["%A, %d-%b-%y %H:%M:%S GMT", "%a %b %e %H:%M:%S %Y"];

/// Reads waits, relative to the time of the service.
#[derive(Clone, Copy)]
pub(super) struct WaitReader {
    /// Microseconds since 1970.
    now: i128,
    longest: Duration,
}

impl WaitReader {
    pub(super) fn new(now: Duration, longest: Duration) -> Self {
        Self { now: now.as_micros().try_into().unwrap_or(i128::MAX / 2), longest }
    }

    /// Sets the time of the service, because its moments are by its own clock.
    pub(super) const fn set_clock(&mut self, now: i128) {
        self.now = now;
    }

    /// The longest of the waits in a text, because a field may be repeated.
    pub(super) fn of_text(&self, text: &str) -> Option<Duration> {
        self.one(text).or_else(|| {
            let waits = text.split(',').map(|part| self.one(part.trim()));
            waits.collect::<Option<Vec<_>>>()?.into_iter().max()
        })
    }

    /// The same for a text in milliseconds.
    pub(super) fn of_millis(&self, text: &str) -> Option<Duration> {
        let waits = text.split(',').map(|part| self.believed(millionths(part.trim())?.div_ceil(1_000)));
        waits.collect::<Option<Vec<_>>>()?.into_iter().max()
    }

    fn one(&self, text: &str) -> Option<Duration> {
        if text.len() > LONGEST {
            return None;
        }
        if let Some(number) = millionths(text) {
            return match number / SECOND {
                0..LEAST_UNIX_SECONDS => self.believed(number),
                LEAST_UNIX_SECONDS..LEAST_UNIX_MILLIS => self.until(number.try_into().ok()?),
                LEAST_UNIX_MILLIS..PAST_UNIX_MILLIS => self.until(number.div_ceil(1_000).try_into().ok()?),
                _ => None,
            };
        }
        match length(text) {
            Some(micros) => self.believed(micros),
            None => self.until(moment(text)?),
        }
    }

    /// A moment that has passed is a wait of zero. One that passed long ago is not believed.
    fn until(&self, moment: i128) -> Option<Duration> {
        let left = moment - self.now;
        if left < -BELIEVABLE { None } else { self.believed(left.max(0).unsigned_abs()) }
    }

    fn believed(&self, micros: u128) -> Option<Duration> {
        let believed = micros <= BELIEVABLE.unsigned_abs();
        believed.then(|| Duration::from_micros(micros.try_into().unwrap_or(u64::MAX)).min(self.longest))
    }

    /// The moment of an HTTP date, in microseconds since 1970.
    pub(super) fn date(text: &str) -> Option<i128> {
        let dated = rfc2822::DateTimeParser::new().relaxed_weekday(true).parse_timestamp(text).ok();
        let old = |form| TimeZone::UTC.to_timestamp(strtime::parse(form, text).ok()?.to_datetime().ok()?).ok();
        dated.or_else(|| OLD_DATES.into_iter().find_map(old)).map(micros)
    }
}

fn micros(moment: Timestamp) -> i128 {
    moment.as_microsecond().into()
}

/// A date and time of ISO 8601, in UTC if it has no offset, or an HTTP date.
fn moment(text: &str) -> Option<i128> {
    // Each form has the time of the day, and so a colon.
    if !text.contains(':') {
        return None;
    }
    let with_offset = text.parse::<Timestamp>().ok();
    let without = || TimeZone::UTC.to_timestamp(text.parse::<DateTime>().ok()?).ok();
    with_offset.or_else(without).map(micros).or_else(|| WaitReader::date(text))
}

/// A number without a sign or an exponent, in millionths, rounded up.
fn millionths(text: &str) -> Option<u128> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let is_number = |digits: &str| !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    if !is_number(whole) || !is_number(fraction) || whole.len() > 18 {
        return None;
    }
    let kept = fraction.get(..6).unwrap_or(fraction);
    let scaled: u128 = format!("{kept:0<6}").parse().ok()?;
    let rest = fraction[kept.len()..].bytes().any(|byte| byte != b'0');
    Some(whole.parse::<u128>().ok()? * SECOND + scaled + u128::from(rest))
}

/// A length such as `6m0s`, `20ms`, `1.5s` or `1h 30 minutes`, in microseconds, rounded up.
fn length(text: &str) -> Option<u128> {
    let (mut rest, mut sum) = (text, 0_u128);
    loop {
        let (number, after) = rest.split_at(rest.find(|c: char| !c.is_ascii_digit() && c != '.')?);
        let end = after.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(after.len());
        let (word, after) = after.split_at(end);
        let nanos = match word.trim() {
            "ns" => 1,
            "us" | "µs" | "μs" => 1_000,
            word => u128::from(TimeUnit::of_word(word)?.micros()) * 1_000,
        };
        sum = sum.checked_add(millionths(number)?.checked_mul(nanos)?.div_ceil(SECOND * 1_000))?;
        rest = after;
        if rest.is_empty() {
            return Some(sum);
        }
    }
}
