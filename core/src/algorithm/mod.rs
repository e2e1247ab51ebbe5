//! Every algorithm as pure integer rules over (state, now, cost): no clock, no I/O, no floating point.
//!
//! Each file has a `Rule` (a limit's numbers, made once) and a `State` (the stored form), and implements [`LimitRule`] for
//! them: `admits` and `view` read, `charge` and `refund` write, `ends` returns when the state begins to mean the same as no
//! state. A file begins with its rule, its state, its cost and an example. In these n is the count, p the period, c the cost of
//! a check and t its time. The Lua file of the same name holds the same rule for Redis (`meter.lua` those of the buckets), and
//! the differential test compares the two. [`Meaning`] derives facts about a limit from its numbers alone. The table below has
//! a line for each algorithm.
//!
//! All moments and lengths are whole microseconds. Time for a state never runs backwards, because every rule reads
//! the later of `now` and the moment that it stored last.

mod calendar;
mod calendar_window;
mod charge;
mod compaction;
mod concurrency;
mod fixed_window;
mod gcra;
mod kept_window;
mod leaky_bucket;
mod learned;
mod lease;
mod limit;
mod meaning;
mod meter;
mod period;
mod sliding_counter;
mod sliding_log;
mod sliding_window;
#[cfg(feature = "stored")]
mod stored;
#[cfg(all(test, feature = "stored"))]
mod tests;
mod token_bucket;
mod unit;

pub use calendar::Anchor;
pub(crate) use calendar::{AnchorDay, Calendar, WEEKDAYS, zone_names};
pub use calendar_window::edges as calendar_edges;
pub(crate) use charge::{LimitCharge, Traces};
pub(crate) use concurrency::{HoldId, StoredHold};
pub(crate) use learned::{AskedOf, LearnedAnswer, LearnedLimits, MAX_LEARNED_WINDOWS, Said, SaidLimit};
pub(crate) use lease::{LEASED_PART, LeaseTerms};
pub use limit::{AlgorithmKind, DEFAULT_PRECISION, DEFAULT_TTL, Limit, MAX_COUNT, MAX_PRECISION};
use meaning::Meaning;
pub(crate) use meter::Meter;
pub use period::{Period, TimeUnit};
pub(crate) use period::{SECOND, SPELLINGS};
#[cfg(feature = "bench")]
pub(crate) use stored::Stored;
#[cfg(feature = "stored")]
use stored::StoredRule;
#[cfg(feature = "stored")]
pub(crate) use stored::{FULL_WIDTH, Field, MOMENT_WIDTH, number, put};
pub use unit::Unit;
pub(crate) use unit::is_word;

use crate::tables::allocation::allocated;

/// The largest integer that Rust, Lua and JavaScript all hold exactly. Every number stays at or below it.
pub(crate) const MAX_SAFE_INTEGER: u64 = (1 << 53) - 1;

/// The numbers that the sources of the script use by name.
#[cfg(feature = "bench")]
pub(crate) fn script_numbers() -> impl Iterator<Item = (&'static str, u64)> {
    let others = [("ENTRIES_OF_A_CHUNK", sliding_log::ENTRIES_OF_A_CHUNK), ("LEASED_PART", LEASED_PART)];
    learned::LEARNED_NUMBERS.into_iter().chain(others)
}

/// The facts that a Decision reports about one limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct View {
    /// Units that would be admitted now. Below 0 for units that callers used beyond the limit.
    pub(crate) left: i64,
    /// The first moment at which the same cost would be admitted. `None` means never.
    pub(crate) admits_at: Option<u64>,
    /// The moment at which the limit is like unused again.
    pub(crate) resets_at: u64,
    /// `leaky-bucket`: how long the caller has to wait before it goes on.
    pub(crate) delay: u64,
    /// The first moment at which more units would be admitted than now. Some algorithms leave this to
    /// [`Rule::more_at`].
    pub(crate) more_at: u64,
}

impl View {
    /// Units that would be admitted now.
    #[inline]
    pub(crate) fn remaining(&self) -> u64 {
        u64::try_from(self.left).unwrap_or(0)
    }

    /// Units that callers used beyond the limit.
    #[inline]
    pub(crate) fn over(&self) -> u64 {
        if self.left < 0 { self.left.unsigned_abs() } else { 0 }
    }
}

/// The units left of a limit, negative beyond it. Both numbers are at most 2^53.
#[inline(always)]
pub(crate) const fn left(limit: u64, used: u64) -> i64 {
    limit as i64 - used as i64
}

/// The outcome of a check that asks, charges and answers in one step.
#[derive(Debug)]
pub(crate) enum Tried {
    /// The check is admitted and charged. From `ends` on the state means nothing any more.
    Admitted { ends: u64 },
    /// The check is refused, and nothing changed.
    Refused,
    /// The check takes several steps. Nothing changed.
    Untried,
}

/// A limit of one algorithm. A default fits most algorithms. A function that would limit wrongly if forgotten has none.
pub(crate) trait LimitRule {
    /// The stored usage of a key.
    type State;

    /// True if a charge has to know that units went back after it, first without a Decision, then by one.
    const COUNTS_REFUNDS: (bool, bool);

    /// True if a check of `cost` is admitted at `now`.
    fn admits(&self, state: &Self::State, now: u64, cost: u64) -> bool;

    /// Charges `cost`, admitted or not.
    fn charge(&self, state: &mut Self::State, now: u64, cost: u64);

    /// Gives `cost` back, the oldest units first if the algorithm can tell. A limit never has more left than when it is
    /// unused. Returns the units that went back.
    fn refund(&self, state: &mut Self::State, now: u64, cost: u64) -> u64;

    /// Gives back the units of a charge that still count, and returns their number.
    fn give_back(&self, state: &mut Self::State, now: u64, charge: &LimitCharge) -> u64;

    /// When the state begins to mean the same as no state. 0 if it already does.
    fn ends(&self, state: &Self::State) -> u64;

    /// True if a state means the same as no state under every rule of the algorithm.
    fn is_unused(state: &Self::State) -> bool;

    /// The view at `now` for a check of `cost`.
    fn view(&self, state: &Self::State, now: u64, cost: u64) -> View;

    /// Units that count at `now`, also beyond the limit.
    fn used(&self, state: &Self::State, now: u64) -> u64;

    /// The most units that are ever admitted at once.
    fn capacity(&self) -> u64;

    /// When the units of a lease charged at `charged_at` end because their window does, however long their life. `view` is the
    /// one of that moment.
    fn lease_ends(&self, view: &View, charged_at: u64) -> Option<u64>;

    /// Charges `cost` as a hold of that name.
    #[inline]
    fn open(&self, state: &mut Self::State, now: u64, cost: u64, _hold: HoldId) {
        self.charge(state, now, cost);
    }

    /// Makes a hold last another ttl. False if there is no such hold.
    fn renew(&self, _state: &mut Self::State, _now: u64, _hold: HoldId) -> bool {
        false
    }

    /// Gives a hold back. False if there is no such hold.
    fn close(&self, _state: &mut Self::State, _now: u64, _hold: HoldId) -> bool {
        false
    }

    /// Notes facts about a state that are known only at the first look at it. True if it noted any.
    #[inline]
    fn adopt(&self, _state: &mut Self::State, _now: u64) -> bool {
        false
    }

    /// Starts a state that has to start and has not. True if it did.
    #[inline]
    fn start(&self, _state: &mut Self::State, _now: u64) -> bool {
        false
    }

    /// How long the state is kept after it ends.
    fn grace(&self) -> u64 {
        0
    }

    /// The moment from which on no charged unit counts, not even beside later charges. 0 if nothing is charged.
    fn charges_end(&self, state: &Self::State) -> u64 {
        self.ends(state)
    }

    /// Until when a charge from before a clear could pass for a later one.
    fn clear_matters_until(&self, state: &Self::State, _now: u64) -> u64 {
        self.charges_end(state)
    }

    /// The view for a check of `cost` that has just charged `charged` units.
    #[inline]
    fn view_after(&self, state: &Self::State, now: u64, cost: u64, _charged: u64) -> View {
        self.view(state, now, cost)
    }

    /// The first moment at which more units would be admitted than when `view` was made, with so many units in use.
    fn more_at(&self, view: &View, _used: u64) -> Option<u64> {
        Some(view.more_at)
    }

    /// The units that count at `now` for a lease of that life.
    fn used_of_leases(&self, state: &Self::State, now: u64, _life: u64) -> u64 {
        self.used(state, now)
    }

    /// Charges units that a process may spend until `now + life`.
    fn charge_lease(&self, state: &mut Self::State, now: u64, LeaseTerms { units, .. }: LeaseTerms) {
        self.charge(state, now, units);
    }

    /// The meter of a bucket.
    fn meter(&self) -> Option<&Meter> {
        None
    }

    /// Asks, charges and answers in one step without allocating: the same as `admits`, `charge`, `ends` and `view` one after the
    /// other. Writes the view in place.
    #[inline(always)]
    fn try_charge(&self, _state: &mut Self::State, _now: u64, _cost: u64, _view: &mut View) -> Tried {
        Tried::Untried
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

/// The bytes that a box of a value takes.
const fn boxed<T>(_: &T) -> usize {
    allocated(size_of::<T>())
}

/// Makes everything that has one case per algorithm: [`Algorithm`], [`Rule`], [`State`], and the matches over them.
macro_rules! algorithms {
    ($d:tt $($(#[$documentation:meta])+ $name:ident $word:literal: $rule:ty, $state:ty;)+) => {
        /// How a limit counts. The names are those of the notation, with `-`.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum Algorithm {
            $($(#[$documentation])+ $name,)+
        }

        impl Algorithm {
            /// Every algorithm.
            pub const ALL: [Self; [$($word),+].len()] = [$(Self::$name),+];

            /// The name in the notation.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$name => $word,)+
                }
            }

            pub(crate) const fn kind(self) -> AlgorithmKind {
                match self {
                    $(Self::$name => <$rule as Meaning>::KIND,)+
                }
            }

            /// A sentence that explains the algorithm. Words in braces stand for the numbers of a limit.
            pub(crate) const fn words(self) -> &'static str {
                match self {
                    $(Self::$name => <$rule as Meaning>::WORDS,)+
                }
            }
        }

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
            /// The rule of a limit.
            pub(crate) fn of(limit: &Limit) -> Self {
                match limit.algorithm() {
                    $(Algorithm::$name => Self::$name(<$rule as Meaning>::of(limit)),)+
                }
            }

            /// The state of a key that was never seen.
            pub(crate) fn fresh(&self) -> State {
                match self {
                    $(Self::$name(_) => State::$name(Default::default()),)+
                }
            }

            /// Builds the state from the numbers in its fields, in order, and the bytes of its list. `None` for a log if part of it
            /// stays on the server.
            #[cfg(feature = "stored")]
            pub(crate) fn read(&self, numbers: [u64; 4], list: &[u8]) -> Option<State> {
                match self {
                    $(Self::$name(_) => {
                        <$rule as StoredRule>::read(numbers, list).map(|state| State::$name(state.into()))
                    })+
                }
            }
        }

        #[cfg(feature = "stored")]
        impl State {
            /// Its numbers, in the order of the fields. Appends its list.
            pub(crate) fn write(&self, list: &mut Vec<u8>) -> [u64; 4] {
                match self {
                    $(Self::$name(state) => <$rule as StoredRule>::write(state, list),)+
                }
            }
        }

        /// The bytes of a limit's list when all its units are in use, and the most of it that a reply may have.
        #[cfg(feature = "stored")]
        impl Limit {
            pub(crate) fn list_bytes(&self) -> (usize, usize) {
                match self.algorithm() {
                    $(Algorithm::$name => <$rule as StoredRule>::list_bytes(self),)+
                }
            }
        }

        /// The fields of each algorithm, in the order of their numbers.
        #[cfg(feature = "stored")]
        pub(crate) const FIELDS: &[&[Field]] = &[$(<$rule as StoredRule>::FIELDS),+];

        /// The algorithms as the script knows them. The number of each is its place, from 1 on.
        #[cfg(feature = "bench")]
        pub(crate) fn stored() -> Vec<Stored> {
            vec![$(Stored::of::<$rule>(stringify!($name))),+]
        }

        /// Evaluates one function of the rule's type for a limit.
        macro_rules! of_limit {
            ($d limit:expr, $d function:ident $d (, $d argument:expr)?) => {
                match $d limit.algorithm() {
                    $(Algorithm::$name => <$rule as Meaning>::$d function($d limit $d (, $d argument)?),)+
                }
            };
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
    /// A window that the first admitted check opens.
    FixedWindow "fixed-window": fixed_window::Rule, fixed_window::State;
    /// A window aligned to the calendar: the one of UTC, or a custom one.
    CalendarWindow "calendar-window": calendar_window::Rule, calendar_window::State;
    /// The exact sum over the last period, with an entry for each admitted check.
    SlidingLog "sliding-log": sliding_log::Rule, Box<sliding_log::State>;
    /// The sum over the last period in granules. Never more than the count in any window.
    SlidingWindow "sliding-window": sliding_window::Rule, Box<sliding_window::State>;
    /// The estimate from two aligned counters.
    SlidingCounter "sliding-counter": sliding_counter::Rule, sliding_counter::State;
    /// A bucket of tokens that refills continuously.
    TokenBucket "token-bucket": token_bucket::Rule, meter::State;
    /// The generic cell rate algorithm.
    ///
    /// With n units per period p, the *emission interval* T = p/n is the time that one unit takes at the allowed rate. The
    /// *theoretical arrival time* (TAT) is the moment at which all admitted units, one every T, have passed. A check of cost c
    /// at time t is admitted when max(TAT, t) + c·T - t <= burst·T. Then TAT becomes max(TAT, t) + c·T. In textbooks the
    /// *burst tolerance* is (burst - 1)·T: how early a single unit may arrive.
    ///
    /// `gcra 5/s burst 3` has T = 200 ms and burst·T = 600 ms:
    ///
    /// ```
    /// use std::sync::Arc;
    /// use std::time::Duration;
    /// use tidegate::{Limiter, ManualClock};
    ///
    /// let ms = Duration::from_millis;
    /// let clock = Arc::new(ManualClock::new(Duration::from_secs(1_700_000_000)));
    /// let limiter = Limiter::builder().clock(Arc::clone(&clock)).build()?;
    /// let check = || limiter.check("gcra 5/s burst 3", "alice");
    ///
    /// // Three units at once; TAT moves to 200, 400 and 600 ms from now.
    /// for tat in [200, 400, 600] {
    ///     let decision = check()?;
    ///     assert!(decision.allowed());
    ///     assert_eq!(decision.reset_after(), ms(tat));
    /// }
    /// // The next unit would move it to 800 ms, which is more than burst·T: refused for 800 - 600 = 200 ms.
    /// let denied = check()?;
    /// assert!(!denied.allowed());
    /// assert_eq!(denied.retry_after(), Some(ms(200)));
    ///
    /// // Then there is room for one unit, and TAT moves to 800 ms from the start, 600 ms from now.
    /// clock.advance(ms(200));
    /// assert_eq!(check()?.reset_after(), ms(600));
    /// assert!(!check()?.allowed());
    ///
    /// // 800 ms later TAT is in the past: the key is as if unused, but for this unit.
    /// clock.advance(ms(800));
    /// assert_eq!(check()?.remaining(), 2);
    /// # Ok::<(), tidegate::Error>(())
    /// ```
    Gcra "gcra": gcra::Rule, meter::State;
    /// A queue that one unit leaves every period/count.
    LeakyBucket "leaky-bucket": leaky_bucket::Rule, meter::State;
    /// Units in progress at the same time.
    Concurrency "concurrency": concurrency::Rule, Box<concurrency::State>;
}

// After the table, because it uses the macros of the table.
mod dispatch;
