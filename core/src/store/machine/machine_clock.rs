//! The time of a file, for all processes of its machine: it goes on with the machine, also while that sleeps, and nothing sets it. How
//! far the calendar is ahead of it is known beside it, for windows that follow the calendar and for those who read a moment.

use std::sync::atomic::{AtomicI64, AtomicU64};

use super::seal::{NUMBER, Salt};
use super::sync::Ordering;
use super::system_clock::{since_1970, since_start};
use super::words::Words;

/// Microseconds between two comparisons with the calendar.
const COMPARISON_INTERVAL: u64 = 1_000_000;
/// A difference to the calendar that is none: two looks at clocks are never the same.
const TOLERANCE: i64 = 10_000;
/// The longest that a look at both clocks takes, and how often it is repeated where the thread stood still meanwhile.
const LONGEST_LOOK: u64 = 1_000;
const QUICK_LOOKS: usize = 3;
const PATIENT_LOOKS: usize = 100;

/// Where in the header are: a moment that no process has seen yet, and how far the calendar is ahead. Both are needed after a restart
/// of the machine.
pub(super) const UNSEEN: usize = 32;
pub(super) const AHEAD: usize = 33;
/// What is added to a difference, so that it is stored as a number without a sign.
const ZERO: i64 = (NUMBER / 2) as i64;

/// A moment of a file, and how many microseconds the calendar is ahead of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Moment {
    pub(super) now: u64,
    pub(super) ahead: i64,
}

impl Moment {
    /// One that the caller gives: of its own calendar.
    pub(super) const fn given(now: u64) -> Self {
        Self { now, ahead: 0 }
    }
}

/// The time of a file as a process reads it.
pub(super) struct MachineClock {
    /// What is added to the time since the start of the machine: the same for every process, until the machine is started again.
    base: u64,
    compared_until: AtomicU64,
    ahead: AtomicI64,
}

impl MachineClock {
    pub(super) const fn new(base: u64) -> Self {
        Self { base, compared_until: AtomicU64::new(0), ahead: AtomicI64::new(0) }
    }

    /// The moment of now. `damaged` is called where what the file says of its time was damaged.
    #[inline]
    pub(super) fn now(&self, words: &Words, damaged: impl FnOnce()) -> Moment {
        let now = self.base + since_start();
        if now >= self.compared_until.load(Ordering::Relaxed) && self.compare(words, now) {
            damaged();
        }
        Moment { now, ahead: self.ahead.load(Ordering::Relaxed) }
    }

    /// Compares with the calendar, and notes what a restart of the machine will need. Returns whether that was damaged.
    #[cold]
    fn compare(&self, words: &Words, now: u64) -> bool {
        let until = now + COMPARISON_INTERVAL;
        let mut is_damaged = raise_unseen(words, until);
        self.compared_until.store(until, Ordering::Relaxed);
        let known = Salt::at(AHEAD).open(words.load(AHEAD)).map(|known| known.cast_signed() - ZERO);
        is_damaged |= known.is_err();
        let found = look_well(QUICK_LOOKS).map(|(calendar, started)| difference(calendar, self.base + started));
        let ahead = match (known, found) {
            // All processes have one number, also where this thread could not look.
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

/// The calendar and the time since the start, of one moment; `None` where the thread stood still meanwhile.
fn look() -> Option<(u64, u64)> {
    let (before, calendar, after) = (since_start(), since_1970(), since_start());
    (after - before <= LONGEST_LOOK).then_some((calendar, before))
}

/// The same, of the first of so many looks that was quick enough.
fn look_well(looks: usize) -> Option<(u64, u64)> {
    (0..looks).find_map(|_| look())
}

/// The same, as well as can be had.
fn look_patiently() -> (u64, u64) {
    look_well(PATIENT_LOOKS).unwrap_or_else(|| (since_1970(), since_start()))
}

fn difference(calendar: u64, now: u64) -> i64 {
    calendar.cast_signed().saturating_sub(now.cast_signed()).clamp(-ZERO, ZERO)
}

fn stored(ahead: i64) -> u64 {
    (ahead + ZERO).cast_unsigned()
}

/// Says that no process has seen a moment yet. Returns whether what was said before was damaged.
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

/// The base of a new file: its time begins with what the calendar says.
pub(super) fn first_base(words: &Words) -> u64 {
    let (calendar, started) = look_patiently();
    words.store(UNSEEN, Salt::at(UNSEEN).seal(calendar));
    words.store(AHEAD, Salt::at(AHEAD).seal(stored(0)));
    calendar.saturating_sub(started)
}

/// The base after the machine was started again. Only the calendar knows how long that took: the file's time is behind it by as much
/// as it was, and not before what was seen last. Returns too whether that was damaged.
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

/// Whether the machine was started again since a file with that base was used, by its time alone. That is read behind all that was
/// seen: a process that stands still between both reads would take its own pause for a restart, and free the locks of processes that
/// live.
pub(super) fn was_restarted(words: &Words, base: u64) -> bool {
    let unseen = Salt::at(UNSEEN).open(words.read_published(UNSEEN));
    unseen.is_ok_and(|unseen| base + since_start() + COMPARISON_INTERVAL < unseen)
}
