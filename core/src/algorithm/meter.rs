//! The part that the three buckets share: the leaky bucket as a meter, exact to the microsecond.
//!
//! **Rule.** A meter holds units that drain at a steady rate, one every *emission interval* T = p/n. A check of cost c is
//! admitted when the units in the meter and c are at most the *burst*. Each bucket reads it its own way:
//!
//! | bucket | a unit in the meter is | the meter is empty |
//! |---|---|---|
//! | `gcra` | one T until the *theoretical arrival time* | at TAT |
//! | `token-bucket` | a token that is missing | when the bucket is full |
//! | `leaky-bucket` | a unit that waits in the queue | when the queue is empty |
//!
//! **State.** TAT alone, rounded to a microsecond, would admit too much or too little if T is not a whole number of
//! microseconds. So a meter stores whole units as of a moment, and
//!
//! ```text
//! TAT = moment + units·T,   moment = since + fraction / interval_units
//! ```
//!
//! The moment may lie up to one T in the past. The part of a unit that has drained since then is kept as time, so that
//! nothing is rounded. The moment has a fraction only when T has one. The state holds neither the burst nor T: after a
//! change of the count, used units stay used and drain at the new rate. **Cost:** O(1), two or three numbers.
//!
//! **Example,** 3 per 10 s, burst 3: T = 10/3 s. Three units at 0 s fill the meter: since 0, units 3, so TAT = 10 s. At
//! 4 s one unit has drained, at 3 1/3 s: since 3,333,333 µs, fraction 1/3 µs, units 2, and TAT is still exactly 10 s.

use std::ops::Deref;

#[cfg(feature = "stored")]
use super::stored::{Field, StoredRule, fits};
use super::{LeaseTerms, LimitCharge, LimitRule, MAX_SAFE_INTEGER, Tried, View, left};

/// The longest that a meter may take to drain, 2^52 µs (142 years). This keeps every moment below 2^53.
const LONGEST_DRAIN: u128 = 1 << 52;
/// Up to here, doubles round the quotient of two whole numbers correctly. The script counts in doubles.
const EXACT_PARTS: u64 = 1 << 51;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Meter {
    /// The burst: the most units that are admitted at once.
    pub(crate) capacity: u64,
    /// The emission interval T is `interval_micros / interval_units` microseconds, in lowest terms.
    pub(crate) interval_micros: u64,
    pub(crate) interval_units: u64,
    /// The most units that it can hold, also after charges beyond the limit.
    pub(crate) max_units: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct State {
    /// The moment, in whole microseconds …
    pub(crate) since: u64,
    /// … the units that were in the meter then …
    pub(crate) units: u64,
    /// … and the moment's fraction of a microsecond, in parts of `interval_units`.
    pub(crate) fraction: u64,
}

impl Meter {
    /// A meter that drains `count` units in `period` microseconds. A count of 0 admits nothing, and its burst is 0 too.
    pub(crate) fn new(count: u64, period: u64, burst: u64) -> Self {
        let count = count.max(1);
        let divisor = greatest_common_divisor(count, period);
        let (interval_micros, interval_units) = (period / divisor, count / divisor);
        let max_units = (LONGEST_DRAIN * u128::from(interval_units) / u128::from(interval_micros))
            .min(u128::from(MAX_SAFE_INTEGER));
        Self { capacity: burst, interval_micros, interval_units, max_units: max_units as u64 }
    }

    /// Converts a state of a meter with another count in the same period. Units that had drained by then stay drained,
    /// and the other units stay as they are. A fraction of a microsecond that the new interval cannot express is
    /// rounded up, so the meter drains that much later.
    pub(crate) fn rescale(&self, state: &mut State, (count, period): (u64, u64), now: u64) {
        let old = Self::new(count, period, 0);
        let ends = old.ends(state);
        if ends <= now {
            *state = State { since: state.since.max(ends), units: 0, fraction: 0 };
        } else if state.fraction > 0 && old.interval_units != self.interval_units {
            (state.since, state.fraction) = (state.since + 1, 0);
        }
        state.units = state.units.min(self.max_units);
    }

    /// Whole units drained between the state's moment and `now`, and the rest of that time in parts of a microsecond
    /// (`interval_units` of them).
    #[inline(always)]
    fn drained(&self, state: &State, now: u64) -> (u128, u128) {
        let Some(elapsed) = now.checked_sub(state.since) else { return (0, 0) };
        // Nearly always everything fits into 64 bits, where a division costs a tenth.
        if let Some(parts) = elapsed.checked_mul(self.interval_units) {
            let parts = parts.saturating_sub(state.fraction);
            if parts < self.interval_micros {
                return (0, u128::from(parts));
            }
            return (u128::from(parts / self.interval_micros), u128::from(parts % self.interval_micros));
        }
        let parts = (u128::from(elapsed) * u128::from(self.interval_units)).saturating_sub(u128::from(state.fraction));
        (parts / u128::from(self.interval_micros), parts % u128::from(self.interval_micros))
    }

    /// The state at `now`. It is always inlined: to return it in memory would cost a check a fifth of its time.
    #[inline(always)]
    pub(crate) fn state_at(&self, state: &State, now: u64) -> State {
        if state.units == 0 {
            return State { since: now.max(state.since), units: 0, fraction: 0 };
        }
        let (units, rest) = self.drained(state, now);
        if units >= u128::from(state.units) {
            return State { since: now, units: 0, fraction: 0 };
        }
        if units == 0 {
            return *state;
        }
        // Both fit: fewer than `state.units`, and less than `interval_micros`.
        let (units, rest) = (units as u64, rest as u64);
        let (whole, parts) = (rest / self.interval_units, rest % self.interval_units);
        let (since, fraction) =
            if parts == 0 { (now - whole, 0) } else { (now - whole - 1, self.interval_units - parts) };
        State { since, units: state.units - units, fraction }
    }

    /// TAT, rounded up to a whole microsecond. 0 for an empty meter.
    #[inline]
    pub(super) fn ends(&self, state: &State) -> u64 {
        if state.units == 0 { 0 } else { self.drained_at(state, state.units) }
    }

    /// The units that first-in-first-out has not drained, of the charge and of those ahead of it.
    fn waiting(&self, now: u64, charge: &LimitCharge) -> u64 {
        // The moment is rounded up if the interval has a fraction.
        let until = charge.empty_at.saturating_sub(u64::from(self.interval_units > 1));
        self.passed(until.saturating_sub(now)).map_or(0, |(units, _)| units.saturating_sub(charge.refunded))
    }

    /// The whole units that drain in a time, and the rest of it in parts of a microsecond. `None` if the time is too long for
    /// the script to know it exactly.
    fn passed(&self, time: u64) -> Option<(u64, u64)> {
        let parts = time.checked_mul(self.interval_units).filter(|parts| *parts <= EXACT_PARTS)?;
        Some((parts / self.interval_micros, parts % self.interval_micros))
    }

    /// True if a unit drains as fast as in the other meter.
    pub(crate) fn has_interval_of(&self, other: &Self) -> bool {
        (self.interval_micros, self.interval_units) == (other.interval_micros, other.interval_units)
    }

    /// True if a unit drains at least as fast as in the other meter.
    pub(crate) fn drains_no_slower_than(&self, other: &Self) -> bool {
        u128::from(self.interval_micros) * u128::from(other.interval_units)
            <= u128::from(other.interval_micros) * u128::from(self.interval_units)
    }

    /// The state at `now`, with enough units that the meter is not empty before `now + life`.
    pub(super) fn raised(&self, state: &State, now: u64, life: u64) -> State {
        let mut raised = self.state_at(state, now);
        let drained = self.units_drained(&raised, now + life);
        raised.units = raised.units.max(drained.saturating_add(1)).min(self.max_units);
        raised
    }

    /// Charges units for use at a later moment, and keeps the meter filled until then: TAT becomes max(TAT, moment) + units·T.
    pub(crate) fn charge_at(&self, state: &mut State, now: u64, moment: u64, units: u64) {
        *state = self.state_at(state, now);
        let (micros, parts) = (u128::from(self.interval_micros), u128::from(self.interval_units));
        let since = u128::from(state.since) * parts + u128::from(state.fraction);
        let filled = (u128::from(moment) * parts).saturating_sub(since).div_ceil(micros);
        if filled > u128::from(state.units) {
            let since = (u128::from(moment) * parts).saturating_sub(filled * micros);
            *state = State { since: (since / parts) as u64, units: filled as u64, fraction: (since % parts) as u64 };
        }
        state.units = (state.units + units).min(self.max_units);
    }

    /// The whole units that drain between the state's moment and `now`, if the meter has enough.
    pub(super) fn units_drained(&self, state: &State, now: u64) -> u64 {
        u64::try_from(self.drained(state, now).0).unwrap_or(u64::MAX)
    }

    /// The first whole microsecond at which `units` units have drained since the state's moment.
    #[inline(always)]
    pub(crate) fn drained_at(&self, state: &State, units: u64) -> u64 {
        if let Some(parts) = units.checked_mul(self.interval_micros).and_then(|parts| parts.checked_add(state.fraction))
        {
            return state.since + if self.interval_units == 1 { parts } else { parts.div_ceil(self.interval_units) };
        }
        let parts = u128::from(units) * u128::from(self.interval_micros) + u128::from(state.fraction);
        state.since + parts.div_ceil(u128::from(self.interval_units)) as u64
    }

    /// The time that `units` units take to drain, rounded down.
    pub(super) fn drains_within(&self, units: u64) -> u64 {
        match units.checked_mul(self.interval_micros) {
            Some(parts) if self.interval_units == 1 => parts,
            Some(parts) => parts / self.interval_units,
            // At most the longest drain.
            None => (u128::from(units) * u128::from(self.interval_micros) / u128::from(self.interval_units)) as u64,
        }
    }

    /// The view of the state at `now`.
    #[inline(always)]
    fn view_of(&self, state: &State, ends: u64, now: u64, cost: u64) -> View {
        let wanted = state.units + cost;
        let admits_at = if cost > self.capacity {
            None
        } else if wanted <= self.capacity {
            Some(now)
        } else {
            Some(self.drained_at(state, wanted - self.capacity))
        };
        View { left: left(self.capacity, state.units), admits_at, resets_at: ends.max(now), ..View::default() }
    }
}

/// The rule of a bucket that is a meter: `gcra`, and `leaky-bucket` with delays.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Bucket<const DELAYS: bool>(Meter);

impl<const DELAYS: bool> Bucket<DELAYS> {
    pub(super) fn new(count: u64, period: u64, burst: u64) -> Self {
        Self(Meter::new(count, period, burst))
    }
}

impl<const DELAYS: bool> Deref for Bucket<DELAYS> {
    type Target = Meter;

    #[inline(always)]
    fn deref(&self) -> &Meter {
        &self.0
    }
}

impl<const DELAYS: bool> LimitRule for Bucket<DELAYS> {
    type State = State;

    const COUNTS_REFUNDS: (bool, bool) = (true, true);

    fn used(&self, state: &State, now: u64) -> u64 {
        self.state_at(state, now).units
    }

    #[inline]
    fn admits(&self, state: &State, now: u64, cost: u64) -> bool {
        self.state_at(state, now).units + cost <= self.capacity
    }

    #[inline]
    fn charge(&self, state: &mut State, now: u64, cost: u64) {
        *state = self.state_at(state, now);
        state.units = (state.units + cost).min(self.max_units);
    }

    fn refund(&self, state: &mut State, now: u64, cost: u64) -> u64 {
        *state = self.state_at(state, now);
        let units = cost.min(state.units);
        state.units -= units;
        units
    }

    /// Gives back units of a charge. docs/adr/0028 explains why neither amount takes units of others.
    fn give_back(&self, state: &mut State, now: u64, charge: &LimitCharge) -> u64 {
        let waiting = self.waiting(now, charge);
        let Some((gone, rest)) = self.passed(now.saturating_sub(charge.at + charge.life)) else { return 0 };
        // While at least its own units still wait, refunds have taken none of them, only units that stood ahead.
        let taken = charge.charged.max(charge.units).saturating_sub(waiting).min(charge.taken_by_refunds());
        let units = charge.units - if charge.is_undone { 0 } else { taken };
        let own = units.saturating_sub(gone);
        if waiting >= own {
            let units = units.min(waiting);
            // A refund of nothing changes nothing, for example if the key was cleared since.
            return if units == 0 { 0 } else { self.refund(state, now, units) };
        }
        // Without the charge the meter might have been empty since then. The remaining units may have come later by the part of
        // a unit that has drained, but not later than now.
        let units = self.refund(state, now, own);
        if state.since < now {
            state.since = now.min(state.since + rest.div_ceil(self.interval_units));
            if state.since == now {
                state.fraction = 0;
            }
        }
        units
    }

    #[inline]
    fn ends(&self, state: &State) -> u64 {
        self.0.ends(state)
    }

    #[inline]
    fn view(&self, state: &State, now: u64, cost: u64) -> View {
        let state = self.state_at(state, now);
        self.view_of(&state, self.ends(&state), now, cost)
    }

    /// The check waits for the units that were in the queue before it.
    #[inline]
    fn view_after(&self, state: &State, now: u64, cost: u64, charged: u64) -> View {
        let view = self.view(state, now, cost);
        if !DELAYS {
            return view;
        }
        let state = self.state_at(state, now);
        let before = state.units.saturating_sub(charged);
        let leaves_at = if before == 0 { now } else { self.drained_at(&state, before) };
        View { delay: leaves_at.saturating_sub(now), ..view }
    }

    #[inline]
    fn capacity(&self) -> u64 {
        self.capacity
    }

    fn is_unused(state: &State) -> bool {
        state.units == 0
    }

    fn lease_ends(&self, _view: &View, _charged_at: u64) -> Option<u64> {
        None
    }

    /// Units used beyond the limit have to drain first. All but the last unit of the capacity stay.
    fn more_at(&self, view: &View, used: u64) -> Option<u64> {
        Some(view.resets_at.saturating_sub(self.drains_within(used - 1)))
    }

    fn used_of_leases(&self, state: &State, now: u64, life: u64) -> u64 {
        self.raised(state, now, life).units
    }

    fn charge_lease(&self, state: &mut State, now: u64, LeaseTerms { units, life }: LeaseTerms) {
        *state = self.raised(state, now, life);
        self.charge(state, now, units);
    }

    fn meter(&self) -> Option<&Meter> {
        Some(&self.0)
    }

    #[inline(always)]
    fn try_charge(&self, state: &mut State, now: u64, cost: u64, view: &mut View) -> Tried {
        if DELAYS {
            return Tried::Untried;
        }
        let mut current = self.state_at(state, now);
        current.units += cost;
        if current.units > self.capacity {
            return Tried::Refused;
        }
        *state = current;
        // This end is later than `now`, because a unit that was just charged has not drained.
        let ends = self.0.ends(&current);
        *view = self.view_of(&current, ends, now, cost);
        Tried::Admitted { ends }
    }

    fn metered(state: &mut State) -> Option<&mut State> {
        Some(state)
    }
}

#[cfg(feature = "stored")]
impl<const DELAYS: bool> StoredRule for Bucket<DELAYS> {
    const FIELDS: &'static [Field] = &[Field::Moment, Field::Count];

    fn can_have(&self, state: &State) -> bool {
        fits(state.since) && state.units <= self.max_units && state.fraction < self.interval_units
    }

    fn numbers(&self) -> [u64; 5] {
        [self.capacity, self.interval_micros, self.interval_units, self.max_units, 0]
    }

    fn write(state: &State, _list: &mut Vec<u8>) -> [u64; 4] {
        [state.since, state.units, state.fraction, 0]
    }

    fn read([since, units, fraction, _]: [u64; 4], _list: &[u8]) -> Option<State> {
        Some(State { since, units, fraction })
    }
}

fn greatest_common_divisor(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { greatest_common_divisor(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::{Bucket, LimitRule, State};

    const SECOND: u64 = 1_000_000;

    #[test]
    fn the_example_of_this_file() {
        let meter = Bucket::<false>::new(3, 10 * SECOND, 3);
        assert_eq!((meter.interval_micros, meter.interval_units), (10 * SECOND, 3));
        let mut state = State::default();
        meter.charge(&mut state, 0, 3);
        assert_eq!(meter.ends(&state), 10 * SECOND);
        let later = meter.state_at(&state, 4 * SECOND);
        assert_eq!(later, State { since: 3_333_333, units: 2, fraction: 1 });
        assert_eq!(meter.ends(&later), 10 * SECOND);
    }
}
