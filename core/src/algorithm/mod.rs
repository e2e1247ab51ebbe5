//! Every algorithm as pure integer rules over (state, now, cost): no clock, no I/O, no floating point.
//!
//! Each file has a `Rule` (a limit's numbers, made once) and a `State` (what is stored), and the same five
//! functions: `admits` and `view` look, `add` charges, `take` gives back, `ends` says when the state is as good as
//! none. The Lua file of the same name holds the same rules for Redis; the differential test holds the two together.
//!
//! Time for a state never runs backwards: every rule reads the later of `now` and the moment it last knew.

mod calendar_window;
mod concurrency;
mod fixed_window;
mod gcra;
mod leaky_bucket;
mod meter;
mod recall;
mod sliding_counter;
mod sliding_log;
mod sliding_window;
mod token_bucket;

pub(crate) use calendar_window::Grid;
pub(crate) use concurrency::{Hold, HoldId};
pub(crate) use meter::Meter;
pub(crate) use recall::Heard;

use crate::policy::{Algorithm, Limit};

/// Numbers stay at or below this, so that Lua and JavaScript agree with Rust.
pub(crate) const MAX: u64 = (1 << 53) - 1;

/// What one limit says after a call: everything a Decision tells about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct View {
    /// Units that would be admitted right now.
    pub(crate) remaining: u64,
    /// The first moment the cost asked for would be admitted; `None` is never.
    pub(crate) admits_at: Option<u64>,
    /// The moment from which the limit is as if unused.
    pub(crate) resets_at: u64,
    /// `leaky-bucket`: how long the caller waits for its turn.
    pub(crate) delay: u64,
}

/// What a meter says of a check that it admitted and charged.
#[derive(Debug)]
pub(crate) struct Added {
    /// The moment from which the state is as good as none.
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

/// Runs one expression for whichever algorithm rule and state belong to.
macro_rules! with {
    ($rule:expr, $state:expr, |$r:ident, $s:ident| $run:expr) => {
        match ($rule, $state) {
            (Rule::FixedWindow($r), State::FixedWindow($s)) => $run,
            (Rule::CalendarWindow($r), State::CalendarWindow($s)) => $run,
            (Rule::SlidingLog($r), State::SlidingLog($s)) => $run,
            (Rule::SlidingWindow($r), State::SlidingWindow($s)) => $run,
            (Rule::SlidingCounter($r), State::SlidingCounter($s)) => $run,
            (Rule::TokenBucket($r), State::TokenBucket($s)) => $run,
            (Rule::Gcra($r), State::Gcra($s)) => $run,
            (Rule::LeakyBucket($r), State::LeakyBucket($s)) => $run,
            (Rule::Concurrency($r), State::Concurrency($s)) => $run,
            _ => unreachable!("a state is only ever handed to the rule that made it"),
        }
    };
}

impl Rule {
    pub(crate) fn new(limit: &Limit) -> Self {
        match limit.algorithm() {
            Algorithm::FixedWindow => Self::FixedWindow(fixed_window::Rule::new(limit)),
            Algorithm::CalendarWindow => Self::CalendarWindow(calendar_window::Rule::new(limit)),
            Algorithm::SlidingLog => Self::SlidingLog(sliding_log::Rule::new(limit)),
            Algorithm::SlidingWindow => Self::SlidingWindow(sliding_window::Rule::new(limit)),
            Algorithm::SlidingCounter => Self::SlidingCounter(sliding_counter::Rule::new(limit)),
            Algorithm::TokenBucket => Self::TokenBucket(token_bucket::Rule::new(limit)),
            Algorithm::Gcra => Self::Gcra(gcra::Rule::new(limit)),
            Algorithm::LeakyBucket => Self::LeakyBucket(leaky_bucket::Rule::new(limit)),
            Algorithm::Concurrency => Self::Concurrency(concurrency::Rule::new(limit)),
        }
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
        with!(self, state, |rule, state| rule.admits(state, now, cost))
    }

    /// Charges `cost`, admitted or not.
    #[inline]
    pub(crate) fn add(&self, state: &mut State, now: u64, cost: u64, hold: HoldId) {
        match (self, state) {
            (Self::Concurrency(rule), State::Concurrency(state)) => rule.open(state, now, cost, hold),
            (rule, state) => with!(rule, state, |rule, state| rule.add(state, now, cost)),
        }
    }

    /// The bare meter, of a rule and a state that are nothing else: it can ask, charge and tell in one step.
    #[inline(always)]
    pub(crate) fn bare<'a>(&'a self, state: &'a mut State) -> Option<(&'a Meter, &'a mut meter::State)> {
        match (self, state) {
            (Self::Gcra(meter), State::Gcra(state)) => Some((meter, state)),
            (Self::TokenBucket(rule), State::TokenBucket(state)) if rule.missing() == 0 => Some((rule.meter(), state)),
            _ => None,
        }
    }

    /// Gives `cost` back, newest first, never above full.
    pub(crate) fn take(&self, state: &mut State, now: u64, cost: u64) {
        with!(self, state, |rule, state| rule.take(state, now, cost));
    }

    /// Makes a hold last another ttl; says whether it was there.
    pub(crate) fn renew(&self, state: &mut State, now: u64, hold: HoldId) -> bool {
        match (self, state) {
            (Self::Concurrency(rule), State::Concurrency(state)) => rule.renew(state, now, hold),
            _ => false,
        }
    }

    /// Gives a hold back; says whether it was there.
    pub(crate) fn close(&self, state: &mut State, now: u64, hold: HoldId) -> bool {
        match (self, state) {
            (Self::Concurrency(rule), State::Concurrency(state)) => rule.close(state, now, hold),
            _ => false,
        }
    }

    /// Stores the moment a key was first seen, for a rule to which that matters; says whether it did.
    #[inline]
    pub(crate) fn birth(&self, state: &mut State, now: u64) -> bool {
        match (self, state) {
            (Self::TokenBucket(rule), State::TokenBucket(state)) => rule.birth(state, now),
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

    /// Reads what the same bucket left when it had another count in the same period.
    pub(crate) fn refit(&self, state: &mut State, was: (u64, u64), now: u64) {
        if let (Some(meter), State::TokenBucket(state) | State::Gcra(state) | State::LeakyBucket(state)) =
            (self.meter(), state)
        {
            meter.refit(state, was, now);
        }
    }

    /// How long the limit is to be remembered once everything about its key is over.
    pub(crate) fn grace(&self) -> u64 {
        if let Self::TokenBucket(rule) = self { rule.grace() } else { 0 }
    }

    /// The moment from which the state is as good as none.
    #[inline]
    pub(crate) fn ends(&self, state: &State) -> u64 {
        with!(self, state, |rule, state| rule.ends(state))
    }

    /// What the limit says at `now` to someone who asks for `cost`, of which `charged` was just charged.
    #[inline]
    pub(crate) fn view(&self, state: &State, now: u64, cost: u64, charged: u64) -> View {
        match (self, state) {
            (Self::LeakyBucket(rule), State::LeakyBucket(state)) => rule.queued(state, now, cost, charged),
            (rule, state) => with!(rule, state, |rule, state| rule.view(state, now, cost)),
        }
    }

    /// The most units ever admitted at once.
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
