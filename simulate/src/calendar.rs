//! Dates and times of day in UTC. Moments are microseconds since 1970.

pub(crate) const SECOND: u64 = 1_000_000;
pub(crate) const MINUTE: u64 = 60 * SECOND;
pub(crate) const DAY: u64 = 86_400 * SECOND;

/// Days from 1970 to a date.
pub(crate) fn day_number(year: u64, month: u64, day: u64) -> Option<u64> {
    let leap = year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let lengths = [31, if leap { 29 } else { 28 }, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let index = usize::try_from(month).ok()?.checked_sub(1)?;
    if year < 1970 || day == 0 || day > *lengths.get(index)? {
        return None;
    }
    let before = year - 1;
    let leaps = |year: u64| year / 4 - year / 100 + year / 400;
    Some((year - 1970) * 365 + leaps(before) - leaps(1969) + lengths[..index].iter().sum::<u64>() + day - 1)
}

/// A date as `2024-01-01`.
pub fn date(moment: u64) -> String {
    let day = moment / DAY;
    let begins = |year: u64, month: u64| day_number(year, month, 1).is_some_and(|first| first <= day);
    // A year has more than 365 days on average, so this is never too late.
    let mut year = 1970 + day / 366;
    while begins(year + 1, 1) {
        year += 1;
    }
    let month = (1..=12).rev().find(|month| begins(year, *month)).unwrap_or(1);
    let first = day_number(year, month, 1).unwrap_or(day);
    format!("{year:04}-{month:02}-{:02}", day - first + 1)
}

/// The time of day, with as many digits as `step` needs.
pub fn time_of_day(moment: u64, step: u64) -> String {
    let of_day = moment % DAY;
    let (hour, minute, second) = (of_day / (60 * MINUTE), of_day / MINUTE % 60, of_day / SECOND % 60);
    if step.is_multiple_of(MINUTE) {
        return format!("{hour:02}:{minute:02}");
    }
    if step.is_multiple_of(SECOND) {
        return format!("{hour:02}:{minute:02}:{second:02}");
    }
    format!("{hour:02}:{minute:02}:{second:02}.{:03}", of_day / 1_000 % 1_000)
}
