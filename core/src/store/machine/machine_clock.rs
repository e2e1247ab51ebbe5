//! The time of a file, for all processes of its machine. It also runs while the machine sleeps, and nothing sets it.
//! Each process also knows how far the calendar is ahead, for windows that follow it and for people who read a moment.

use std::sync::atomic::{AtomicI64, AtomicU64};

use super::seal::{NUMBER, Salt};
use super::sync::Ordering;
use super::system_clock::{since_1970, since_start};
use super::words::Words;

/// Microseconds between two comparisons with the calendar.
const COMPARISON_INTERVAL: u64 = 1_000_000;
/// A difference to the calendar up to this counts as none, because two looks at clocks are never the same.
const TOLERANCE: i64 = 10_000;
/// The longest time for a look at both clocks, and how often it is repeated if the thread stood still meanwhile.
const LONGEST_LOOK: u64 = 1_000;
const QUICK_LOOKS: usize = 3;
const PATIENT_LOOKS: usize = 100;

/// Places in the header: a moment that no process has seen yet, and how far the calendar is ahead. A restart of the
/// machine needs both.
pub(super) const UNSEEN: usize = 32;
pub(super) const AHEAD: usize = 33;
/// Added to a difference, so that it is stored as a number without a sign.
const ZERO: i64 = (NUMBER / 2) as i64;

/// A moment of a file, and how many microseconds the calendar is ahead of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Moment {
    pub(super) now: u64,
    pub(super) ahead: i64,
}

impl Moment {
    /// A moment that the caller gives, by its own calendar.
    pub(super) const fn given(now: u64) -> Self {
        Self { now, ahead: 0 }
    }
}

/// The time of a file as a process reads it.
pub(super) struct MachineClock {
    /// Added to the time since the start of the machine. All processes have the same one until the next start.
    base: u64,
    compared_until: AtomicU64,
    ahead: AtomicI64,
}

impl MachineClock {
    pub(super) const fn new(base: u64) -> Self {
        Self { base, compared_until: AtomicU64::new(0), ahead: AtomicI64::new(0) }
    }

    /// How many microseconds the calendar was ahead when a process looked last.
    #[inline]
    pub(super) fn ahead(&self) -> i64 {
        self.ahead.load(Ordering::Relaxed)
    }

    /// The current moment. Calls `damaged` if the file's numbers about its time were damaged.
    #[inline]
    pub(super) fn now(&self, words: &Words, damaged: impl FnOnce()) -> Moment {
        let now = self.base + since_start();
        if now >= self.compared_until.load(Ordering::Relaxed) && self.compare(words, now) {
            damaged();
        }
        Moment { now, ahead: self.ahead() }
    }

    /// Compares with the calendar, and notes the numbers for a restart of the machine. Returns true if these were damaged.
    #[cold]
    fn compare(&self, words: &Words, now: u64) -> bool {
        let until = now + COMPARISON_INTERVAL;
        let mut is_damaged = raise_unseen(words, until);
        self.compared_until.store(until, Ordering::Relaxed);
        let known = Salt::at(AHEAD).open(words.load(AHEAD)).map(|known| known.cast_signed() - ZERO);
        is_damaged |= known.is_err();
        let found = look_well(QUICK_LOOKS).map(|(calendar, started)| difference(calendar, self.base + started));
        let ahead = match (known, found) {
            // All processes have one number, even if this thread could not look.
            (Ok(known), found) if found.is_none_or(|found| (found - known).abs() <= TOLERANCE) => known,
            (_, Some(found)) => {
                if found.abs() > TOLERANCE {
                    found
                } else {
                    0
                }
            }
            (_, None) => self.ahead.load(Ordering::Relaxed),
        };
        self.ahead.store(ahead, Ordering::Relaxed);
        if known != Ok(ahead) {
            words.store(AHEAD, Salt::at(AHEAD).seal(stored(ahead)));
        }
        is_damaged
    }
}

/// The calendar and the time since the start, at one moment. `None` if the thread stood still meanwhile.
fn look() -> Option<(u64, u64)> {
    let (before, calendar, after) = (since_start(), since_1970(), since_start());
    (after - before <= LONGEST_LOOK).then_some((calendar, before))
}

/// The same, from the first look that was quick enough, of `looks` at most.
fn look_well(looks: usize) -> Option<(u64, u64)> {
    (0..looks).find_map(|_| look())
}

/// The same, as exact as possible.
fn look_patiently() -> (u64, u64) {
    look_well(PATIENT_LOOKS).unwrap_or_else(|| (since_1970(), since_start()))
}

fn difference(calendar: u64, now: u64) -> i64 {
    calendar.cast_signed().saturating_sub(now.cast_signed()).clamp(-ZERO, ZERO)
}

fn stored(ahead: i64) -> u64 {
    (ahead + ZERO).cast_unsigned()
}

/// Raises the moment that no process has seen yet. Returns true if the earlier one was damaged.
fn raise_unseen(words: &Words, moment: u64) -> bool {
    let salt = Salt::at(UNSEEN);
    loop {
        let before = words.read_published(UNSEEN);
        let known = salt.open(before);
        if known.is_ok_and(|known| known >= moment) || words.publish(UNSEEN, before, salt.seal(moment)) {
            return known.is_err();
        }
    }
}

/// The base of a new file: its time begins with the time of the calendar.
pub(super) fn first_base(words: &Words) -> u64 {
    let (calendar, started) = look_patiently();
    words.store(UNSEEN, Salt::at(UNSEEN).seal(calendar));
    words.store(AHEAD, Salt::at(AHEAD).seal(stored(0)));
    calendar.saturating_sub(started)
}

/// The base after a restart of the machine. Only the calendar knows how long that took. So the file's time stays as far
/// behind it as before, but never before any moment that was seen. Also returns true if these numbers were damaged.
pub(super) fn next_base(words: &Words) -> (u64, bool) {
    let (unseen, ahead) = (Salt::at(UNSEEN).open(words.load(UNSEEN)), Salt::at(AHEAD).open(words.load(AHEAD)));
    let (calendar, started) = look_patiently();
    let is_damaged = unseen.is_err() || ahead.is_err();
    let behind = ahead.map_or(0, |ahead| ahead.cast_signed() - ZERO);
    let now = calendar.saturating_add_signed(-behind).max(unseen.unwrap_or(0));
    words.store(UNSEEN, Salt::at(UNSEEN).seal(now));
    words.store(AHEAD, Salt::at(AHEAD).seal(stored(behind)));
    (now.saturating_sub(started), is_damaged)
}

/// True if the machine was started again since a file with that base was used, by its time alone. The time is read
/// after the seen moment: otherwise a process that stands still between both reads would take its own pause for a
/// restart, and free the locks of living processes.
pub(super) fn was_restarted(words: &Words, base: u64) -> bool {
    let unseen = Salt::at(UNSEEN).open(words.read_published(UNSEEN));
    unseen.is_ok_and(|unseen| base + since_start() + COMPARISON_INTERVAL < unseen)
}
