//! The clock of a server against the clock of this machine, and the round trip.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tidegate::Error;
use tidegate::host::ServerConnection;

use super::finding::Finding;
use crate::reply::moment;
use crate::time_text::length;

/// The seconds of difference that are worth a note, and those that are a problem.
const NOTE: f64 = 2.0;
const PROBLEM: f64 = 60.0;
/// Pings, and the longest time for all of them.
const PINGS: usize = 100;
const PING_TIME: Duration = Duration::from_secs(1);
/// A round trip that takes a good part of the timeout of a call (250 ms by default).
const SLOW: Duration = Duration::from_millis(25);

/// The seconds by which the server's clock is ahead of this machine's. `None` if the user may not ask.
pub(super) fn ahead(connection: &mut ServerConnection) -> Result<Option<f64>, Error> {
    let begun = Instant::now();
    let before = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let reply = connection.ask(&["TIME"])?;
    // The server read its clock about half way.
    let here = before + begun.elapsed() / 2;
    Ok(moment(&reply).map(|there| there.as_secs_f64() - here.as_secs_f64()))
}

pub(super) fn examine(ahead: f64) -> Finding {
    let difference = Duration::from_secs_f64(ahead.abs());
    let size = if difference < Duration::from_millis(1) { "less than 1 ms".to_owned() } else { length(difference) };
    let direction = if ahead < 0.0 { "behind" } else { "ahead of" };
    let message = format!("its clock is {size} {direction} this machine's");
    let advice = "limits count by the server's clock: run NTP on it. A failover to a server whose clock is behind keeps keys \
                  denied for longer, and windows of the calendar begin at the wrong time";
    match ahead.abs() {
        difference if difference >= PROBLEM => Finding::problem("clock", message).advice(advice),
        difference if difference >= NOTE => Finding::note("clock", message).advice(advice),
        _ => Finding::ok("clock", format!("its clock and this machine's differ by {size}")),
    }
}

/// Sends pings, one after the other.
pub(super) fn round_trip(connection: &mut ServerConnection) -> Result<Finding, Error> {
    let begun = Instant::now();
    let mut times = Vec::with_capacity(PINGS);
    while times.len() < PINGS && (times.is_empty() || begun.elapsed() < PING_TIME) {
        let sent = Instant::now();
        connection.ask(&["PING"])?;
        times.push(sent.elapsed());
    }
    times.sort_unstable();
    let (median, slowest) = (times[times.len() / 2], times[(times.len() * 99).div_ceil(100) - 1]);
    let message = format!("median {}, 99 % within {}, of {} pings", length(median), length(slowest), times.len());
    Ok(if median >= SLOW {
        Finding::note("round trip", message)
            .advice("each check waits that long: bring the store nearer, or use `lease`")
    } else {
        Finding::ok("round trip", message)
    })
}

#[cfg(test)]
mod tests {
    use super::super::finding::Level;
    use super::*;

    #[test]
    fn a_clock_that_is_off_is_worth_a_note_or_a_problem() {
        let levels = [0.0, -0.3, 3.0, -10.0, 61.0, -3_600.0].map(|ahead| examine(ahead).level);
        assert_eq!(levels, [Level::Ok, Level::Ok, Level::Note, Level::Note, Level::Problem, Level::Problem]);
        assert!(examine(-3.0).message.contains("behind"));
    }
}
