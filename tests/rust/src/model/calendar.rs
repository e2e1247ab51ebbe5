//! Calendars, counted up day by day.

use std::cell::RefCell;
use std::sync::LazyLock;

use jiff::civil::Date;
use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan};
use tidegate::{Limit, Period, TimeUnit};

const DAY: u64 = 86_400_000_000;

/// When each month begins, from January 1970 to the end of 2139.
static MONTHS: LazyLock<Vec<u64>> = LazyLock::new(|| {
    let mut starts = vec![0];
    for year in 1970..2140 {
        let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
        for days in [31, if leap { 29 } else { 28 }, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31] {
            starts.push(starts[starts.len() - 1] + days * DAY);
        }
    }
    starts
});

/// When the window that holds `moment` begins and ends.
pub fn window(limit: &Limit, moment: u64) -> (u64, u64) {
    if limit.anchor().is_some() || limit.zone().is_some() {
        return known_window(limit, moment);
    }
    let begins = window_start(limit.period(), moment);
    // Every window is longer than a quarter of its period, so the search skips none.
    let later = (1..).map(|step| begins + step * limit.period().micros() / 4);
    let next = later.map(|moment| window_start(limit.period(), moment)).find(|next| *next > begins);
    (begins, next.expect("a next window"))
}

/// When the window of the UTC calendar that holds `moment` begins. Windows of several days, weeks, months or years are counted from the
/// first day, Monday, month or year of 1970.
fn window_start(period: Period, moment: u64) -> u64 {
    let months = match period.unit() {
        TimeUnit::Month => period.multiple(),
        TimeUnit::Year => 12 * period.multiple(),
        // 1 January 1970 was a Thursday.
        TimeUnit::Week => return moment - (moment - 4 * DAY) % period.micros(),
        _ => return moment - moment % period.micros(),
    };
    *MONTHS.iter().step_by(months as usize).rev().find(|start| **start <= moment).expect("after 1970")
}

/// The same for a calendar with a zone or an anchor. It keeps the last window: a search asks for it again and again.
fn known_window(limit: &Limit, moment: u64) -> (u64, u64) {
    thread_local! {
        static LAST: RefCell<Option<(Limit, (u64, u64))>> = const { RefCell::new(None) };
    }
    let holds = |(begins, ends): (u64, u64)| begins <= moment && moment < ends;
    let last = LAST.with_borrow(|last| last.as_ref().filter(|(of, _)| of == limit).map(|(_, window)| *window));
    last.filter(|window| holds(*window)).unwrap_or_else(|| {
        let window = own_window(limit, moment);
        LAST.set(Some((limit.clone(), window)));
        window
    })
}

/// The window that holds `moment` in a calendar with a zone or an anchor. It looks at every day around the moment.
fn own_window(limit: &Limit, moment: u64) -> (u64, u64) {
    let zone = limit.zone().map_or(TimeZone::UTC, |name| TimeZone::get(name).expect("a zone"));
    let anchor = limit.anchor().map(ToString::to_string).unwrap_or_default();
    let words: Vec<&str> = anchor.split(' ').collect();
    let after = |word: &str| words.iter().position(|other| *other == word).map(|at| words[at + 1]);
    let (hour, minute) = after("at").and_then(|time| time.split_once(':')).unwrap_or(("0", "0"));
    let number = after("day").map_or(1, |day| day.parse().expect("a number"));
    let weekday = words.first().copied().filter(|word| word.ends_with("day") && word.len() > 3).unwrap_or("monday");
    let begins_on = |date: Date| match limit.period().unit() {
        TimeUnit::Week => format!("{:?}", date.weekday()).eq_ignore_ascii_case(weekday),
        TimeUnit::Month => date.day() == number.min(date.days_in_month()),
        TimeUnit::Year => date.month() == 1 && date.day() == number,
        _ => true,
    };
    let reach = limit.period().micros() / DAY + 10;
    let today = zone.to_datetime(Timestamp::from_microsecond(moment as i64).expect("a moment")).date();
    let days = (-(reach as i64)..=reach as i64).map(|later| today.checked_add(later.days()).expect("a day"));
    let edges = days.filter(|date| begins_on(*date)).map(|date| {
        let time = date.at(hour.parse().expect("an hour"), minute.parse().expect("a minute"), 0, 0);
        zone.to_timestamp(time).expect("a moment").as_microsecond().max(0) as u64
    });
    let edges: Vec<u64> = edges.collect();
    let next = edges.iter().position(|edge| *edge > moment).expect("a later edge");
    (edges[next - 1], edges[next])
}
