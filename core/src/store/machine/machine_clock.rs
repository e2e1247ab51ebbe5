//! The time of a machine, for all its processes: it goes on while the machine sleeps, and nothing sets it back.

use std::fs;
use std::time::{SystemTime, UNIX_EPOCH};

use super::words::Words;

/// Microseconds between two comparisons with the clock of the calendar.
const COMPARISON_INTERVAL: u64 = 1_000_000;

/// Where in the header are: what is added to the time since the start of the machine, when it is compared next, and the last time
/// that was seen then.
pub(super) const BASE: usize = 16;
pub(super) const COMPARED: usize = 17;
pub(super) const SEEN: usize = 18;

/// Microseconds since the machine was started.
#[inline]
fn since_start() -> u64 {
    #[cfg(target_os = "linux")]
    let clock = rustix::time::ClockId::Boottime;
    #[cfg(not(target_os = "linux"))]
    let clock = rustix::time::ClockId::Monotonic;
    let time = rustix::time::clock_gettime(clock);
    time.tv_sec.cast_unsigned() * 1_000_000 + time.tv_nsec.cast_unsigned() / 1_000
}

fn since_1970() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_micros() as u64
}

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

/// Whether the time since the start is less than it was: then the machine was started again.
pub(super) fn was_restarted(words: &Words) -> bool {
    since_start() < words.load(SEEN).saturating_sub(words.load(BASE))
}

/// A number for this start of the machine, where the system has one.
pub(super) fn boot_id() -> u64 {
    let text = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let digest = blake3::hash(text.trim().as_bytes());
    digest.as_bytes().first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes))
}

/// By how many seconds the time since the start differs in the namespace of this process.
pub(super) fn time_offset() -> u64 {
    let text = fs::read_to_string("/proc/self/timens_offsets").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("boottime"));
    let seconds = line.and_then(|line| line.split_ascii_whitespace().next()).and_then(|text| text.parse::<i64>().ok());
    seconds.unwrap_or(0).cast_unsigned()
}
