//! The clocks of the system, and the id of its start. A model of the protocol has its own system in this place.

use std::fs;
use std::time::{SystemTime, UNIX_EPOCH};

/// Microseconds since the machine was started.
#[inline]
pub(super) fn since_start() -> u64 {
    #[cfg(target_os = "linux")]
    let clock = rustix::time::ClockId::Boottime;
    #[cfg(not(target_os = "linux"))]
    let clock = rustix::time::ClockId::Monotonic;
    let time = rustix::time::clock_gettime(clock);
    time.tv_sec.cast_unsigned() * 1_000_000 + time.tv_nsec.cast_unsigned() / 1_000
}

/// Microseconds since 1970, by the clock that the system may set.
pub(super) fn since_1970() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_micros() as u64
}

/// A number for this start of the machine. 0 if the system has none.
pub(super) fn boot_id() -> u64 {
    let Ok(text) = fs::read_to_string("/proc/sys/kernel/random/boot_id") else { return 0 };
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
