//! Every algorithm as pure integer rules over (state, now, cost): no clock, no I/O, no floating point.
//!
//! Each file has a `Rule` (a limit's numbers, made once) and a `State` (what is stored), and says of them what
//! [`LimitRule`] asks: `admits` and `view` read, `charge` and `refund` write, `ends` says from when on the state means the same
//! as no state. A file begins with its rule, its state, its cost and an example; below, n is the count, p the period, c the
//! cost of a check and t its time. The Lua file of the same name holds the same rule for Redis (`meter.lua` those of the buckets); the differential test compares
//! the two. The table below has a line for each algorithm.
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
mod sliding_counter;
mod sliding_log;
mod sliding_window;
#[cfg(feature = "redis")]
mod stored;
#[cfg(all(test, feature = "redis"))]
mod tests;
mod token_bucket;

pub(crate) use calendar_window::Grid;
pub(crate) use charge::{LimitCharge, Traces};
pub(crate) use concurrency::{HoldId, StoredHold};
pub(crate) use lease::{LEASED_PART, LeaseTerms};
pub(crate) use meter::Meter;
#[cfg(feature = "redis")]
use stored::StoredRule;
#[cfg(feature = "redis")]
pub(crate) use stored::{FULL_WIDTH, Field, MOMENT_WIDTH, Stored, number};

use crate::tables::allocation::allocated;

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

/// A limit of one algorithm. What has a default here is so for most algorithms; what would limit wrongly if it were forgotten has none.
pub(crate) trait LimitRule {
    /// What is stored of a key.
    type State;

    /// Whether its units are held, and given back when the work is done.
    const HOLDS: bool = false;

    /// Whether a check of `cost` is admitted at `now`.
    fn admits(&self, state: &Self::State, now: u64, cost: u64) -> bool;

    /// Charges `cost`, admitted or not.
    fn charge(&self, state: &mut Self::State, now: u64, cost: u64);

    /// Gives `cost` back, the oldest units first where it can tell; a limit never has more left than when it is unused.
    /// Returns the units that went back.
    fn refund(&self, state: &mut Self::State, now: u64, cost: u64) -> u64;

    /// Gives back what is still counted of a charge, and returns how many units that were.
    fn give_back(&self, state: &mut Self::State, now: u64, charge: &LimitCharge) -> u64;

    /// Whether a charge has to know that units went back after it, by a Decision or without.
    fn counts_refunds(by_decision: bool) -> bool;

    /// The moment from which on the state means the same as no state; 0 when it already does.
    fn ends(&self, state: &Self::State) -> u64;

    /// Whether a state means the same as no state under every rule of the algorithm.
    fn is_unused(state: &Self::State) -> bool;

    /// What the limit says at `now` of a check of `cost`.
    fn view(&self, state: &Self::State, now: u64, cost: u64) -> View;

    /// Units that count at `now`, also beyond the limit.
    fn used(&self, state: &Self::State, now: u64) -> u64;

    /// The most units that are ever admitted at once.
    fn capacity(&self) -> u64;

    /// When units of a lease that was charged at `charged_at` end together with a window, whatever their life; `view` is of that
    /// moment.
    fn lease_ends(&self, view: &View, charged_at: u64) -> Option<u64>;

    /// Charges `cost` as a hold of that name.
    #[inline]
    fn open(&self, state: &mut Self::State, now: u64, cost: u64, _hold: HoldId) {
        self.charge(state, now, cost);
    }

    /// Makes a hold last another ttl; false when there is no such hold.
    fn renew(&self, _state: &mut Self::State, _now: u64, _hold: HoldId) -> bool {
        false
    }

    /// Gives a hold back; false when there is no such hold.
    fn close(&self, _state: &mut Self::State, _now: u64, _hold: HoldId) -> bool {
        false
    }

    /// Starts what has to start and has not; returns whether it did.
    #[inline]
    fn start(&self, _state: &mut Self::State, _now: u64) -> bool {
        false
    }

    /// How long the state is kept after it ends.
    fn grace(&self) -> u64 {
        0
    }

    /// The moment from which on nothing of what was charged counts, also beside later charges; 0 when nothing was charged.
    fn charges_end(&self, state: &Self::State) -> u64 {
        self.ends(state)
    }

    /// Until when a charge from before a clear could be taken for a later one.
    fn clear_matters_until(&self, state: &Self::State, _now: u64) -> u64 {
        self.charges_end(state)
    }

    /// What the limit says of a check of `cost`, of which `charged` units were just charged.
    #[inline]
    fn view_after(&self, state: &Self::State, now: u64, cost: u64, _charged: u64) -> View {
        self.view(state, now, cost)
    }

    /// The first moment at which more units would be admitted than when `view` was made, of which so many are in use.
    fn more_at(&self, view: &View, _used: u64) -> Option<u64> {
        Some(view.more_at)
    }

    /// The units that count at `now` for leases of that life.
    fn used_of_leases(&self, state: &Self::State, now: u64, _life: u64) -> u64 {
        self.used(state, now)
    }

    /// Charges units that may be spent until `now + life`.
    fn charge_lease(&self, state: &mut Self::State, now: u64, LeaseTerms { units, .. }: LeaseTerms) {
        self.charge(state, now, units);
    }

    /// The meter of a bucket.
    fn meter(&self) -> Option<&Meter> {
        None
    }

    /// The meter, of a rule and a state that are nothing else: [`Meter::try_charge`] can serve them.
    #[inline(always)]
    fn as_meter<'a>(&'a self, _state: &'a mut Self::State) -> Option<(&'a Meter, &'a mut meter::State)> {
        None
    }

    /// The state of a meter.
    fn metered(_state: &mut Self::State) -> Option<&mut meter::State> {
        None
    }

    /// The bytes that the state has allocated.
    #[inline]
    fn heap_bytes(_state: &Self::State) -> usize {
        0
    }
}

/// Makes what is one of each algorithm: [`Rule`], [`State`], and the matches over them.
macro_rules! algorithms {
    ($d:tt $($name:ident: $rule:ty, $state:ty;)+) => {
        /// A limit ready to be applied.
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub(crate) enum Rule {
            $($name($rule)),+
        }

        /// The stored usage of one limit and key.
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub(crate) enum State {
            $($name($state)),+
        }

        impl Rule {
            /// The state of a key that was never seen.
            pub(crate) fn fresh(&self) -> State {
                match self {
                    $(Self::$name(_) => State::$name(Default::default()),)+
                }
            }

            /// The state of the numbers in its fields, in order, and of the bytes of its list. `None` of a log, whose entries stay on
            /// the server.
            #[cfg(feature = "redis")]
            pub(crate) fn read(&self, numbers: [u64; 4], list: &[u8]) -> Option<State> {
                match self {
                    $(Self::$name(_) => {
                        <$rule as StoredRule>::read(numbers, list).map(|state| State::$name(state.into()))
                    })+
                }
            }
        }

        /// The fields of each algorithm, in the order of their numbers.
        #[cfg(feature = "redis")]
        pub(crate) const FIELDS: &[&[Field]] = &[$(<$rule as StoredRule>::FIELDS),+];

        /// The algorithms as the script knows them, whose number is their place from 1 on.
        #[cfg(feature = "redis")]
        pub(crate) fn stored() -> Vec<Stored> {
            vec![$(Stored::of::<$rule>(stringify!($name))),+]
        }

        /// Evaluates one expression for a rule.
        macro_rules! of_rule {
            ($d rule:expr, |$d r:ident| $d body:expr) => {
                match $d rule {
                    $(Rule::$name($d r) => $d body,)+
                }
            };
        }

        /// Evaluates one function of the rule's type for a state.
        macro_rules! of_state {
            ($d state:expr, $d function:ident) => {
                match $d state {
                    $(State::$name(state) => <$rule as LimitRule>::$d function(state),)+
                }
            };
        }

        /// Evaluates one expression for a rule and its state.
        macro_rules! of_both {
            ($d rule:expr, $d state:expr, |$d r:ident, $d s:ident| $d body:expr) => {
                of_both!($d rule, $d state, |$d r, $d s| $d body, unreachable!("a state is given only to the rule that made it"))
            };
            ($d rule:expr, $d state:expr, |$d r:ident, $d s:ident| $d body:expr, $d other:expr) => {
                match ($d rule, $d state) {
                    $((Rule::$name($d r), State::$name($d s)) => $d body,)+
                    _ => $d other,
                }
            };
        }
    };
}

algorithms! { $
    FixedWindow: fixed_window::Rule, fixed_window::State;
    CalendarWindow: calendar_window::Rule, calendar_window::State;
    SlidingLog: sliding_log::Rule, Box<sliding_log::State>;
    SlidingWindow: sliding_window::Rule, Box<sliding_window::State>;
    SlidingCounter: sliding_counter::Rule, sliding_counter::State;
    TokenBucket: token_bucket::Rule, meter::State;
    Gcra: gcra::Rule, meter::State;
    LeakyBucket: leaky_bucket::Rule, meter::State;
    Concurrency: concurrency::Rule, Box<concurrency::State>;
}

impl State {
    /// The bytes that it has allocated.
    #[inline]
    pub(crate) fn heap_bytes(&self) -> usize {
        of_state!(self, heap_bytes)
    }

    /// Whether it means the same as no state under every rule of its algorithm.
    pub(crate) fn is_unused(&self) -> bool {
        of_state!(self, is_unused)
    }
}

/// The bytes of a box of a value.
const fn boxed<T>(_: &T) -> usize {
    allocated(size_of::<T>())
}

/// What [`LimitRule`] says of each.
impl Rule {
    #[inline]
    pub(crate) fn admits(&self, state: &State, now: u64, cost: u64) -> bool {
        of_both!(self, state, |rule, state| rule.admits(state, now, cost))
    }

    pub(crate) fn holds(&self) -> bool {
        const fn holds<R: LimitRule>(_: &R) -> bool {
            R::HOLDS
        }
        of_rule!(self, |rule| holds(rule))
    }

    /// Charges `cost`, admitted or not.
    #[inline]
    pub(crate) fn charge(&self, state: &mut State, now: u64, cost: u64, hold: HoldId) {
        of_both!(self, state, |rule, state| rule.open(state, now, cost, hold));
    }

    #[inline(always)]
    pub(crate) fn as_meter<'a>(&'a self, state: &'a mut State) -> Option<(&'a Meter, &'a mut meter::State)> {
        of_both!(self, state, |rule, state| rule.as_meter(state))
    }

    pub(crate) fn refund(&self, state: &mut State, now: u64, cost: u64) -> u64 {
        of_both!(self, state, |rule, state| rule.refund(state, now, cost))
    }

    pub(crate) fn give_back(&self, state: &mut State, now: u64, charge: &LimitCharge) -> u64 {
        of_both!(self, state, |rule, state| rule.give_back(state, now, charge))
    }

    pub(crate) fn counts_refunds(&self, by_decision: bool) -> bool {
        fn counts<R: LimitRule>(_: &R, by_decision: bool) -> bool {
            R::counts_refunds(by_decision)
        }
        of_rule!(self, |rule| counts(rule, by_decision))
    }

    pub(crate) fn renew(&self, state: &mut State, now: u64, hold: HoldId) -> bool {
        of_both!(self, state, |rule, state| rule.renew(state, now, hold))
    }

    pub(crate) fn close(&self, state: &mut State, now: u64, hold: HoldId) -> bool {
        of_both!(self, state, |rule, state| rule.close(state, now, hold))
    }

    #[inline]
    pub(crate) fn start(&self, state: &mut State, now: u64) -> bool {
        of_both!(self, state, |rule, state| rule.start(state, now))
    }

    pub(crate) fn meter(&self) -> Option<&Meter> {
        of_rule!(self, |rule| rule.meter())
    }

    /// Converts a state that a bucket of another count in the same period wrote: `was` is that count and the period.
    pub(crate) fn rescale(&self, state: &mut State, was: (u64, u64), now: u64) {
        if let (Some(meter), Some(state)) = (self.meter(), of_state!(state, metered)) {
            meter.rescale(state, was, now);
        }
    }

    pub(crate) fn grace(&self) -> u64 {
        of_rule!(self, |rule| rule.grace())
    }

    #[inline]
    pub(crate) fn ends(&self, state: &State) -> u64 {
        of_both!(self, state, |rule, state| rule.ends(state))
    }

    pub(crate) fn clear_matters_until(&self, state: &State, now: u64) -> u64 {
        of_both!(self, state, |rule, state| rule.clear_matters_until(state, now))
    }

    pub(crate) fn charges_end(&self, state: &State) -> u64 {
        of_both!(self, state, |rule, state| rule.charges_end(state))
    }

    /// What the limit says at `now` of a check of `cost`, of which `charged` units were just charged.
    #[inline]
    pub(crate) fn view(&self, state: &State, now: u64, cost: u64, charged: u64) -> View {
        of_both!(self, state, |rule, state| rule.view_after(state, now, cost, charged))
    }

    /// The first moment at which more units would be admitted than when `view` was made; `None` when nothing is in use, or
    /// when units come back at any moment because they are held. Of a bucket and a window it follows from the rest of the
    /// view, so that a check does not compute it; of a bucket it may be 1 µs late, because the view is rounded.
    pub(crate) fn more_at(&self, view: &View) -> Option<u64> {
        let used = self.capacity() - view.remaining().min(self.capacity());
        if used == 0 { None } else { of_rule!(self, |rule| rule.more_at(view, used)) }
    }

    pub(crate) fn used(&self, state: &State, now: u64) -> u64 {
        of_both!(self, state, |rule, state| rule.used(state, now))
    }

    #[inline]
    pub(crate) fn capacity(&self) -> u64 {
        of_rule!(self, |rule| rule.capacity())
    }

    pub(crate) fn lease_ends(&self, view: &View, charged_at: u64) -> Option<u64> {
        of_rule!(self, |rule| rule.lease_ends(view, charged_at))
    }

    /// The units that leases of that life could take at `now`, all of them.
    pub(crate) fn leasable(&self, state: &State, now: u64, life: u64) -> u64 {
        self.capacity().saturating_sub(of_both!(self, state, |rule, state| rule.used_of_leases(state, now, life)))
    }

    pub(crate) fn charge_lease(&self, state: &mut State, now: u64, terms: LeaseTerms) {
        of_both!(self, state, |rule, state| rule.charge_lease(state, now, terms));
    }
}

/// What [`StoredRule`] says of each.
#[cfg(feature = "redis")]
impl Rule {
    pub(crate) fn fields(&self) -> &'static [Field] {
        const fn fields<R: StoredRule>(_: &R) -> &'static [Field] {
            R::FIELDS
        }
        of_rule!(self, |rule| fields(rule))
    }

    pub(crate) fn numbers(&self) -> [u64; 5] {
        of_rule!(self, |rule| rule.numbers())
    }

    /// Whether this rule can count with a state that was read: it may be of another algorithm.
    pub(crate) fn can_have(&self, state: &State) -> bool {
        of_both!(self, state, |rule, state| rule.can_have(state), false)
    }
}
