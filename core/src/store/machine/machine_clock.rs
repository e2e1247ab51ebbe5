//! The time of a machine, for all its processes: it goes on while the machine sleeps, and nothing sets it back.

use super::system_clock::{since_1970, since_start};
use super::words::Words;

/// Microseconds between two comparisons with the clock of the calendar.
const COMPARISON_INTERVAL: u64 = 1_000_000;

/// Where in the header are: what is added to the time since the start of the machine, when it is compared next, and the last time
/// that was seen then.
pub(super) const BASE: usize = 16;
pub(super) const COMPARED: usize = 17;
pub(super) const SEEN: usize = 18;

/// Microseconds since 1970. Between two comparisons it goes with the machine; where the calendar is ahead of it, it follows.
#[inline]
pub(super) fn micros(words: &Words) -> u64 {
    let started = since_start();
    if started >= words.load(COMPARED) {
        compare(words, started);
    }
    words.load(BASE) + started
}

#[cold]
fn compare(words: &Words, started: u64) {
    words.store(COMPARED, started + COMPARISON_INTERVAL);
    // The calendar is read first, so that the difference is never too large.
    let calendar = since_1970();
    let base = words.raise(BASE, calendar.saturating_sub(since_start()));
    words.raise(SEEN, base + started);
}

/// Begins anew after the machine was started again: time goes on from what the calendar says, and not before what was seen last.
pub(super) fn rebase(words: &Words) {
    let (calendar, started) = (since_1970(), since_start());
    words.store(BASE, calendar.max(words.load(SEEN)).saturating_sub(started));
    words.store(COMPARED, started + COMPARISON_INTERVAL);
}

/// Whether the machine was started again since the file was used. The time is read behind all that was seen: a process that stands
/// still between both reads would take its own pause for a restart, and free the locks of processes that live.
pub(super) fn was_restarted(words: &Words) -> bool {
    let (seen, base) = (words.read_published(SEEN), words.read_published(BASE));
    since_start() < seen.saturating_sub(base)
}
