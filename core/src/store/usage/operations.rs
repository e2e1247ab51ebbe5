//! The effect of each operation on a usage.

use std::sync::Arc;

use super::Usage;
use crate::algorithm::{LEASED_PART, LeaseTerms, Rule, State, Traces, Tried};
use crate::plan::{Amount, Plan};
use crate::store::request::{Answer, Entry, Operation, SimpleAnswer, Views};
use crate::tables::one_or_many::OneOrMany;

impl Usage {
    /// Nearly every call in one step: a check or a peek of one limit. If it returns `None`, nothing was changed.
    #[inline(always)]
    pub(in crate::store) fn try_simple_call(&mut self, entry: &Entry<'_>, now: u64) -> Option<SimpleAnswer> {
        match &entry.operation {
            Operation::Check { cost, details: None, .. } => {
                let mut answer = SimpleAnswer::default();
                self.try_simple_check(entry.plan, *cost, now, &mut answer).then_some(answer)
            }
            Operation::Peek { cost, details: None } => self.try_simple_peek(entry.plan, *cost, now),
            _ => None,
        }
    }

    #[inline(always)]
    pub(in crate::store) fn try_simple_check(
        &mut self,
        plan: &Plan,
        cost: u64,
        now: u64,
        answer: &mut SimpleAnswer,
    ) -> bool {
        let Some((rule, state)) = self.simple_state(plan) else { return false };
        let applied = match rule.try_charge(state, now, cost, &mut answer.view) {
            Tried::Admitted { ends } => {
                self.expires_at = ends;
                true
            }
            Tried::Refused if plan.answers_by_state => {
                answer.view = rule.view(state, now, cost, 0);
                self.denies_until = answer.view.admits_at.unwrap_or(0);
                false
            }
            _ => return false,
        };
        (answer.applied, answer.granted, answer.now) = (applied, if applied { cost } else { 0 }, now);
        true
    }

    #[inline]
    fn try_simple_peek(&mut self, plan: &Plan, cost: u64, now: u64) -> Option<SimpleAnswer> {
        let (rule, state) = self.simple_state(plan).filter(|_| plan.answers_by_state)?;
        let applied = rule.admits(state, now, cost);
        Some(SimpleAnswer { applied, granted: 0, now, view: rule.view(state, now, cost, 0) })
    }

    /// The state of the only limit, if this version of the policy reads it as it is and the usage has nothing else.
    #[inline(always)]
    fn simple_state<'a>(&'a mut self, plan: &'a Plan) -> Option<(&'a Rule, &'a mut State)> {
        match (&*plan.rules, &mut self.states, &self.rare) {
            ([rule], OneOrMany::One(state), None) if plan.is_simple && Arc::ptr_eq(&self.format, &plan.format) => {
                Some((rule, state))
            }
            _ => None,
        }
    }

    pub(in crate::store) fn apply(&mut self, entry: &Entry<'_>, now: u64) -> Answer {
        if !Arc::ptr_eq(&self.format, &entry.plan.format) || entry.plan.grace > 0 {
            return self.apply_converted(entry, now).0;
        }
        self.apply_as_stored(entry, now).0
    }

    /// The same, and true if the usage has changed, beside its journal.
    #[cfg(feature = "redis")]
    pub(in crate::store) fn apply_and_say(&mut self, entry: &Entry<'_>, now: u64) -> (Answer, bool) {
        let is_other = !Arc::ptr_eq(&self.format, &entry.plan.format) || entry.plan.grace > 0;
        if is_other { self.apply_converted(entry, now) } else { self.apply_as_stored(entry, now) }
    }

    /// Converts the usage for another version of the policy. The conversion is kept only when the call changes the usage.
    #[cold]
    fn apply_converted(&mut self, entry: &Entry<'_>, now: u64) -> (Answer, bool) {
        let before = self.stored_state();
        self.read_as(entry.plan, now);
        let (answer, changed) = self.apply_as_stored(entry, now);
        if !changed {
            self.restore(before);
        }
        (answer, changed)
    }

    /// Returns the answer, and true if the usage has changed.
    fn apply_as_stored(&mut self, entry: &Entry<'_>, now: u64) -> (Answer, bool) {
        self.end_turns(now);
        match &entry.operation {
            operation if operation.is_check() => {
                let charged = self.try_charge(entry, now);
                let (admits, at) = (charged.is_some(), charged.map_or(now, |(_, at)| at));
                let charges = !admits && entry.plan.charges_denials;
                let refused = charges.then(|| self.refusing_limits(entry, now));
                let changed = admits || self.refuse(entry, now, self.spares(entry, now));
                if changed {
                    self.refresh_expiry(entry.plan, now);
                }
                if admits || !self.goes_on_waiting(entry, now) {
                    self.record_attempt(entry, now, admits);
                }
                let answer = self.answer(entry, at, admits, charged.map(|(units, _)| units));
                let mut answer = Answer { now, refused, ..answer };
                if !admits {
                    if entry.operation.line().is_some() {
                        answer.yield_to_others();
                    }
                    self.remember_denial(&answer);
                } else if at > now {
                    answer.rare.get_or_insert_default().turn_at = at;
                    self.denies_until = self.denies_until.max(at);
                }
                (answer, changed)
            }
            Operation::Peek { .. } => {
                let admits = self.admits(entry, now);
                (self.answer(entry, now, admits, None), false)
            }
            Operation::Lease(terms) => {
                let granted = self.lease(entry.plan, now, *terms);
                if granted > 0 {
                    self.refresh_expiry(entry.plan, now);
                }
                let mut answer = self.answer(entry, now, granted > 0, None);
                answer.granted = granted;
                (answer, granted > 0)
            }
            operation => {
                let applied = self.modify(operation, entry, now);
                let changed = applied && !matches!(operation, Operation::Journal | Operation::NoteDenial { .. });
                if changed {
                    self.refresh_expiry(entry.plan, now);
                }
                let mut answer = self.answer(entry, now, applied, Some(operation.consumes()));
                if changed && answer.views.iter().any(|view| view.left < 0) {
                    self.remember_debt(entry.plan, now);
                }
                if matches!(operation, Operation::Journal) {
                    let attempts = self.journal().map(|journal| journal.newest(now, entry.plan.journal_life()));
                    answer.rare.get_or_insert_default().attempts = attempts.unwrap_or_default();
                }
                (answer, changed)
            }
        }
    }

    /// Charges the granted units: the cost, or as many of it as a partial check can get. Returns them, and the moment
    /// as of which they count. `None` if nothing is granted.
    fn try_charge(&mut self, entry: &Entry<'_>, now: u64) -> Option<(u64, u64)> {
        if let Operation::Turn { within, .. } = entry.operation {
            return self.take_turn(entry, now, within);
        }
        let yields = entry.operation.line().is_some_and(|place| self.must_yield(place, now));
        if yields || !self.admits(entry, now) {
            return None;
        }
        if let Some(place) = entry.operation.line() {
            self.leave_served(place, now);
        }
        let Operation::Take { cost, .. } = entry.operation else {
            self.charge(entry, now);
            return Some((entry.operation.consumes(), now));
        };
        let left = |(index, (rule, state)): (usize, (&Rule, &State))| {
            rule.capacity().saturating_sub(rule.used(state, now)).saturating_sub(self.amount(entry, index, now).reserve)
        };
        let granted = entry.plan.rules.iter().zip(&self.states).enumerate().map(left).fold(cost, u64::min);
        // At least one unit is admitted.
        let granted = self.learned(now).map_or(granted, |learned| learned.left(now, granted).max(1));
        self.charge(&Entry { operation: Operation::check(granted), ..*entry }, now);
        Some((granted, now))
    }

    /// Charges every bucket as of the first moment at which all of them admit the call, if that is soon enough. Returns the cost and
    /// that moment.
    fn take_turn(&mut self, entry: &Entry<'_>, now: u64, within: u64) -> Option<(u64, u64)> {
        // No one knows when others will use less, so no turn is taken then.
        if self.learned(now).is_some() && self.refusing_limits(entry, now) > 0 {
            return None;
        }
        let mut moment = self.blocked_until().max(now);
        for (index, (rule, state)) in entry.plan.rules.iter().zip(&self.states).enumerate() {
            let units = entry.operation.amount(index).units;
            if units > 0 {
                let most = rule.meter().map_or(0, |meter| meter.max_units);
                if rule.used(state, now) + units > most {
                    return None;
                }
                moment = moment.max(rule.view(state, now, units, 0).admits_at?);
            }
        }
        if moment - now > within {
            return None;
        }
        if self.blocked_until() <= now {
            self.end_block(entry.plan, now);
        }
        for (index, (rule, state)) in entry.plan.rules.iter().zip(&mut self.states).enumerate() {
            let units = entry.operation.amount(index).units;
            if units > 0 {
                rule.charge_at(state, now, moment, units);
            }
        }
        self.charge_learned(entry, entry.operation.cost(), now, moment);
        if moment > now {
            self.change_annex(|annex| annex.turns_until = annex.turns_until.max(moment));
        }
        Some((entry.operation.cost(), moment))
    }

    /// True if a refused caller was not denied, because it waits in the line or for learned limits.
    fn goes_on_waiting(&self, entry: &Entry<'_>, now: u64) -> bool {
        match entry.operation {
            Operation::Acquire { .. } => true,
            Operation::Turn { .. } => self.learned(now).is_some(),
            _ => false,
        }
    }

    /// Takes units in advance: a part of the units that every limit has left. Returns how many.
    fn lease(&mut self, plan: &Plan, now: u64, terms: LeaseTerms) -> u64 {
        // Learned limits count calls, and a lease is none.
        if self.blocked_until() > now || self.learned(now).is_some() {
            return 0;
        }
        let leasable = |(rule, state): (&Rule, &State)| rule.leasable(state, now, terms.life) / LEASED_PART;
        let units = plan.rules.iter().zip(&self.states).map(leasable).fold(terms.units, u64::min);
        if units > 0 {
            self.end_block(plan, now);
            self.change_annex(|annex| {
                if annex.generation == 0 {
                    annex.generation = now;
                }
            });
            for (rule, state) in plan.rules.iter().zip(&mut self.states) {
                rule.charge_lease(state, now, LeaseTerms { units, ..terms });
            }
        }
        units
    }

    #[inline(always)]
    pub(in crate::store) fn charge(&mut self, entry: &Entry<'_>, now: u64) {
        let (cost, hold) = match entry.operation {
            Operation::Check { cost, hold, .. } => (cost, hold),
            Operation::Acquire { cost, hold, .. } => (cost, hold),
            Operation::Charge { cost, .. } => (cost, 0),
            _ => return,
        };
        if self.rare.is_some() && entry.operation.is_check() && self.blocked_until() <= now {
            self.end_block(entry.plan, now);
        }
        let amounts = entry.operation.amounts();
        for (index, (rule, state)) in entry.plan.rules.iter().zip(&mut self.states).enumerate() {
            let units = amounts.map_or(cost, |amounts| amounts[index].units);
            if units > 0 {
                rule.charge(state, now, units, hold);
            }
        }
        if self.rare.is_some() || entry.plan.policy.learning().is_some() {
            self.charge_learned(entry, cost, now, now);
        }
    }

    /// Makes the changes of a denial, if the policy has any. Returns true if there were some. A denial is `spared` if
    /// it was only for units that must stay free for others: it is not charged and begins no block.
    pub(in crate::store) fn refuse(&mut self, entry: &Entry<'_>, now: u64, spared: bool) -> bool {
        let plan = entry.plan;
        let (cost, hold) = match entry.operation {
            Operation::Check { cost, hold, .. } => (cost, hold),
            Operation::Acquire { cost, hold, .. } => (cost, hold),
            Operation::Turn { cost, .. } | Operation::Take { cost, .. } => (cost, 0),
            _ => return false,
        };
        // A caller that goes on waiting was not denied.
        let spared = spared || matches!(entry.operation, Operation::Acquire { .. });
        let mut adopts = plan.has_calendar && self.adopt(plan, now);
        if let Some(place) = entry.operation.line() {
            self.join_line(place, now);
            adopts = true;
        }
        if !plan.denial_writes {
            return adopts;
        }
        let blocked = self.blocked_until() > now;
        let charges = plan.charges_denials && !spared;
        let mut changed = charges || adopts;
        // A partial check only asks with its amounts, so it is charged its cost.
        let amounts = entry.operation.amounts().filter(|_| !matches!(entry.operation, Operation::Take { .. }));
        for (index, (rule, state)) in plan.rules.iter().zip(&mut self.states).enumerate() {
            if charges {
                let units = amounts.map_or(cost, |amounts| amounts[index].units);
                if units > 0 {
                    rule.charge(state, now, units, hold);
                }
            } else if !blocked {
                changed |= rule.start(state, now);
            }
        }
        if !blocked && !spared && plan.policy.options().block_for.is_some() {
            let level = self.block_level().next(self.blocked_until(), now, plan);
            self.block(now + level.length(plan), level);
            changed = true;
        }
        changed
    }

    /// Lets each limit note facts that are known only at the first look at it. Returns true if there were any.
    fn adopt(&mut self, plan: &Plan, now: u64) -> bool {
        plan.rules.iter().zip(&mut self.states).fold(false, |adopted, (rule, state)| rule.adopt(state, now) || adopted)
    }

    /// Every operation that is neither a check nor a peek.
    fn modify(&mut self, operation: &Operation, entry: &Entry<'_>, now: u64) -> bool {
        let rules = entry.plan.rules.iter().zip(&mut self.states);
        match *operation {
            Operation::Charge { .. } => {
                self.charge(entry, now);
                self.record_attempt(entry, now, true);
            }
            Operation::Surcharge { .. } => {
                let rates = entry.plan.rules.iter().any(|rule| !rule.holds());
                let charged = rules.enumerate().filter(|(_, (rule, _))| !(rates && rule.holds()));
                for (index, (rule, state)) in charged {
                    let units = operation.amount(index).units;
                    if units > 0 {
                        rule.charge(state, now, units, 0);
                    }
                }
            }
            Operation::Refund { .. } => {
                let refund = |rule: &Rule, state: &mut State, index, _: &Traces| {
                    rule.refund(state, now, operation.amount(index).units)
                };
                self.refund(entry.plan, now, None, refund);
            }
            // The end of a block by hand counts as that of the last block.
            Operation::Block { micros: 0 } => {
                let until = self.blocked_until().min(now);
                self.block(until, self.block_level());
                self.end_block(entry.plan, now);
            }
            Operation::Block { micros } => self.block_by_hand(entry.plan, now, micros),
            Operation::Observe(ref said) => self.observe(entry.plan, said, now),
            Operation::Renew { hold } => {
                return rules.fold(false, |found, (rule, state)| rule.renew(state, now, hold) || found);
            }
            Operation::Close { hold } => {
                return rules.fold(false, |found, (rule, state)| rule.close(state, now, hold) || found);
            }
            Operation::Override(ref change) => return self.change_override(change, now),
            Operation::Leave { waiter } => return self.leave_line(waiter),
            Operation::NoteDenial { .. } => self.record_attempt(entry, now, false),
            Operation::Clear => {
                let ends = rules.map(|(rule, state)| rule.clear_matters_until(state, now)).max().unwrap_or(0);
                let mut traces = self.traces(now);
                traces.clear(now, ends);
                let own = self.rare.as_mut().and_then(|rare| rare.annex.stored_override.take());
                self.clear_states(&entry.plan.rules);
                if traces != Traces::default() || own.is_some() {
                    self.change_annex(|annex| (annex.traces, annex.stored_override) = (traces, own));
                }
                self.denies_until = 0;
            }
            Operation::GiveBack { units, ref charge } => {
                let generation = self.annex().map_or(0, |annex| annex.generation);
                let forgotten = charge.generation != 0 && charge.generation != generation;
                let mut limits = entry.plan.rules.iter().zip(&self.states).zip(&charge.limits);
                let is_overtaken = charge.is_last
                    && limits.any(|((rule, state), empty_at)| empty_at.is_some_and(|at| rule.ends(state) != at));
                if forgotten || is_overtaken || charge.was_cleared(&self.traces(now)) {
                    return false;
                }
                let last_turn = self.last_turn(now).filter(|_| charge.is_last);
                let used_at = last_turn.unwrap_or(charge.at + charge.life);
                self.refund(entry.plan, now, Some(used_at), |rule, state, index, traces| {
                    charge.of_limit(index, units, traces).map_or(0, |charge| rule.give_back(state, now, &charge))
                });
            }
            Operation::Journal
            | Operation::NoteOverride(_)
            | Operation::ListOverrides
            | Operation::Check { .. }
            | Operation::Acquire { .. }
            | Operation::Turn { .. }
            | Operation::Take { .. }
            | Operation::Peek { .. }
            | Operation::Lease(_) => {}
        }
        true
    }

    /// Gives units back, with the traces that other charges need. `used_at` is when a Decision was to use its units. While
    /// turns are to come, buckets take back only units of the last one: callers behind the others were promised their moments.
    fn refund(
        &mut self,
        plan: &Plan,
        now: u64,
        used_at: Option<u64>,
        refund: impl Fn(&Rule, &mut State, usize, &Traces) -> u64,
    ) {
        let (ends, mut traces) = (self.charges_end(plan), self.traces(now));
        let by_decision = used_at.is_some();
        let has_turns = self.last_turn(now).is_some_and(|last| used_at != Some(last));
        let mut counted = 0;
        for (index, (rule, state)) in plan.rules.iter().zip(&mut self.states).enumerate() {
            let stays = has_turns && rule.meter().is_some();
            let units = if stays { 0 } else { refund(rule, state, index, &traces) };
            counted = if rule.counts_refunds(by_decision) { units.max(counted) } else { counted };
        }
        if counted > 0 {
            traces.refund(now, ends, counted, by_decision);
        }
        if self.rare.is_some() || traces != Traces::default() {
            self.change_annex(|annex| annex.traces = traces);
        }
    }

    pub(in crate::store) fn answer(&self, entry: &Entry<'_>, now: u64, applied: bool, charged: Option<u64>) -> Answer {
        let (cost, granted) = (entry.operation.cost(), charged.unwrap_or(0));
        let limits = entry.plan.rules.iter().zip(&self.states);
        let learned = self.rare.as_ref().and_then(|_| self.learned(now));
        let mut views: Views = match (entry.operation.amounts(), learned) {
            (_, Some(learned)) => {
                let view = |(index, (rule, state)): (usize, (&Rule, &State))| {
                    let own = entry.operation.amount(index);
                    let amount = own.beside(learned, index, rule, now);
                    let view = amount.view(rule, state, now, entry.operation.charged(amount, charged));
                    own.view_beside(learned, view, (index, rule), rule.used(state, now), now)
                };
                limits.enumerate().map(view).collect()
            }
            (None, None) => limits.map(|(rule, state)| rule.view(state, now, cost, granted)).collect(),
            (Some(amounts), None) => {
                let view = |((rule, state), amount): (_, &Amount)| {
                    amount.view(rule, state, now, entry.operation.charged(*amount, charged))
                };
                limits.zip(amounts).map(view).collect()
            }
        };
        let (blocked_until, mut rare) = (self.blocked_until(), self.rare_answer(now));
        if let Some(learned) = learned {
            let capacity = |index: usize| entry.plan.rules[index].capacity();
            let seen = learned.constrain(&mut views, now, capacity, |index| entry.operation.amount(index).units);
            rare.get_or_insert_default().learned = Some(seen);
        }
        Answer { applied, granted, now, blocked_until, views, rare, ..Answer::default() }
    }
}
