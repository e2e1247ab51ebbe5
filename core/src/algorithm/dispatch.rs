//! Calls the functions of each algorithm, for a limit, a rule or a state of any of them.

// The macros use the names of the table.
use super::*;

/// The functions of [`Meaning`].
impl Limit {
    /// The shortest and the longest real length of its period, in microseconds.
    pub(crate) fn lengths(&self) -> (u64, u64) {
        of_limit!(self, lengths)
    }

    /// For how many microseconds after the charge a process can spend units, at most. 0 if it cannot take them in advance.
    pub(crate) fn lease_life(&self) -> u64 {
        of_limit!(self, lease_life).min(lease::LONGEST_LEASE)
    }

    /// The most that any sequence of calls gets within `window` microseconds. The last moment does not count.
    pub(crate) fn most_in(&self, window: u64) -> u64 {
        if self.capacity() == 0 || window <= 1 { self.capacity() } else { of_limit!(self, most_in, window) }
    }

    /// The shortest pause, in microseconds, at which no unit is ever denied. `None` if all are.
    pub(crate) fn steady(&self) -> Option<u64> {
        (self.capacity() > 0).then(|| of_limit!(self, steady).max(1))
    }

    /// Warns about numbers that probably do not do what their author meant.
    pub(crate) fn lint(&self, warn: &mut dyn FnMut(String)) {
        of_limit!(self, lint, warn);
    }
}

impl State {
    /// The bytes that it has allocated.
    #[inline]
    pub(crate) fn heap_bytes(&self) -> usize {
        of_state!(self, heap_bytes)
    }

    /// True if it means the same as no state under every rule of its algorithm.
    pub(crate) fn is_unused(&self) -> bool {
        of_state!(self, is_unused)
    }
}

/// The functions of [`LimitRule`].
impl Rule {
    #[inline]
    pub(crate) fn admits(&self, state: &State, now: u64, cost: u64) -> bool {
        of_both!(self, state, |rule, state| rule.admits(state, now, cost))
    }

    pub(crate) fn holds(&self) -> bool {
        const fn holds<R: Meaning>(_: &R) -> bool {
            matches!(R::KIND, AlgorithmKind::Held)
        }
        of_rule!(self, |rule| holds(rule))
    }

    /// Charges `cost`, admitted or not.
    #[inline]
    pub(crate) fn charge(&self, state: &mut State, now: u64, cost: u64, hold: HoldId) {
        of_both!(self, state, |rule, state| rule.open(state, now, cost, hold));
    }

    #[inline(always)]
    pub(crate) fn try_charge(&self, state: &mut State, now: u64, cost: u64, view: &mut View) -> Tried {
        of_both!(self, state, |rule, state| rule.try_charge(state, now, cost, view))
    }

    /// Notes facts about a state that are known only at the first look at it. True if it noted any.
    pub(crate) fn adopt(&self, state: &mut State, now: u64) -> bool {
        of_both!(self, state, |rule, state| rule.adopt(state, now))
    }

    /// The custom calendar of the limit.
    pub(crate) fn calendar(&self) -> Option<&Calendar> {
        match self {
            Self::CalendarWindow(rule) => rule.calendar.as_deref(),
            _ => None,
        }
    }

    /// The same rule with a calendar that is `ahead` of the clock of the store. `None` for a rule without a calendar.
    pub(crate) fn with_calendar_ahead(&self, ahead: i64) -> Option<Self> {
        match self {
            Self::CalendarWindow(rule) => Some(Self::CalendarWindow(calendar_window::Rule { ahead, ..rule.clone() })),
            _ => None,
        }
    }

    pub(crate) fn refund(&self, state: &mut State, now: u64, cost: u64) -> u64 {
        of_both!(self, state, |rule, state| rule.refund(state, now, cost))
    }

    pub(crate) fn give_back(&self, state: &mut State, now: u64, charge: &LimitCharge) -> u64 {
        of_both!(self, state, |rule, state| rule.give_back(state, now, charge))
    }

    pub(crate) fn counts_refunds(&self, by_decision: bool) -> bool {
        const fn counts<R: LimitRule>(_: &R) -> (bool, bool) {
            R::COUNTS_REFUNDS
        }
        let (without, by_one) = of_rule!(self, |rule| counts(rule));
        if by_decision { by_one } else { without }
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

    /// Charges a bucket units that callers use at a later moment.
    pub(crate) fn charge_at(&self, state: &mut State, now: u64, moment: u64, units: u64) {
        self.start(state, now);
        if let (Some(meter), Some(state)) = (self.meter(), of_state!(state, metered)) {
            meter.charge_at(state, now, moment, units);
        }
    }

    /// Converts a state of a bucket with another count in the same period. `was` is that count and the period.
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

    /// The view at `now` for a check of `cost` that has just charged `charged` units.
    #[inline]
    pub(crate) fn view(&self, state: &State, now: u64, cost: u64, charged: u64) -> View {
        of_both!(self, state, |rule, state| rule.view_after(state, now, cost, charged))
    }

    /// The first moment at which more units would be admitted than when `view` was made. `None` if nothing is in use, or
    /// if units come back at any moment because callers hold them. For buckets and windows it follows from the rest of the
    /// view, so a check does not compute it. For a bucket it may be 1 µs late, because the view is rounded.
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

    /// All the units that leases of that life could take at `now`.
    pub(crate) fn leasable(&self, state: &State, now: u64, life: u64) -> u64 {
        self.capacity().saturating_sub(of_both!(self, state, |rule, state| rule.used_of_leases(state, now, life)))
    }

    pub(crate) fn charge_lease(&self, state: &mut State, now: u64, terms: LeaseTerms) {
        of_both!(self, state, |rule, state| rule.charge_lease(state, now, terms));
    }
}

/// The functions of [`StoredRule`].
#[cfg(feature = "stored")]
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

    /// True if this rule can count with a stored state, which may belong to another algorithm.
    pub(crate) fn can_have(&self, state: &State) -> bool {
        of_both!(self, state, |rule, state| rule.can_have(state), false)
    }
}
