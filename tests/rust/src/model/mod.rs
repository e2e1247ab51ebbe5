//! A model of a limiter: it computes every answer in the slow and obvious way, from everything that was ever charged.
//! It shares no code with the rules. Only the policies come from the real parser.

mod bucket_level;
mod calendar;
mod ledger;
mod usage;

use std::collections::BTreeMap;

use tidegate::{Algorithm, Policy};

use crate::decision_values::DecisionValues;
pub use calendar::window;
use ledger::{ChargedLimit, Ledger};
use usage::{FreePart, Usage, is_tighter};

/// An attempt in a journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JournalEntry {
    /// The time, in microseconds since 1970.
    pub at: u64,
    /// True if it was admitted and charged.
    pub allowed: bool,
    /// The units it asked for.
    pub cost: u64,
    /// The caller's metadata.
    pub meta: Option<Vec<u8>>,
}

/// A hold, which the model renews as time passes.
#[derive(Clone, Debug)]
struct RenewedHold {
    usage_key: (String, String),
    id: u64,
    ttl: u64,
    /// When it is renewed next, in nanoseconds: after a third of its ttl.
    due: u128,
}

/// The part of a check that a settle needs.
#[derive(Clone, Debug, Default)]
pub struct Receipt {
    limits: Vec<ChargedLimit>,
    /// The number of refunds and of clears of the key up to the check.
    refunds: usize,
    clears: usize,
}

/// Units that went back to a key.
#[derive(Clone, Debug)]
struct Refund {
    by_decision: bool,
    units: u64,
}

/// A limiter with a clock that the test moves.
#[derive(Clone, Debug, Default)]
pub struct Model {
    now: u64,
    /// All refunds of a key, and the number of its clears.
    refunds: BTreeMap<(String, String), Vec<Refund>>,
    clears: BTreeMap<(String, String), usize>,
    receipt: Receipt,
    usages: BTreeMap<(String, String), Usage>,
    journals: BTreeMap<(String, String), Vec<JournalEntry>>,
    renewed: Vec<RenewedHold>,
    holds: u64,
    /// The class of the calls from here on.
    class: Option<String>,
    /// The policies of keys with an override.
    own: BTreeMap<(String, String), Policy>,
}

impl Model {
    /// A limiter with a clock that shows `now`, in microseconds since 1970.
    #[must_use]
    pub fn new(now: u64) -> Self {
        Self { now, ..Self::default() }
    }

    /// The time.
    #[must_use]
    pub const fn now(&self) -> u64 {
        self.now
    }

    /// Sets the clock, forward or back, and renews the holds that are due.
    pub fn set(&mut self, now: u64) {
        self.now = now;
        for hold in self.renewed.iter_mut().filter(|hold| hold.due <= u128::from(now) * 1_000) {
            hold.due = u128::from(now) * 1_000 + u128::from(hold.ttl) * 1_000 / 3;
            if let Some(usage) = self.usages.get_mut(&hold.usage_key) {
                usage.ledgers.iter_mut().for_each(|ledger| ledger.renew(now, hold.id));
            }
        }
    }

    fn usage_key(policy: &Policy, key: &str) -> (String, String) {
        (policy.name().to_owned(), key.to_owned())
    }

    fn usage(&self, policy: &Policy, key: &str) -> Usage {
        let mut usage =
            self.usages.get(&Self::usage_key(policy, key)).cloned().unwrap_or_default().read_by(policy, self.now);
        // A bucket starts again if its key has expired, even if the key is used from then on.
        for index in usage.unstarted(self.now) {
            usage.ledgers[index] = Ledger::new(&policy.limits()[index]);
        }
        usage
    }

    /// Keeps a usage, unless nothing in it counts any more.
    fn keep(&mut self, policy: &Policy, key: &str, usage: Usage) {
        if usage.has_ended(policy, self.now) {
            self.usages.remove(&Self::usage_key(policy, key));
        } else {
            self.usages.insert(Self::usage_key(policy, key), usage);
        }
    }

    /// Gives a key the numbers of that policy from now on.
    pub fn adopt(&mut self, policy: &Policy, key: &str) {
        if self.usages.contains_key(&Self::usage_key(policy, key)) {
            self.keep(policy, key, self.usage(policy, key));
        }
    }

    /// The policy with the numbers of a key, if the key has an override.
    #[must_use]
    pub fn own(&self, policy: &str, key: &str) -> Option<&Policy> {
        self.own.get(&(policy.to_owned(), key.to_owned()))
    }

    /// Gives a key the numbers of `own` from now on, or those of its policy again if it is `None`.
    pub fn set_own(&mut self, policy: &Policy, key: &str, own: Option<Policy>) {
        self.adopt(own.as_ref().unwrap_or(policy), key);
        let of_key = Self::usage_key(policy, key);
        match own {
            Some(own) => drop(self.own.insert(of_key, own)),
            None => drop(self.own.remove(&of_key)),
        }
    }

    /// A denial that changes nothing leaves the state as the older version of the policy wrote it.
    fn keep_if_changed(&mut self, policy: &Policy, key: &str, usage: Usage, before: &Usage) {
        if format!("{usage:?}") != format!("{before:?}") {
            self.keep(policy, key, usage);
        }
    }

    fn record(&mut self, policy: &Policy, key: &str, allowed: bool, cost: u64, meta: Option<&[u8]>) {
        let most = policy.options().journal as usize;
        if most > 0 {
            let journal = self.journals.entry(Self::usage_key(policy, key)).or_default();
            journal.insert(
                0,
                JournalEntry {
                    at: self.now,
                    allowed,
                    cost,
                    meta: meta.filter(|meta| !meta.is_empty()).map(<[u8]>::to_vec),
                },
            );
            journal.truncate(most);
        }
    }

    /// Sets the class of the calls from here on.
    pub fn of_class(&mut self, class: Option<&str>) {
        self.class = class.map(str::to_owned);
    }

    /// The part of a policy's limits that calls of that class leave free.
    fn free(policy: &Policy, class: Option<&str>) -> FreePart {
        let parts = policy.options().priorities.iter().flat_map(|classes| classes.iter());
        let part = parts.filter(|(name, _)| Some(*name) == class).map(|(_, part)| part).next();
        FreePart::of(part.as_deref().unwrap_or("0%"))
    }

    /// Checks and charges.
    pub fn check(&mut self, policy: &Policy, key: &str, cost: u64, meta: Option<&[u8]>) -> DecisionValues {
        self.checked(policy, key, cost, meta, 0).0
    }

    /// Charges as many units as are left, at most `cost`. If none are left, it is like a check of one unit.
    pub fn take(&mut self, policy: &Policy, key: &str, cost: u64, meta: Option<&[u8]>) -> DecisionValues {
        let free = Self::free(policy, self.class.as_deref());
        let mut usage = self.usage(policy, key);
        let granted = usage.left(self.now, free).min(cost);
        let refusing = usage.refusing(self.now, 1, free);
        let before = usage.clone();
        if granted > 0 {
            usage.charge(self.now, granted, 0);
            usage.end_block(policy, self.now);
        } else if !usage.admits(self.now, 1, FreePart::NOTHING) {
            usage.deny(policy, self.now, cost, 0);
        }
        let answer = usage.answer(policy, self.now, (1, free), granted > 0, granted, &refusing);
        if granted > 0 {
            self.keep_receipt(policy, key, &usage, granted);
            self.keep(policy, key, usage);
        } else {
            self.keep_if_changed(policy, key, usage, &before);
        }
        self.record(policy, key, granted > 0, cost, meta);
        answer
    }

    fn checked(
        &mut self,
        policy: &Policy,
        key: &str,
        cost: u64,
        meta: Option<&[u8]>,
        hold: u64,
    ) -> (DecisionValues, bool) {
        let free = Self::free(policy, self.class.as_deref());
        let mut usage = self.usage(policy, key);
        let admitted = usage.admits(self.now, cost, free);
        let refusing = usage.refusing(self.now, cost, free);
        let before = usage.clone();
        if admitted {
            usage.charge(self.now, cost, hold);
            usage.end_block(policy, self.now);
        } else if !usage.admits(self.now, cost, FreePart::NOTHING) {
            // Units that only have to stay free are no reason for a block or a charge.
            usage.deny(policy, self.now, cost, hold);
        }
        let answer = usage.answer(policy, self.now, (cost, free), admitted, if admitted { cost } else { 0 }, &refusing);
        if admitted {
            self.keep_receipt(policy, key, &usage, cost);
            self.keep(policy, key, usage);
        } else {
            self.keep_if_changed(policy, key, usage, &before);
        }
        self.record(policy, key, admitted, cost, meta);
        (answer, admitted)
    }

    /// Checks without charging.
    #[must_use]
    pub fn peek(&self, policy: &Policy, key: &str, cost: u64) -> DecisionValues {
        let (usage, free) = (self.usage(policy, key), Self::free(policy, self.class.as_deref()));
        let refusing = usage.refusing(self.now, cost, free);
        usage.answer(policy, self.now, (cost, free), usage.admits(self.now, cost, free), 0, &refusing)
    }

    /// Charges, even if the limits do not admit it.
    pub fn charge(&mut self, policy: &Policy, key: &str, cost: u64) {
        let mut usage = self.usage(policy, key);
        usage.charge(self.now, cost, 0);
        self.keep(policy, key, usage);
        self.record(policy, key, true, cost, None);
    }

    /// Gives back, the oldest units first.
    pub fn refund(&mut self, policy: &Policy, key: &str, cost: u64) {
        let now = self.now;
        self.give_back(policy, key, false, |ledger| ledger.refund(now, cost));
    }

    fn give_back(&mut self, policy: &Policy, key: &str, by_decision: bool, back: impl Fn(&mut Ledger) -> u64) {
        let mut usage = self.usage(policy, key);
        let refund = Refund { by_decision, units: usage.give_back(self.now, by_decision, back) };
        self.refunds.entry(Self::usage_key(policy, key)).or_default().push(refund);
        self.keep(policy, key, usage);
    }

    /// True if a store that became this by a call has the same values as before it: nothing was written.
    pub(crate) fn stores_the_same(&self, before: &Self) -> bool {
        let values = |model: &Self| format!("{:?} {:?} {:?}", model.usages, model.journals, model.own);
        let gave_back = |model: &Self| model.refunds.values().flatten().map(|refund| refund.units).sum::<u64>();
        let was_refund = self.refunds.values().flatten().count() > before.refunds.values().flatten().count();
        if was_refund { gave_back(self) == gave_back(before) } else { values(self) == values(before) }
    }

    /// The receipt of the last check that was admitted.
    #[must_use]
    pub fn receipt(&self) -> Receipt {
        self.receipt.clone()
    }

    fn keep_receipt(&mut self, policy: &Policy, key: &str, usage: &Usage, units: u64) {
        let usage_key = Self::usage_key(policy, key);
        let refunds = self.refunds.get(&usage_key).map_or(0, Vec::len);
        let clears = self.clears.get(&usage_key).copied().unwrap_or(0);
        self.receipt = Receipt { limits: usage.charged(self.now, units), refunds, clears };
    }

    /// Charges the difference between the actual and the charged cost, or gives back units of it that still count.
    pub fn settle(&mut self, policy: &Policy, key: &str, charged: u64, actual: u64, receipt: &Receipt) {
        let (now, usage_key) = (self.now, Self::usage_key(policy, key));
        if actual > charged {
            let mut usage = self.usage(policy, key);
            usage.surcharge(now, actual - charged);
            self.keep(policy, key, usage);
        } else if actual < charged {
            if self.clears.get(&usage_key).copied().unwrap_or(0) > receipt.clears {
                return;
            }
            let since = self.refunds.get(&usage_key).into_iter().flatten().skip(receipt.refunds);
            let since: Vec<Refund> = since.cloned().collect();
            let refunded = since.iter().map(|refund| refund.units).sum();
            let taken = if since.iter().all(|refund| refund.by_decision) { 0 } else { refunded };
            self.give_back(policy, key, true, |ledger| {
                let Some(charged_limit) = receipt.limits.iter().find(|charged| ledger.is_same(&charged.limit)) else {
                    return 0;
                };
                let (count, was) = (ledger.limit.count().max(1), charged_limit.limit.count().max(1));
                let known = ChargedLimit {
                    empty_at: if count == was { charged_limit.empty_at } else { 0 },
                    ..charged_limit.clone()
                };
                // A bucket that drains slower now may have drained more than is known.
                if ledger.counts_refunds(true) && count < was {
                    return 0;
                }
                ledger.give_back(now, charged - actual, &known, refunded, taken)
            });
        }
    }

    /// Blocks the key for `length` microseconds. A length of 0 ends a block.
    pub fn block(&mut self, policy: &Policy, key: &str, length: u64) {
        let mut usage = self.usage(policy, key);
        usage.block(policy, self.now, length);
        self.keep(policy, key, usage);
    }

    /// Removes the usage and the block.
    pub fn clear(&mut self, policy: &Policy, key: &str) {
        *self.clears.entry(Self::usage_key(policy, key)).or_default() += 1;
        self.usages.remove(&Self::usage_key(policy, key));
    }

    /// The newest attempts, newest first.
    #[must_use]
    pub fn journal(&self, policy: &Policy, key: &str) -> Vec<JournalEntry> {
        let lengths = policy.limits().iter().map(|limit| limit.period().micros());
        let life = lengths
            .chain(policy.options().block_for.iter().flat_map(|blocks| blocks.lengths()).map(|period| period.micros()))
            .max()
            .unwrap_or(0);
        let journal = self.journals.get(&Self::usage_key(policy, key)).filter(|_| policy.options().journal > 0);
        journal.into_iter().flatten().filter(|entry| entry.at + life > self.now).cloned().collect()
    }

    /// Takes units of a `concurrency` limit. Returns the answer, and the number of the hold if it was admitted.
    pub fn hold(&mut self, policy: &Policy, key: &str, cost: u64) -> (DecisionValues, Option<u64>) {
        self.holds += 1;
        let id = self.holds;
        let (answer, _) = self.checked(policy, key, cost, None, id);
        let ttl =
            |limit: &tidegate::Limit| (limit.algorithm() == Algorithm::Concurrency).then(|| limit.period().micros());
        if !answer.allowed {
            return (answer, None);
        }
        if let Some(ttl) = policy.limits().iter().filter_map(ttl).min() {
            let due = u128::from(self.now) * 1_000 + u128::from(ttl) * 1_000 / 3;
            self.renewed.push(RenewedHold { usage_key: Self::usage_key(policy, key), id, ttl, due });
        }
        (answer, Some(id))
    }

    /// Gives a hold back.
    pub fn release(&mut self, policy: &Policy, key: &str, hold: u64) {
        self.renewed.retain(|renewed| renewed.id != hold);
        if let Some(usage) = self.usages.get_mut(&Self::usage_key(policy, key)) {
            usage.ledgers.iter_mut().for_each(|ledger| ledger.release(hold));
        }
    }

    /// Checks several keys, all or nothing.
    pub fn check_all(&mut self, entries: &[(&Policy, &str, u64)]) -> DecisionValues {
        let entries: Vec<_> = entries.iter().map(|(policy, key, cost)| (*policy, *key, *cost, None)).collect();
        self.check_all_of(&entries)
    }

    /// Checks several keys, each with its class, all or nothing.
    pub fn check_all_of(&mut self, entries: &[(&Policy, &str, u64, Option<&str>)]) -> DecisionValues {
        let before = self.usages.clone();
        let now = self.now;
        let (mut admitted, mut denied_by_limits, mut refusing) = (Vec::new(), Vec::new(), Vec::new());
        for (policy, key, cost, class) in entries {
            let (mut usage, free) = (self.usage(policy, key), Self::free(policy, *class));
            admitted.push(usage.admits(now, *cost, free));
            denied_by_limits.push(!usage.admits(now, *cost, FreePart::NOTHING));
            refusing.push(usage.refusing(now, *cost, free));
            if admitted[admitted.len() - 1] {
                usage.charge(now, *cost, 0);
                usage.end_block(policy, now);
                self.keep(policy, key, usage);
            }
        }
        let stands = entries.iter().zip(&admitted).all(|((policy, ..), admitted)| *admitted || policy.options().shadow);
        if !stands {
            self.usages = before;
        }
        for ((policy, key, cost, _), (admitted, denied)) in entries.iter().zip(admitted.iter().zip(&denied_by_limits)) {
            if *denied {
                let mut usage = self.usage(policy, key);
                let before = usage.clone();
                usage.deny(policy, now, *cost, 0);
                self.keep_if_changed(policy, key, usage, &before);
            }
            self.record(policy, key, *admitted && stands, *cost, None);
        }
        let decisions: Vec<DecisionValues> = entries
            .iter()
            .zip(admitted.iter().zip(&refusing))
            .map(|((policy, key, cost, class), (admitted, refusing))| {
                let charged = if *admitted && stands { *cost } else { 0 };
                let asked = (*cost, Self::free(policy, *class));
                self.usage(policy, key).answer(policy, now, asked, *admitted, charged, refusing)
            })
            .collect();
        let mut chosen = &decisions[0];
        if let Some(first) = decisions.iter().find(|answer| !answer.allowed) {
            chosen = first;
        } else {
            for answer in &decisions[1..] {
                if is_tighter((answer.remaining, answer.limit), (chosen.remaining, chosen.limit)) {
                    chosen = answer;
                }
            }
        }
        let longest =
            decisions.iter().map(|answer| answer.next_after).try_fold(0, |longest, next| Some(longest.max(next?)));
        let next_after = if chosen.allowed { longest } else { chosen.next_after };
        DecisionValues { decisions: decisions.clone(), next_after, ..chosen.clone() }
    }
}
