//! A second opinion: what a limiter should say, worked out the slow and obvious way from everything that was ever
//! charged. It shares no code with the rules; only policies are read by the real parser.

mod calendar;
mod ledger;

use std::collections::BTreeMap;

use tidegate::{Algorithm, Policy};

use crate::decision_values::{DecisionValues, LimitValues};
use ledger::Ledger;

/// An attempt that a journal remembers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JournalEntry {
    /// When, in microseconds since 1970.
    pub at: u64,
    /// Whether it was charged as admitted.
    pub allowed: bool,
    /// The units it asked for.
    pub cost: u64,
    /// What the caller said of it.
    pub meta: Option<Vec<u8>>,
}

/// A policy and key.
#[derive(Clone, Debug, Default)]
struct Usage {
    ledgers: Vec<Ledger>,
    blocked_until: u64,
}

/// A hold that is renewed as time passes.
#[derive(Debug)]
struct Kept {
    place: (String, String),
    id: u64,
    ttl: u64,
    /// In nanoseconds: a third of a ttl.
    due: u128,
}

/// A limiter with a clock that is moved by hand.
#[derive(Debug, Default)]
pub struct Model {
    now: u64,
    usages: BTreeMap<(String, String), Usage>,
    journals: BTreeMap<(String, String), Vec<JournalEntry>>,
    kept: Vec<Kept>,
    holds: u64,
}

impl Usage {
    /// As another version of the policy reads it.
    fn read_by(&self, policy: &Policy, now: u64) -> Self {
        let mut old: Vec<Ledger> = self.ledgers.clone();
        let ledgers = policy.limits().iter().map(|limit| {
            let same = old.iter().position(|ledger| ledger.is_same(limit));
            same.map_or_else(
                || Ledger::new(limit),
                |index| {
                    let mut ledger = old.remove(index);
                    ledger.change(limit, now);
                    ledger
                },
            )
        });
        Self { ledgers: ledgers.collect(), blocked_until: self.blocked_until }
    }

    /// The buckets that begin when they are seen now, by number: those that do not begin full and were never seen, or
    /// all of them when for as long as the slowest takes to fill nothing of the policy and key has meant anything.
    fn unseen(&self, now: u64) -> Vec<usize> {
        let idle = self.ledgers.iter().map(Ledger::counts_until).fold(self.blocked_until, u64::max);
        let fills: Vec<Option<u64>> = self.ledgers.iter().map(Ledger::fills).collect();
        let forgotten = idle + fills.iter().flatten().max().unwrap_or(&0) <= now;
        let begins = |index: &usize| fills[*index].is_some() && (forgotten || self.ledgers[*index].is_blank());
        (0..self.ledgers.len()).filter(begins).collect()
    }

    /// With those buckets begun.
    fn see(&mut self, now: u64) {
        for index in self.unseen(now) {
            self.ledgers[index].begin(now);
        }
    }

    fn seen(&self, now: u64) -> Self {
        let mut seen = self.clone();
        seen.see(now);
        seen
    }

    fn has_ended(&self, now: u64) -> bool {
        let buckets = self
            .ledgers
            .iter()
            .filter(|ledger| ledger.limit.initial().is_some_and(|initial| initial < ledger.capacity()));
        self.blocked_until <= now
            && self.ledgers.iter().all(|ledger| ledger.counts_until() <= now)
            && buckets.count() == self.unseen(now).len()
    }

    fn admits(&self, now: u64, cost: u64) -> bool {
        self.blocked_until <= now && self.seen(now).ledgers.iter().all(|ledger| ledger.admits(now, cost))
    }

    /// The limits that refuse a cost.
    fn refusing(&self, now: u64, cost: u64) -> Vec<bool> {
        self.seen(now).ledgers.iter().map(|ledger| !ledger.admits(now, cost)).collect()
    }

    fn charge(&mut self, now: u64, cost: u64, hold: u64) {
        self.see(now);
        self.ledgers.iter_mut().for_each(|ledger| ledger.charge(now, cost, hold));
    }

    fn refund(&mut self, now: u64, cost: u64) {
        let unseen = self.unseen(now);
        for (index, ledger) in self.ledgers.iter_mut().enumerate() {
            // Nothing was charged to a bucket that was never seen.
            if !unseen.contains(&index) {
                ledger.refund(now, cost);
            }
        }
    }

    /// What a denial leaves behind.
    fn deny(&mut self, policy: &Policy, now: u64, cost: u64, hold: u64) {
        let options = policy.options();
        let blocked = self.blocked_until > now;
        if options.count_denied {
            self.charge(now, cost, hold);
        } else if !blocked {
            self.see(now);
        }
        if let (false, Some(period)) = (blocked, options.block_for) {
            self.blocked_until = now + period.micros();
        }
    }

    /// What a call of `cost` says: `refusing` are the limits that refused it when it was asked, the rest is told as it
    /// is now.
    fn said(
        &self,
        policy: &Policy,
        now: u64,
        cost: u64,
        admitted: bool,
        charged: u64,
        refusing: &[bool],
    ) -> DecisionValues {
        let shadow = policy.options().shadow && !admitted;
        let views: Vec<(Ledger, Option<u64>)> = self
            .seen(now)
            .ledgers
            .into_iter()
            .map(|ledger| {
                let admits_at = ledger.admits_at(now, cost);
                (ledger, admits_at)
            })
            .collect();
        let limits: Vec<LimitValues> = views
            .iter()
            .zip(refusing)
            .map(|((ledger, admits_at), refused)| LimitValues {
                algorithm: ledger.limit.algorithm().name().to_owned(),
                limit: ledger.capacity(),
                period: ledger.limit.period().micros(),
                remaining: ledger.remaining(now),
                retry_after: if admitted { Some(0) } else { admits_at.map(|at| at - now) },
                reset_after: ledger.resets_at(now) - now,
                exceeded: !admitted && *refused,
            })
            .collect();
        let blocked = self.blocked_until.saturating_sub(now);
        let mut waits = limits.iter().map(|limit| limit.retry_after);
        let wait = waits.try_fold(blocked, |longest, wait| wait.map(|wait| longest.max(wait)));
        let binding = binding(&limits);
        let delay = views.iter().map(|(ledger, _)| ledger.delay(now, charged)).max();
        DecisionValues {
            allowed: admitted || shadow,
            shadow,
            limit: binding.limit,
            remaining: if blocked > 0 { 0 } else { binding.remaining },
            retry_after: if admitted || shadow { Some(0) } else { wait },
            reset_after: binding.reset_after,
            delay: if admitted { delay.unwrap_or(0) } else { 0 },
            limits,
            decisions: Vec::new(),
        }
    }
}

/// The limit that refused and takes longest, else the one with least left in proportion; the first of equals.
fn binding(limits: &[LimitValues]) -> &LimitValues {
    let mut best = &limits[0];
    for limit in &limits[1..] {
        let better = match (limit.exceeded, best.exceeded) {
            (true, true) => match (limit.retry_after, best.retry_after) {
                (_, None) => false,
                (None, Some(_)) => true,
                (Some(wait), Some(longest)) => wait > longest,
            },
            (exceeded, false) if exceeded => true,
            (false, true) => false,
            _ => is_tighter((limit.remaining, limit.limit), (best.remaining, best.limit)),
        };
        if better {
            best = limit;
        }
    }
    best
}

/// Whether less is left of the first than of the second, in proportion.
fn is_tighter((left, limit): (u64, u64), (other_left, other_limit): (u64, u64)) -> bool {
    u128::from(left) * u128::from(other_limit.max(1)) < u128::from(other_left) * u128::from(limit.max(1))
}

impl Model {
    /// A limiter whose clock stands at that many microseconds since 1970.
    #[must_use]
    pub fn new(now: u64) -> Self {
        Self { now, ..Self::default() }
    }

    /// The time.
    #[must_use]
    pub const fn now(&self) -> u64 {
        self.now
    }

    /// Moves the clock, also back, and renews the holds that are due.
    pub fn set(&mut self, now: u64) {
        self.now = now;
        for kept in self.kept.iter_mut().filter(|kept| kept.due <= u128::from(now) * 1_000) {
            kept.due = u128::from(now) * 1_000 + u128::from(kept.ttl) * 1_000 / 3;
            if let Some(usage) = self.usages.get_mut(&kept.place) {
                usage.ledgers.iter_mut().for_each(|ledger| ledger.renew(now, kept.id));
            }
        }
    }

    fn place(policy: &Policy, key: &str) -> (String, String) {
        (policy.name().to_owned(), key.to_owned())
    }

    fn usage(&self, policy: &Policy, key: &str) -> Usage {
        let mut usage =
            self.usages.get(&Self::place(policy, key)).cloned().unwrap_or_default().read_by(policy, self.now);
        // A bucket that is over is forgotten, whatever happens to the key from then on.
        for index in usage.unseen(self.now) {
            usage.ledgers[index] = Ledger::new(&policy.limits()[index]);
        }
        usage
    }

    /// Keeps a usage, unless nothing of it means anything any more.
    fn keep(&mut self, policy: &Policy, key: &str, usage: Usage) {
        if usage.has_ended(self.now) {
            self.usages.remove(&Self::place(policy, key));
        } else {
            self.usages.insert(Self::place(policy, key), usage);
        }
    }

    /// A denial that leaves nothing behind leaves the state in the words of the policy that wrote it.
    fn keep_if_changed(&mut self, policy: &Policy, key: &str, usage: Usage, before: &Usage) {
        if format!("{usage:?}") != format!("{before:?}") {
            self.keep(policy, key, usage);
        }
    }

    fn note(&mut self, policy: &Policy, key: &str, allowed: bool, cost: u64, meta: Option<&[u8]>) {
        let most = policy.options().journal as usize;
        if most > 0 {
            let journal = self.journals.entry(Self::place(policy, key)).or_default();
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

    /// Asks and consumes.
    pub fn check(&mut self, policy: &Policy, key: &str, cost: u64, meta: Option<&[u8]>) -> DecisionValues {
        self.checked(policy, key, cost, meta, 0).0
    }

    fn checked(
        &mut self,
        policy: &Policy,
        key: &str,
        cost: u64,
        meta: Option<&[u8]>,
        hold: u64,
    ) -> (DecisionValues, bool) {
        let mut usage = self.usage(policy, key);
        let admitted = usage.admits(self.now, cost);
        let refusing = usage.refusing(self.now, cost);
        let before = usage.clone();
        if admitted {
            usage.charge(self.now, cost, hold);
            usage.blocked_until = 0;
        } else {
            usage.deny(policy, self.now, cost, hold);
        }
        let said = usage.said(policy, self.now, cost, admitted, if admitted { cost } else { 0 }, &refusing);
        if admitted {
            self.keep(policy, key, usage);
        } else {
            self.keep_if_changed(policy, key, usage, &before);
        }
        self.note(policy, key, admitted, cost, meta);
        (said, admitted)
    }

    /// Asks.
    #[must_use]
    pub fn peek(&self, policy: &Policy, key: &str, cost: u64) -> DecisionValues {
        let usage = self.usage(policy, key);
        usage.said(policy, self.now, cost, usage.admits(self.now, cost), 0, &usage.refusing(self.now, cost))
    }

    /// Consumes, admitted or not.
    pub fn charge(&mut self, policy: &Policy, key: &str, cost: u64) {
        let mut usage = self.usage(policy, key);
        usage.charge(self.now, cost, 0);
        self.keep(policy, key, usage);
    }

    /// Gives back.
    pub fn refund(&mut self, policy: &Policy, key: &str, cost: u64) {
        let mut usage = self.usage(policy, key);
        usage.refund(self.now, cost);
        self.keep(policy, key, usage);
    }

    /// Charges or gives back the difference.
    pub fn settle(&mut self, policy: &Policy, key: &str, charged: u64, actual: u64) {
        if actual > charged {
            self.charge(policy, key, actual - charged);
        } else if actual < charged {
            self.refund(policy, key, charged - actual);
        }
    }

    /// Denies for that many microseconds; 0 ends a block.
    pub fn block(&mut self, policy: &Policy, key: &str, length: u64) {
        let mut usage = self.usage(policy, key);
        usage.blocked_until = if length == 0 { 0 } else { self.now + length };
        self.keep(policy, key, usage);
    }

    /// Forgets the usage and the block.
    pub fn clear(&mut self, policy: &Policy, key: &str) {
        self.usages.remove(&Self::place(policy, key));
    }

    /// The newest attempts, newest first.
    #[must_use]
    pub fn journal(&self, policy: &Policy, key: &str) -> Vec<JournalEntry> {
        let lengths = policy.limits().iter().map(|limit| limit.period().micros());
        let life = lengths.chain(policy.options().block_for.map(|period| period.micros())).max().unwrap_or(0);
        let journal = self.journals.get(&Self::place(policy, key)).filter(|_| policy.options().journal > 0);
        journal.into_iter().flatten().filter(|noted| noted.at + life > self.now).cloned().collect()
    }

    /// Takes units of a `concurrency` limit: what it says, and the hold when it was let in.
    pub fn hold(&mut self, policy: &Policy, key: &str, cost: u64) -> (DecisionValues, Option<u64>) {
        self.holds += 1;
        let id = self.holds;
        let (said, _) = self.checked(policy, key, cost, None, id);
        let ttl =
            |limit: &tidegate::Limit| (limit.algorithm() == Algorithm::Concurrency).then(|| limit.period().micros());
        if !said.allowed {
            return (said, None);
        }
        if let Some(ttl) = policy.limits().iter().filter_map(ttl).min() {
            let due = u128::from(self.now) * 1_000 + u128::from(ttl) * 1_000 / 3;
            self.kept.push(Kept { place: Self::place(policy, key), id, ttl, due });
        }
        (said, Some(id))
    }

    /// Gives a hold back.
    pub fn release(&mut self, policy: &Policy, key: &str, hold: u64) {
        self.kept.retain(|kept| kept.id != hold);
        if let Some(usage) = self.usages.get_mut(&Self::place(policy, key)) {
            usage.ledgers.iter_mut().for_each(|ledger| ledger.release(hold));
        }
    }

    /// Checks several, all or nothing.
    pub fn check_all(&mut self, entries: &[(&Policy, &str, u64)]) -> DecisionValues {
        let before = self.usages.clone();
        let now = self.now;
        let (mut admitted, mut refusing) = (Vec::new(), Vec::new());
        for (policy, key, cost) in entries {
            let mut usage = self.usage(policy, key);
            admitted.push(usage.admits(now, *cost));
            refusing.push(usage.refusing(now, *cost));
            if admitted[admitted.len() - 1] {
                usage.charge(now, *cost, 0);
                usage.blocked_until = 0;
                self.keep(policy, key, usage);
            }
        }
        let stands = entries.iter().zip(&admitted).all(|((policy, ..), admitted)| *admitted || policy.options().shadow);
        if !stands {
            self.usages = before;
        }
        for ((policy, key, cost), admitted) in entries.iter().zip(&admitted) {
            if !admitted {
                let mut usage = self.usage(policy, key);
                let before = usage.clone();
                usage.deny(policy, now, *cost, 0);
                self.keep_if_changed(policy, key, usage, &before);
            }
            self.note(policy, key, *admitted && stands, *cost, None);
        }
        let decisions: Vec<DecisionValues> = entries
            .iter()
            .zip(admitted.iter().zip(&refusing))
            .map(|((policy, key, cost), (admitted, refusing))| {
                let charged = if *admitted && stands { *cost } else { 0 };
                self.usage(policy, key).said(policy, now, *cost, *admitted, charged, refusing)
            })
            .collect();
        let mut chosen = &decisions[0];
        if let Some(first) = decisions.iter().find(|said| !said.allowed) {
            chosen = first;
        } else {
            for said in &decisions[1..] {
                if is_tighter((said.remaining, said.limit), (chosen.remaining, chosen.limit)) {
                    chosen = said;
                }
            }
        }
        DecisionValues { decisions: decisions.clone(), ..chosen.clone() }
    }
}
