//! The UTC calendar, counted up day by day.

use std::sync::LazyLock;

use tidegate::{Period, TimeUnit};

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

/// When the window that holds `moment` begins. Windows of several days, weeks, months or years are counted from the
/// first day, Monday, month or year of 1970.
pub(super) fn window_start(period: Period, moment: u64) -> u64 {
    let months = match period.unit() {
        TimeUnit::Month => period.multiple(),
        TimeUnit::Year => 12 * period.multiple(),
        // 1 January 1970 was a Thursday.
        TimeUnit::Week => return moment - (moment - 4 * DAY) % period.micros(),
        _ => return moment - moment % period.micros(),
    };
    *MONTHS.iter().step_by(months as usize).rev().find(|start| **start <= moment).expect("after 1970")
}
