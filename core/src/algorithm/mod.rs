//! Every algorithm as pure integer rules over (state, now, cost): no clock, no I/O, no floating point.
//!
//! Each file has a `Rule` (a limit's numbers, made once) and a `State` (what is stored), and the same functions: `admits`
//! and `view` read, `charge` and `refund` write, `ends` says from when on the state means the same as no state. A file
//! begins with its rule, its state, its cost and an example; below, n is the count, p the period, c the cost of a check
//! and t its time. The Lua file of the same name holds the same rule for Redis; the differential test compares the two.
//!
//! All moments and lengths are whole microseconds. Time for a state never runs backwards: every rule reads the later of
//! `now` and the moment that it stored last.

mod calendar_window;
mod charge;
mod compaction;
mod concurrency;
mod fixed_window;
mod gcra;
mod leaky_bucket;
mod lease;
mod meter;
mod more_units;
mod sliding_counter;
mod sliding_log;
mod sliding_window;
mod token_bucket;
#[cfg(feature = "redis")]
mod validity;

pub(crate) use calendar_window::Grid;
pub(crate) use charge::{LimitCharge, Traces};
pub(crate) use concurrency::{HoldId, StoredHold};
pub(crate) use lease::{LEASED_PART, LeaseTerms};
pub(crate) use meter::Meter;

use crate::allocation::allocated;

/// The largest integer that Rust, Lua and JavaScript all hold exactly; every number stays at or below it.
pub(crate) const MAX_SAFE_INTEGER: u64 = (1 << 53) - 1;

/// What a Decision reports of one limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct View {
    /// Units that would be admitted now. Below 0: units that are used beyond the limit.
    pub(crate) left: i64,
    /// The first moment at which the same cost would be admitted; `None` is never.
    pub(crate) admits_at: Option<u64>,
    /// The moment from which the limit is as if unused.
    pub(crate) resets_at: u64,
    /// `leaky-bucket`: how long the caller has to wait before it goes on.
    pub(crate) delay: u64,
    /// The first moment at which more units would be admitted than now, of the algorithms that do not leave this to
    /// [`Rule::more_at`].
    pub(crate) more_at: u64,
}

impl View {
    /// Units that would be admitted now.
    #[inline]
    pub(crate) fn remaining(&self) -> u64 {
        u64::try_from(self.left).unwrap_or(0)
    }

    /// Units that are used beyond the limit.
    #[inline]
    pub(crate) fn over(&self) -> u64 {
        if self.left < 0 { self.left.unsigned_abs() } else { 0 }
    }
}

/// See [`View::left`]. Both numbers are at most 2^53.
#[inline(always)]
pub(crate) const fn left(limit: u64, used: u64) -> i64 {
    limit as i64 - used as i64
}

/// A check that a meter admitted and charged.
#[derive(Debug)]
pub(crate) struct Admitted {
    /// See [`Rule::ends`].
    pub(crate) ends: u64,
    pub(crate) view: View,
}

/// A limit ready to be applied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Rule {
    FixedWindow(fixed_window::Rule),
    CalendarWindow(calendar_window::Rule),
    SlidingLog(sliding_log::Rule),
    SlidingWindow(sliding_window::Rule),
    SlidingCounter(sliding_counter::Rule),
    TokenBucket(token_bucket::Rule),
    Gcra(gcra::Rule),
    LeakyBucket(leaky_bucket::Rule),
    Concurrency(concurrency::Rule),
}

/// The stored usage of one limit and key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum State {
    FixedWindow(fixed_window::State),
    CalendarWindow(calendar_window::State),
    SlidingLog(Box<sliding_log::State>),
    SlidingWindow(Box<sliding_window::State>),
    SlidingCounter(sliding_counter::State),
    TokenBucket(meter::State),
    Gcra(meter::State),
    LeakyBucket(meter::State),
    Concurrency(Box<concurrency::State>),
}

impl State {
    /// The bytes that it has allocated.
    #[inline]
    pub(crate) fn heap_bytes(&self) -> usize {
        match self {
            Self::SlidingLog(state) => boxed(&**state) + allocated(state.entries.capacity() * size_of::<(u64, u64)>()),
            Self::SlidingWindow(state) => boxed(&**state) + allocated(state.older.capacity() * size_of::<(u64, u64)>()),
            Self::Concurrency(state) => boxed(&**state) + allocated(state.holds.capacity() * size_of::<StoredHold>()),
            _ => 0,
        }
    }

    /// Whether it means the same as no state under every rule of its algorithm.
    pub(crate) fn is_unused(&self) -> bool {
        match self {
            Self::FixedWindow(state) => state.used == 0,
            Self::CalendarWindow(state) => state.used == 0,
            Self::SlidingLog(state) => state.entries.is_empty(),
            Self::SlidingWindow(state) => state.total == 0,
            Self::SlidingCounter(state) => state.previous == 0 && state.current == 0,
            // A bucket that does not start full has started.
            Self::TokenBucket(state) => state.since == 0,
            Self::Gcra(state) | Self::LeakyBucket(state) => state.units == 0,
            Self::Concurrency(state) => state.total == 0,
        }
    }
}

/// The bytes of a box of a value.
const fn boxed<T>(_: &T) -> usize {
    allocated(size_of::<T>())
}

/// Evaluates one expression for the algorithm of a rule and its state.
macro_rules! dispatch {
    ($rule:expr, $state:expr, |$r:ident, $s:ident| $body:expr) => {
        match ($rule, $state) {
            (Rule::FixedWindow($r), State::FixedWindow($s)) => $body,
            (Rule::CalendarWindow($r), State::CalendarWindow($s)) => $body,
            (Rule::SlidingLog($r), State::SlidingLog($s)) => $body,
            (Rule::SlidingWindow($r), State::SlidingWindow($s)) => $body,
            (Rule::SlidingCounter($r), State::SlidingCounter($s)) => $body,
            (Rule::TokenBucket($r), State::TokenBucket($s)) => $body,
            (Rule::Gcra($r), State::Gcra($s)) => $body,
            (Rule::LeakyBucket($r), State::LeakyBucket($s)) => $body,
            (Rule::Concurrency($r), State::Concurrency($s)) => $body,
            _ => unreachable!("a state is given only to the rule that made it"),
        }
    };
}

impl Rule {
    /// A window of `period` that the first admitted check opens.
    pub(crate) const fn fixed_window(count: u64, period: u64) -> Self {
        Self::FixedWindow(fixed_window::Rule { count, period })
    }

    /// Windows of the UTC calendar.
    pub(crate) const fn calendar_window(count: u64, grid: Grid) -> Self {
        Self::CalendarWindow(calendar_window::Rule { count, grid })
    }

    /// The exact sum over the last `period`.
    pub(crate) const fn sliding_log(count: u64, period: u64) -> Self {
        Self::SlidingLog(sliding_log::Rule { count, period })
    }

    /// The sum over the last `period` in granules of `period / precision`.
    pub(crate) fn sliding_window(count: u64, period: u64, precision: u32) -> Self {
        Self::SlidingWindow(sliding_window::Rule { count, period, granule: period / u64::from(precision) })
    }

    /// The estimate from two windows of `period`.
    pub(crate) const fn sliding_counter(count: u64, period: u64) -> Self {
        Self::SlidingCounter(sliding_counter::Rule { count, period })
    }

    /// `burst` tokens that refill at `count` per `period`, `initial` of them at the start, or all.
    pub(crate) fn token_bucket(count: u64, period: u64, burst: u64, initial: Option<u64>) -> Self {
        Self::TokenBucket(token_bucket::Rule::new(count, period, burst, initial))
    }

    /// The generic cell rate algorithm at `count` per `period`.
    pub(crate) fn gcra(count: u64, period: u64, burst: u64) -> Self {
        Self::Gcra(gcra::Rule::new(count, period, burst))
    }

    /// A queue of `burst` places that drains at `count` per `period`.
    pub(crate) fn leaky_bucket(count: u64, period: u64, burst: u64) -> Self {
        Self::LeakyBucket(leaky_bucket::Rule::new(count, period, burst))
    }

    /// `count` units in progress, in holds that expire after `ttl`.
    pub(crate) const fn concurrency(count: u64, ttl: u64) -> Self {
        Self::Concurrency(concurrency::Rule { count, ttl })
    }

    /// The state of a key that was never seen.
    pub(crate) fn fresh(&self) -> State {
        match self {
            Self::FixedWindow(_) => State::FixedWindow(Default::default()),
            Self::CalendarWindow(_) => State::CalendarWindow(Default::default()),
            Self::SlidingLog(_) => State::SlidingLog(Default::default()),
            Self::SlidingWindow(_) => State::SlidingWindow(Default::default()),
            Self::SlidingCounter(_) => State::SlidingCounter(Default::default()),
            Self::TokenBucket(_) => State::TokenBucket(Default::default()),
            Self::Gcra(_) => State::Gcra(Default::default()),
            Self::LeakyBucket(_) => State::LeakyBucket(Default::default()),
            Self::Concurrency(_) => State::Concurrency(Default::default()),
        }
    }

    /// Whether a check of `cost` is admitted at `now`.
    #[inline]
    pub(crate) fn admits(&self, state: &State, now: u64, cost: u64) -> bool {
        dispatch!(self, state, |rule, state| rule.admits(state, now, cost))
    }

    /// Whether its units are held, and given back when the work is done.
    pub(crate) const fn holds(&self) -> bool {
        matches!(self, Self::Concurrency(_))
    }

    /// Charges `cost`, admitted or not.
    #[inline]
    pub(crate) fn charge(&self, state: &mut State, now: u64, cost: u64, hold: HoldId) {
        match (self, state) {
            (Self::Concurrency(rule), State::Concurrency(state)) => rule.open(state, now, cost, hold),
            (rule, state) => dispatch!(rule, state, |rule, state| rule.charge(state, now, cost)),
        }
    }

    /// The meter, of a rule and a state that are nothing else: [`Meter::try_charge`] can serve them.
    #[inline(always)]
    pub(crate) fn as_meter<'a>(&'a self, state: &'a mut State) -> Option<(&'a Meter, &'a mut meter::State)> {
        match (self, state) {
            (Self::Gcra(meter), State::Gcra(state)) => Some((meter, state)),
            (Self::TokenBucket(rule), State::TokenBucket(state)) if rule.missing() == 0 => Some((rule.meter(), state)),
            _ => None,
        }
    }

    /// Gives `cost` back, the oldest units first where it can tell; a limit never has more left than when it is unused.
    /// Returns the units that went back.
    pub(crate) fn refund(&self, state: &mut State, now: u64, cost: u64) -> u64 {
        dispatch!(self, state, |rule, state| rule.refund(state, now, cost))
    }

    /// Makes a hold last another ttl; false when there is no such hold.
    pub(crate) fn renew(&self, state: &mut State, now: u64, hold: HoldId) -> bool {
        match (self, state) {
            (Self::Concurrency(rule), State::Concurrency(state)) => rule.renew(state, now, hold),
            _ => false,
        }
    }

    /// Gives a hold back; false when there is no such hold.
    pub(crate) fn close(&self, state: &mut State, now: u64, hold: HoldId) -> bool {
        match (self, state) {
            (Self::Concurrency(rule), State::Concurrency(state)) => rule.close(state, now, hold),
            _ => false,
        }
    }

    /// Starts a token bucket that does not start full and has not started; returns whether it did.
    #[inline]
    pub(crate) fn start(&self, state: &mut State, now: u64) -> bool {
        match (self, state) {
            (Self::TokenBucket(rule), State::TokenBucket(state)) => rule.start(state, now),
            _ => false,
        }
    }

    /// The meter of a bucket.
    pub(crate) fn meter(&self) -> Option<&Meter> {
        match self {
            Self::TokenBucket(rule) => Some(rule.meter()),
            Self::Gcra(meter) => Some(meter),
            Self::LeakyBucket(rule) => Some(rule),
            _ => None,
        }
    }

    /// Converts a state that a bucket of another count in the same period wrote: `was` is that count and the period.
    pub(crate) fn rescale(&self, state: &mut State, was: (u64, u64), now: u64) {
        if let (Some(meter), State::TokenBucket(state) | State::Gcra(state) | State::LeakyBucket(state)) =
            (self.meter(), state)
        {
            meter.rescale(state, was, now);
        }
    }

    /// How long the state is kept after [`Rule::ends`]; only for a bucket that does not start full.
    pub(crate) fn grace(&self) -> u64 {
        if let Self::TokenBucket(rule) = self { rule.grace() } else { 0 }
    }

    /// The moment from which on the state means the same as no state; 0 when it already does.
    #[inline]
    pub(crate) fn ends(&self, state: &State) -> u64 {
        dispatch!(self, state, |rule, state| rule.ends(state))
    }

    /// Until when a charge from before a clear could be taken for a later one. A window that opens now begins at the moment of a
    /// charge that was made now.
    pub(crate) fn clear_matters_until(&self, state: &State, now: u64) -> u64 {
        match (self, state) {
            (Self::FixedWindow(rule), State::FixedWindow(state)) if rule.ends(state) > now => now + rule.period,
            _ => self.charges_end(state),
        }
    }

    /// The moment from which on nothing of what was charged counts, also beside later charges; 0 when nothing was charged.
    pub(crate) fn charges_end(&self, state: &State) -> u64 {
        match (self, state) {
            (Self::SlidingCounter(rule), State::SlidingCounter(state)) => rule.charges_end(state),
            _ => self.ends(state),
        }
    }

    /// What the limit says at `now` of a check of `cost`, of which `charged` units were just charged.
    #[inline]
    pub(crate) fn view(&self, state: &State, now: u64, cost: u64, charged: u64) -> View {
        match (self, state) {
            (Self::LeakyBucket(rule), State::LeakyBucket(state)) => rule.view_with_delay(state, now, cost, charged),
            (rule, state) => dispatch!(rule, state, |rule, state| rule.view(state, now, cost)),
        }
    }

    /// Units that count at `now`, also beyond the limit.
    pub(crate) fn used(&self, state: &State, now: u64) -> u64 {
        dispatch!(self, state, |rule, state| rule.used(state, now))
    }

    /// The most units that are ever admitted at once.
    #[inline]
    pub(crate) fn capacity(&self) -> u64 {
        match self {
            Self::FixedWindow(rule) => rule.count,
            Self::CalendarWindow(rule) => rule.count,
            Self::SlidingLog(rule) => rule.count,
            Self::SlidingWindow(rule) => rule.count,
            Self::SlidingCounter(rule) => rule.count,
            Self::TokenBucket(rule) => rule.capacity,
            Self::Gcra(rule) => rule.capacity,
            Self::LeakyBucket(rule) => rule.capacity,
            Self::Concurrency(rule) => rule.count,
        }
    }
}
