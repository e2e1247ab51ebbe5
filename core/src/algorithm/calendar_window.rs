//! `calendar-window`: at most n units in each window of the UTC calendar.
//!
//! **Rule.** As `fixed-window`, but windows begin at edges of the calendar: at midnight, on Mondays, on the first
//! of a month. Windows are numbered. One of months or years has as many days as the calendar gives it. A check is
//! admitted when `used + c <= n` in the window that holds t. **State:** the window's number and `used`. **Cost:** O(1).
//!
//! **A custom calendar** ([`Calendar`]) has windows without numbers. In place of a number it stores the edge at which a window ends and
//! the moment of its last charge. Units stored under another calendar count until the later of two edges: the end of their window, and the
//! first edge of this calendar after their last charge. docs/adr/0034 has the reasons.
//!
//! **Example,** 2 per day: two checks on 31 December at 23:00 are admitted, a third is refused until midnight.

use std::sync::Arc;

use super::calendar::Calendar;
use super::kept_window::KeptWindow;
use super::period::{DAY, Period, TimeUnit};
#[cfg(feature = "stored")]
use super::stored::{Field, StoredRule, fits};
use super::{AlgorithmKind, Limit, LimitCharge, LimitRule, MAX_SAFE_INTEGER, Meaning, View, left};

/// Monday, 1 January 2024.
const YEAR_2024: u64 = 19_723 * DAY;
const EDGES: u64 = 61;
const EDGES_OF_DAYS: u64 = 366;
/// The UTC calendar begins on a Thursday. Weeks begin on the Monday four days later.
const FIRST_MONDAY: u64 = 4 * DAY;

/// Numbers instants by window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Grid {
    /// Windows of one length. One of them begins `shift` before 1970.
    Uniform { length: u64, shift: u64 },
    /// Windows of that many real months, counted from January 1970.
    Months(u64),
}

impl Grid {
    /// The windows that a period stands for.
    fn of(period: Period) -> Self {
        let length = period.micros();
        match period.unit() {
            TimeUnit::Year => Self::Months(12 * period.multiple()),
            TimeUnit::Month => Self::Months(period.multiple()),
            // Weeks begin on Mondays. The shift of whole windows keeps numbers from going below zero.
            TimeUnit::Week => Self::Uniform { length, shift: length - FIRST_MONDAY },
            _ => Self::Uniform { length, shift: 0 },
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Rule {
    pub(crate) count: u64,
    /// The windows of the UTC calendar.
    pub(crate) grid: Grid,
    /// The calendar that it uses in place of the UTC calendar.
    pub(crate) calendar: Option<Arc<Calendar>>,
    /// How far the calendar is ahead of the clock of the store, in microseconds. Only a file store has a value other than 0. Stored
    /// moments are of the calendar, and callers pass and get those of the store.
    pub(crate) ahead: i64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct State {
    /// The window's number, or a [`KeptWindow`].
    pub(crate) index: u64,
    /// Units charged in it.
    pub(crate) used: u64,
}

impl Rule {
    /// Converts a moment of the store to one of the calendar.
    #[inline]
    const fn calendar_at(&self, moment: u64) -> u64 {
        moment.saturating_add_signed(self.ahead)
    }

    /// Converts a moment of the calendar to one of the store.
    #[inline]
    const fn store_at(&self, moment: u64) -> u64 {
        moment.saturating_add_signed(self.ahead.saturating_neg())
    }

    /// True if the state is a [`KeptWindow`].
    #[inline]
    fn is_kept(&self, state: &State) -> bool {
        // Shorter windows have larger numbers.
        KeptWindow::is_in(state.index) && !matches!(self.grid, Grid::Uniform { length: ..DAY, .. })
    }

    /// True if a state needs more than the numbers of windows.
    #[inline]
    fn has_edges(&self, state: &State) -> bool {
        self.calendar.is_some() || self.is_kept(state)
    }

    /// The state at `now`. Its window is never earlier than the stored one.
    #[inline]
    fn state_at(&self, state: &State, now: u64) -> State {
        if self.has_edges(state) {
            return self.kept_at(state, now);
        }
        let index = index_of(self.grid, now);
        if state.used > 0 && index <= state.index { *state } else { State { index, used: 0 } }
    }

    /// The edges before and after a moment.
    fn edges(&self, now: u64) -> (u64, u64) {
        match &self.calendar {
            Some(calendar) => {
                let [_, begins, closes, _] = calendar.around(now);
                (begins, closes)
            }
            None => {
                let index = index_of(self.grid, now);
                (start_of(self.grid, index), start_of(self.grid, index + 1))
            }
        }
    }

    /// The first edge after a moment.
    fn next_edge(&self, moment: u64) -> u64 {
        match &self.calendar {
            Some(calendar) => calendar.next(moment),
            None => start_of(self.grid, index_of(self.grid, moment) + 1),
        }
    }

    /// The window of a charged state. A window with a number does not have its last charge, only that this is not after `now`.
    fn window(&self, state: &State, now: u64) -> KeptWindow {
        if self.is_kept(state) {
            return KeptWindow::of_number(state.index);
        }
        let closes = start_of(self.grid, state.index + 1);
        KeptWindow { closes, last: now.min(closes - 1) }
    }

    /// [`Self::state_at`] as a kept window, if there is one.
    fn kept_at(&self, state: &State, now: u64) -> State {
        if state.used == 0 {
            return State::default();
        }
        let window = self.window(state, now);
        if now < window.closes || window.last >= self.edges(now).0 {
            return State { index: window.number(), used: state.used };
        }
        State::default()
    }

    /// When a charged state that is a kept window ends.
    fn kept_ends(&self, window: KeptWindow) -> u64 {
        window.closes.max(self.next_edge(window.last))
    }

    /// When the window of a state from [`Self::state_at`] closes. If it is not charged, that is now.
    #[inline]
    fn closes(&self, state: &State, now: u64) -> u64 {
        match state.used {
            0 => now,
            _ if self.has_edges(state) => self.kept_ends(KeptWindow::of_number(state.index)),
            _ => start_of(self.grid, state.index + 1),
        }
    }

    /// Charges a state that has edges. The later edge wins.
    fn charge_kept(&self, state: &mut State, now: u64, cost: u64) {
        let State { index, used } = self.kept_at(state, now);
        let next = self.edges(now).1;
        let window = match used {
            0 => KeptWindow { closes: next, last: now },
            _ => {
                let KeptWindow { closes, last } = KeptWindow::of_number(index);
                KeptWindow { closes: closes.max(next), last: last.max(now) }
            }
        };
        // The UTC calendar has a number for this window.
        let is_numbered = self.calendar.is_none() && window.closes == next;
        let index = if is_numbered { index_of(self.grid, now) } else { window.number() };
        *state = State { index, used: (used + cost).min(MAX_SAFE_INTEGER) };
    }
}

impl LimitRule for Rule {
    type State = State;

    const COUNTS_REFUNDS: (bool, bool) = (false, false);

    fn used(&self, state: &State, now: u64) -> u64 {
        self.state_at(state, self.calendar_at(now)).used
    }

    #[inline]
    fn admits(&self, state: &State, now: u64, cost: u64) -> bool {
        self.state_at(state, self.calendar_at(now)).used + cost <= self.count
    }

    #[inline]
    fn charge(&self, state: &mut State, now: u64, cost: u64) {
        let now = self.calendar_at(now);
        if self.has_edges(state) {
            return self.charge_kept(state, now, cost);
        }
        let State { index, used } = self.state_at(state, now);
        *state = State { index, used: (used + cost).min(MAX_SAFE_INTEGER) };
    }

    /// Notes that the last charge of a window of the UTC calendar came no later than this first look at it.
    fn adopt(&self, state: &mut State, now: u64) -> bool {
        if self.calendar.is_none() || self.is_kept(state) || state.used == 0 {
            return false;
        }
        let kept = self.kept_at(state, self.calendar_at(now));
        if kept.used > 0 {
            *state = kept;
        }
        kept.used > 0
    }

    fn refund(&self, state: &mut State, now: u64, cost: u64) -> u64 {
        let State { index, used } = self.state_at(state, self.calendar_at(now));
        *state = match used.saturating_sub(cost) {
            0 => State::default(),
            used => State { index, used },
        };
        used.min(cost)
    }

    /// Gives units of a charge back while the window of that charge lasts. For a kept window it is certain only that it holds
    /// charges which are not older than the window of `now`.
    fn give_back(&self, state: &mut State, now: u64, charge: &LimitCharge) -> u64 {
        let charged_at = self.calendar_at(charge.at);
        let is_counted = if self.has_edges(state) {
            let now = self.calendar_at(now);
            let (kept, (begins, closes)) = (self.kept_at(state, now), self.edges(now));
            kept.used > 0 && KeptWindow::of_number(kept.index).last < closes && charged_at >= begins
        } else {
            state.index == index_of(self.grid, charged_at)
        };
        if is_counted { self.refund(state, now, charge.units) } else { 0 }
    }

    #[inline]
    fn ends(&self, state: &State) -> u64 {
        let ends = match state.used {
            0 => return 0,
            _ if self.has_edges(state) => self.kept_ends(self.window(state, u64::MAX)),
            _ => start_of(self.grid, state.index + 1),
        };
        // The clock of the calendar may be set back. Then units that would count again have not ended.
        ends.max(self.store_at(ends))
    }

    fn view(&self, state: &State, now: u64, cost: u64) -> View {
        let state = self.state_at(state, self.calendar_at(now));
        let closes = self.store_at(self.closes(&state, self.calendar_at(now)));
        View {
            left: left(self.count, state.used),
            admits_at: (cost <= self.count).then_some(if state.used + cost <= self.count { now } else { closes }),
            resets_at: closes,
            ..View::default()
        }
    }

    #[inline]
    fn capacity(&self) -> u64 {
        self.count
    }

    fn is_unused(state: &State) -> bool {
        state.used == 0
    }

    fn lease_ends(&self, _view: &View, charged_at: u64) -> Option<u64> {
        Some(self.store_at(self.next_edge(self.calendar_at(charged_at))))
    }

    fn more_at(&self, view: &View, _used: u64) -> Option<u64> {
        Some(view.resets_at)
    }
}

impl Meaning for Rule {
    const KIND: AlgorithmKind = AlgorithmKind::Windows;
    const WORDS: &'static str =
        "At most {count} in each {any} of the calendar ({calendar}); around the edge of two windows up to twice that.";

    fn of(limit: &Limit) -> Self {
        Self { count: limit.count(), grid: Grid::of(limit.period()), calendar: limit.calendar().cloned(), ahead: 0 }
    }

    fn lengths(limit: &Limit) -> (u64, u64) {
        let period = limit.period();
        if limit.calendar().is_some() {
            let edges = edges(limit);
            let lengths = || edges.windows(2).map(|pair| pair[1] - pair[0]);
            return (lengths().min().unwrap_or(period.micros()), lengths().max().unwrap_or(period.micros()));
        }
        let days = |days: u64| period.multiple() * days * DAY;
        match period.unit() {
            TimeUnit::Month => (days(28), days(31)),
            TimeUnit::Year => (days(365), days(366)),
            _ => (period.micros(), period.micros()),
        }
    }

    fn most_in(limit: &Limit, window: u64) -> u64 {
        if limit.period().unit() < TimeUnit::Month && limit.calendar().is_none() {
            return limit.count().saturating_mul((window - 2) / limit.period().micros() + 2);
        }
        let edges = edges(limit);
        let touched = |(first, edge): (usize, &u64)| {
            edges[first..].iter().take_while(|last| *last - edge + 2 <= window).count() as u64 + 1
        };
        limit.count().saturating_mul(edges.iter().enumerate().map(touched).max().unwrap_or(1))
    }

    /// Warns about windows that do not divide the next longer unit of the calendar. They begin at unexpected moments.
    fn lint(limit: &Limit, warn: &mut dyn FnMut(String)) {
        let period = limit.period();
        let multiple = period.multiple();
        let (fits, advice) = match period.unit() {
            TimeUnit::Year => (multiple == 1, "1 year"),
            TimeUnit::Month => (12_u64.is_multiple_of(multiple), "1, 2, 3, 4, 6 or 12 months"),
            TimeUnit::Week => (multiple == 1, "1 week"),
            TimeUnit::Day => (multiple == 1, "1 day, `week` for weeks from Monday, or `month` for real months"),
            TimeUnit::Hour | TimeUnit::Minute | TimeUnit::Second | TimeUnit::Millisecond => (
                DAY.is_multiple_of(period.micros()),
                "a period that divides a day, such as 1, 2, 3, 4, 6, 8 or 12 hours",
            ),
        };
        if !fits {
            warn(format!(
                "a calendar-window of {period} does not line up with the calendar: its windows begin on odd dates; use {advice}"
            ));
        }
        if let Some(day) = limit.calendar().and_then(|calendar| calendar.day_that_months_lack()) {
            warn(format!("some months have no day {day}: there the window begins on the last day of the month"));
        }
    }
}

/// The moments at which windows of the calendar begin, in microseconds since 1970. They start in 2024 and are enough to include
/// leap years and days of every length.
pub fn edges(limit: &Limit) -> Vec<u64> {
    if let Some(calendar) = limit.calendar() {
        let count = if limit.period().unit() == TimeUnit::Day { EDGES_OF_DAYS } else { EDGES };
        let edges = std::iter::successors(Some(calendar.next(YEAR_2024 - 1)), |edge| Some(calendar.next(*edge)));
        return edges.take(count as usize + 1).collect();
    }
    let grid = Grid::of(limit.period());
    let first = index_of(grid, YEAR_2024);
    (0..=EDGES).map(|number| start_of(grid, first + number)).collect()
}

#[cfg(feature = "stored")]
impl StoredRule for Rule {
    const FIELDS: &'static [Field] = &[Field::Moment, Field::Count];

    fn can_have(&self, state: &State) -> bool {
        (state.index <= index_of(self.grid, MAX_SAFE_INTEGER) || self.is_kept(state) && fits(state.index))
            && fits(state.used)
    }

    /// For a custom calendar the script gets edges with each call.
    fn numbers(&self) -> [u64; 5] {
        match self.grid {
            _ if self.calendar.is_some() => [self.count, 0, 0, 0, 0],
            Grid::Uniform { length, shift } => [self.count, length, 0, shift, 0],
            Grid::Months(months) => [self.count, 0, months, 0, 0],
        }
    }

    fn write(state: &State, _list: &mut Vec<u8>) -> [u64; 4] {
        [state.index, state.used, 0, 0]
    }

    fn read([index, used, ..]: [u64; 4], _list: &[u8]) -> Option<State> {
        Some(State { index, used })
    }
}

pub(crate) fn index_of(grid: Grid, now: u64) -> u64 {
    match grid {
        Grid::Uniform { length, shift } => (now + shift) / length,
        Grid::Months(months) => month_of(now / DAY) / months,
    }
}

pub(crate) fn start_of(grid: Grid, index: u64) -> u64 {
    match grid {
        Grid::Uniform { length, shift } => (index * length).saturating_sub(shift),
        Grid::Months(months) => day_of(index * months) * DAY,
    }
}

/// Months since January 1970 of a day since 1 January 1970, in the proleptic Gregorian calendar.
///
/// Years are counted from March, so that the leap day is the last of its year.
fn month_of(day: u64) -> u64 {
    let day = day + 719_468;
    let era = day / 146_097;
    let day_of_era = day % 146_097;
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    (era * 400 + year_of_era) * 12 + month_from_march + 2 - 1970 * 12
}

/// The day since 1 January 1970 on which a month since January 1970 begins.
fn day_of(month: u64) -> u64 {
    let from_march = month + 1970 * 12 - 2;
    let (year, month) = (from_march / 12, from_march % 12);
    let era = year / 400;
    let year_of_era = year % 400;
    let day_of_era = 365 * year_of_era + year_of_era / 4 - year_of_era / 100 + (153 * month + 2) / 5;
    era * 146_097 + day_of_era - 719_468
}

#[cfg(test)]
mod tests {
    use super::{DAY, Grid, LimitRule, Rule, State, day_of, month_of};

    #[test]
    fn the_example_of_this_file() {
        let (rule, mut state) = (
            Rule { count: 2, grid: Grid::Uniform { length: DAY, shift: 0 }, calendar: None, ahead: 0 },
            State::default(),
        );
        // 1 January 2026 is day 20,454.
        let midnight = 20_454 * DAY;
        let before = midnight - DAY / 24;
        rule.charge(&mut state, before, 1);
        rule.charge(&mut state, before, 1);
        assert_eq!(rule.view(&state, before, 1).admits_at, Some(midnight));
        assert!(rule.admits(&state, midnight, 2));
    }

    #[test]
    fn months_begin_on_their_first_day() {
        // 1 March 2000 is day 11,017, and 1 January 2026 is day 20,454.
        assert_eq!((day_of(362), day_of(672)), (11_017, 20_454));
        for month in 0..12 * 300 {
            let first = day_of(month);
            assert_eq!(month_of(first), month, "the first day of month {month}");
            if first > 0 {
                assert_eq!(month_of(first - 1), month - 1, "the day before month {month}");
            }
        }
    }
}
