//! The time of a file against a model of a machine. The clock of the machine is set, the machine restarts, and
//! processes stand still at any moment. The file of the core runs here on clocks of the test.

#[path = "../../../../core/src/store/machine/machine_clock.rs"]
#[allow(dead_code, reason = "a test needs a part of it")]
mod machine_clock;
use super::seal;

mod sync {
    pub(super) use std::sync::atomic::Ordering;
}

mod words {
    use std::cell::RefCell;

    /// The numbers of a header.
    pub(super) struct Words(RefCell<Vec<u64>>);

    impl Words {
        pub(super) fn new(count: usize) -> Self {
            Self(RefCell::new(vec![0; count]))
        }

        pub(super) fn load(&self, at: usize) -> u64 {
            self.0.borrow()[at]
        }

        pub(super) fn store(&self, at: usize, number: u64) {
            self.0.borrow_mut()[at] = number;
        }

        pub(super) fn read_published(&self, at: usize) -> u64 {
            self.load(at)
        }

        pub(super) fn publish(&self, at: usize, before: u64, number: u64) -> bool {
            let is_before = self.load(at) == before;
            if is_before {
                self.store(at, number);
            }
            is_before
        }
    }
}

mod system_clock {
    use std::cell::Cell;

    thread_local! {
        static STARTED: Cell<u64> = const { Cell::new(0) };
        static CALENDAR: Cell<i64> = const { Cell::new(0) };
        static LOOKS: Cell<u64> = const { Cell::new(0) };
    }

    pub(super) fn pass(micros: u64) {
        STARTED.set(STARTED.get() + micros);
    }

    /// Every look takes some time, and at some of them the thread stands still.
    fn look() {
        LOOKS.set(LOOKS.get() + 1);
        pass(if LOOKS.get().is_multiple_of(7) { 50_000 } else { 2 });
    }

    pub(super) fn since_start() -> u64 {
        look();
        STARTED.get()
    }

    pub(super) fn since_1970() -> u64 {
        look();
        calendar()
    }

    /// The time of the calendar, without a look.
    pub(super) fn calendar() -> u64 {
        (STARTED.get().cast_signed() + CALENDAR.get()).cast_unsigned()
    }

    pub(super) fn started() -> u64 {
        STARTED.get()
    }

    pub(super) fn set_calendar(to: u64) {
        CALENDAR.set(to.cast_signed() - STARTED.get().cast_signed());
    }

    pub(super) fn set_started(to: u64) {
        let calendar = calendar();
        STARTED.set(to);
        set_calendar(calendar);
    }
}

use machine_clock::{AHEAD, MachineClock, Moment, UNSEEN, first_base, next_base, was_restarted};
use seal::Salt;
use system_clock::{calendar, pass, set_calendar, set_started, started};
use tidegate_tests::random::Random;
use words::Words;

const SECOND: u64 = 1_000_000;
const HOUR: u64 = 3_600 * SECOND;
const START: u64 = 1_700_000_000 * SECOND;
/// The largest difference between two looks at clocks.
const LOOK: u64 = 20_000;

/// The next moment of a process, which damages nothing.
fn now(clock: &MachineClock, words: &Words) -> Moment {
    clock.now(words, || panic!("nothing is damaged"))
}

#[test]
fn time_goes_on_as_the_machine_does_whatever_its_clock_says() {
    let (mut steps, mut restarts) = (0, 0);
    for seed in 0..300 {
        let mut random = Random::new(seed);
        let words = Words::new(AHEAD + 1);
        set_started(HOUR);
        set_calendar(START);
        let mut base = first_base(&words);
        let mut clocks: Vec<MachineClock> = (0..3).map(|_| MachineClock::new(base)).collect();
        // The last moment that any process has seen, the time since the start then, and whether the calendar was set since.
        let mut last = (0, started());
        let mut was_set = false;
        for step in 0..400 {
            match random.below(20) {
                0 => {
                    let by = random.below(60 * HOUR);
                    set_calendar(if random.one_in(2) { calendar() + by } else { calendar() - by });
                    was_set = true;
                    steps += 1;
                }
                1 if random.one_in(4) => {
                    // The machine is off for a while. Its clock goes on, or shows something earlier.
                    let off = random.below(10 * HOUR);
                    let (is_right, real) = (random.one_in(2), started() - last.1 + off);
                    set_started(1 + random.below(100 * SECOND));
                    set_calendar(if is_right { calendar() + off } else { calendar() - off });
                    let (before, is_damaged) = (last.0, false);
                    let (new_base, found) = next_base(&words);
                    assert_eq!(found, is_damaged);
                    base = new_base;
                    clocks = (0..3).map(|_| MachineClock::new(base)).collect();
                    let moment = now(&clocks[0], &words);
                    assert!(moment.now >= before, "seed {seed}, step {step}: time went back");
                    if is_right && !was_set && before > 0 {
                        // More time is counted if the file had noted a later moment that no process had seen yet.
                        let gone = moment.now - before;
                        assert!(
                            gone <= real + 2 * SECOND && gone + 10 * LOOK >= real,
                            "seed {seed}, step {step}: {gone} of {real}"
                        );
                    }
                    last = (moment.now, started());
                    restarts += 1;
                }
                2..8 => pass(random.below(3 * SECOND)),
                8 => pass(random.below(HOUR)),
                9..12 => {
                    assert!(!was_restarted(&words, base), "seed {seed}, step {step}: a pause is no restart");
                    if random.one_in(3) {
                        let number = random.below(3) as usize;
                        clocks[number] = MachineClock::new(base);
                    }
                }
                _ => {
                    let number = random.below(3) as usize;
                    let before = started();
                    let moment = now(&clocks[number], &words);
                    assert!(moment.now >= last.0, "seed {seed}, step {step}: time went back");
                    if last.0 > 0 {
                        let (gone, real) = (moment.now - last.0, started() - last.1);
                        assert!(
                            gone <= real + 2 * LOOK * 10 && gone + 2 * LOOK * 10 >= before - last.1,
                            "{gone} of {real}"
                        );
                    }
                    pass(SECOND);
                    // The next look that is quick enough knows how far the calendar is ahead.
                    let moment = (0..3).map(|_| {
                        pass(SECOND);
                        now(&clocks[number], &words)
                    });
                    let moment = moment.last().expect("three");
                    let said = moment.now.saturating_add_signed(moment.ahead);
                    assert!(
                        said.abs_diff(calendar()) <= 6 * LOOK,
                        "seed {seed}, step {step}: {moment:?}, {}",
                        calendar()
                    );
                    last = (moment.now, started());
                    was_set = false;
                }
            }
        }
    }
    assert!(steps > 1_000 && restarts > 200, "{steps} steps, {restarts} restarts");
}

#[test]
fn what_a_restart_needs_is_written_again_where_it_was_damaged() {
    let words = Words::new(AHEAD + 1);
    set_started(HOUR);
    set_calendar(START);
    let mut clock = MachineClock::new(first_base(&words));
    for at in [UNSEEN, AHEAD] {
        now(&clock, &words);
        words.store(at, words.load(at) ^ 1 << 40);
        pass(2 * SECOND);
        let mut is_said = false;
        clock.now(&words, || is_said = true);
        assert!(is_said && Salt::at(at).open(words.load(at)).is_ok());
        // If a number is damaged when it is needed, that is reported, and the calendar decides.
        words.store(at, words.load(at) ^ 1 << 40);
        set_started(SECOND);
        set_calendar(calendar() + HOUR);
        let before = calendar();
        let (base, is_damaged) = next_base(&words);
        assert!(is_damaged && (base + started()).abs_diff(before) < 60 * SECOND);
        clock = MachineClock::new(base);
    }
}
