//! Tests on real servers run at any time of day. `calendar-window` and `sliding-counter` count in windows that are aligned
//! to the calendar, so a test that uses them must not run across the end of one.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// No test that must not run across the end of a window takes this long.
const MARGIN: Duration = Duration::from_secs(30);
const HOUR: Duration = Duration::from_secs(3_600);

fn since_1970() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970")
}

/// Returns when the current hour has more than half a minute left: at once, except right before its end. Every aligned
/// window of a whole number of hours ends with an hour.
pub fn wait_out_the_end_of_an_hour() {
    let left = HOUR - Duration::from_micros((since_1970().as_micros() % HOUR.as_micros()) as u64);
    if left < MARGIN {
        std::thread::sleep(left);
    }
}

/// A period in hours. Its aligned window ends hours from now, by the system's clock and by one two hours ahead.
///
/// # Panics
/// When there is no such period. There is one in every hour until 2080.
#[must_use]
pub fn hours_of_a_window_far_from_its_end() -> u64 {
    let now = since_1970().as_secs() / 3_600;
    let left = |hours: &u64| [now, now + 2].map(|hour| hours - hour % hours).into_iter().min().expect("two clocks");
    let hours = (24..=48).max_by_key(left).expect("a period");
    assert!(left(&hours) > 3, "the window of {hours} hours ends soon");
    hours
}
