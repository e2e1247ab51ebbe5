//! The usage of one policy and key: a ledger for each limit, and a block.

use tidegate::{Options, Policy};

use super::ledger::{ChargedLimit, Ledger};
use crate::decision_values::{DecisionValues, LimitValues};

/// The ledgers and the block of one policy and key.
#[derive(Clone, Debug, Default)]
pub(super) struct Usage {
    pub(super) ledgers: Vec<Ledger>,
    /// The ledgers of limits that only another version of the policy has.
    pub(super) others: Vec<Ledger>,
    pub(super) blocked_until: u64,
    /// How many blocks in a row denials have begun.
    pub(super) level: usize,
    /// True if the last block was made by hand.
    pub(super) by_hand: bool,
}

/// The part of each limit that a call leaves free, in hundredths of a percent.
#[derive(Clone, Copy, Debug)]
pub(super) struct FreePart(u128);

impl FreePart {
    pub(super) const NOTHING: Self = Self(0);

    /// From a text such as `30%` or `33.34%`.
    pub(super) fn of(text: &str) -> Self {
        let percent: f64 = text.trim_end_matches('%').parse().expect("a part in percent");
        Self((percent * 100.0).round() as u128)
    }

    /// The free units of that limit, rounded up.
    fn of_limit(self, ledger: &Ledger) -> u64 {
        (u128::from(ledger.capacity()) * self.0).div_ceil(10_000) as u64
    }
}

impl Usage {
    /// The usage as another version of the policy reads it: each limit takes the first ledger of the same limit.
    pub(super) fn read_by(&self, policy: &Policy, now: u64) -> Self {
        let mut old: Vec<Ledger> = self.ledgers.iter().chain(&self.others).cloned().collect();
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
        let ledgers = ledgers.collect();
        old.retain(|ledger| ledger.counts_until() > now);
        Self { ledgers, others: old, blocked_until: self.blocked_until, level: self.level, by_hand: self.by_hand }
    }

    /// The positions of the buckets with `initial` that the next call starts: those that were never used, or all of them
    /// when the key has expired. It expires when nothing has counted for as long as the slowest such bucket takes to fill.
    pub(super) fn unstarted(&self, now: u64) -> Vec<usize> {
        let idle = self.ledgers.iter().chain(&self.others).map(Ledger::counts_until).fold(self.blocked_until, u64::max);
        let fills: Vec<Option<u64>> = self.ledgers.iter().map(Ledger::fills).collect();
        let forgotten = idle + fills.iter().flatten().max().unwrap_or(&0) <= now;
        let begins = |index: &usize| fills[*index].is_some() && (forgotten || self.ledgers[*index].is_blank());
        (0..self.ledgers.len()).filter(begins).collect()
    }

    /// Starts those buckets.
    fn start(&mut self, now: u64) {
        for index in self.unstarted(now) {
            self.ledgers[index].begin(now);
        }
    }

    fn started(&self, now: u64) -> Self {
        let mut started = self.clone();
        started.start(now);
        started
    }

    pub(super) fn has_ended(&self, policy: &Policy, now: u64) -> bool {
        let buckets = self
            .ledgers
            .iter()
            .filter(|ledger| ledger.limit.initial().is_some_and(|initial| initial < ledger.capacity()));
        self.blocked_until <= now
            && !self.remembers_level(policy, now)
            && self.others.iter().all(|ledger| ledger.counts_until() <= now)
            && self.ledgers.iter().all(|ledger| ledger.counts_until() <= now)
            && buckets.count() == self.unstarted(now).len()
    }

    pub(super) fn admits(&self, now: u64, cost: u64, free: FreePart) -> bool {
        let admits = |ledger: &Ledger| ledger.admits(now, cost + free.of_limit(ledger));
        self.blocked_until <= now && self.started(now).ledgers.iter().all(admits)
    }

    /// The units that every limit admits now.
    pub(super) fn left(&self, now: u64, free: FreePart) -> u64 {
        let left = |ledger: &Ledger| ledger.remaining(now).saturating_sub(free.of_limit(ledger));
        let left = self.started(now).ledgers.iter().map(left).min();
        if self.blocked_until > now { 0 } else { left.unwrap_or(0) }
    }

    /// True for each limit that refuses a cost.
    pub(super) fn refusing(&self, now: u64, cost: u64, free: FreePart) -> Vec<bool> {
        let refuses = |ledger: &Ledger| !ledger.admits(now, cost + free.of_limit(ledger));
        self.started(now).ledgers.iter().map(refuses).collect()
    }

    pub(super) fn charge(&mut self, now: u64, cost: u64, hold: u64) {
        self.start(now);
        self.ledgers.iter_mut().for_each(|ledger| ledger.charge(now, cost, hold));
    }

    /// Charges the cost of work beyond its check. A concurrency limit counts it only if no other limit does.
    pub(super) fn surcharge(&mut self, now: u64, cost: u64) {
        self.start(now);
        let rates = self.ledgers.iter().any(|ledger| !ledger.holds());
        for ledger in self.ledgers.iter_mut().filter(|ledger| !(rates && ledger.holds())) {
            ledger.charge(now, cost, 0);
        }
    }

    /// Calls `back` on each limit to give units back. Returns the most units that matter to other charges.
    pub(super) fn give_back(&mut self, now: u64, by_decision: bool, back: impl Fn(&mut Ledger) -> u64) -> u64 {
        let unstarted = self.unstarted(now);
        let mut most = 0;
        for (index, ledger) in self.ledgers.iter_mut().enumerate() {
            // Nothing was charged to a bucket that no call has started.
            if !unstarted.contains(&index) {
                let units = back(ledger);
                most = if ledger.counts_refunds(by_decision) { units.max(most) } else { most };
            }
        }
        most
    }

    /// The charges that were just made, one for each limit.
    pub(super) fn charged(&self, now: u64, units: u64) -> Vec<ChargedLimit> {
        let of = |ledger: &Ledger| ChargedLimit {
            limit: ledger.limit.clone(),
            at: now,
            units,
            empty_at: ledger.resets_at(now),
        };
        self.ledgers.iter().map(of).collect()
    }

    /// Changes the state as a denial does.
    pub(super) fn deny(&mut self, policy: &Policy, now: u64, cost: u64, hold: u64) {
        let options = policy.options();
        let blocked = self.blocked_until > now;
        if options.count_denied {
            self.charge(now, cost, hold);
        } else if !blocked {
            self.start(now);
        }
        if let (false, Some(blocks)) = (blocked, &options.block_for) {
            let most = blocks.lengths().len();
            let level = if self.remembers_level(policy, now) { (self.level + 1).min(most) } else { 1 };
            self.blocked_until = now + blocks.lengths()[level - 1].micros();
            self.by_hand = false;
            self.level = if most > 1 { level } else { 0 };
        }
    }

    /// True if the next block depends on the last one.
    pub(super) fn remembers_level(&self, policy: &Policy, now: u64) -> bool {
        let Options { block_for, forgive, .. } = policy.options();
        let forgiven_after = forgive.map_or(86_400_000_000, |period| period.micros());
        let escalates = block_for.as_ref().is_some_and(|blocks| blocks.lengths().len() > 1);
        escalates && self.level > 0 && self.blocked_until + forgiven_after > now
    }

    /// Forgets a block that is over, unless the next one depends on it.
    pub(super) fn end_block(&mut self, policy: &Policy, now: u64) {
        if !self.remembers_level(policy, now) {
            (self.blocked_until, self.level) = (0, 0);
        }
    }

    /// Blocks by hand, or ends a block.
    pub(super) fn block(&mut self, policy: &Policy, now: u64, length: u64) {
        if length == 0 {
            self.blocked_until = self.blocked_until.min(now);
            self.end_block(policy, now);
        } else {
            self.end_block(policy, now);
            (self.blocked_until, self.by_hand) = (now + length, true);
        }
    }

    /// The answer to a call of `cost` that leaves `free`. `refusing` marks the limits that refused it before the
    /// charge. All other values are those after the charge.
    pub(super) fn answer(
        &self,
        policy: &Policy,
        now: u64,
        (cost, free): (u64, FreePart),
        admitted: bool,
        charged: u64,
        refusing: &[bool],
    ) -> DecisionValues {
        let shadow = policy.options().shadow && !admitted;
        let views: Vec<(Ledger, Option<u64>)> = self
            .started(now)
            .ledgers
            .into_iter()
            .map(|ledger| {
                let admits_at = ledger.admits_at(now, cost + free.of_limit(&ledger));
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
                remaining: ledger.remaining(now).saturating_sub(free.of_limit(ledger)),
                over: ledger.over(now),
                retry_after: if admitted { Some(0) } else { admits_at.map(|at| at - now) },
                next_after: admits_at.map(|at| at - now),
                reset_after: ledger.resets_at(now) - now,
                exceeded: !admitted && *refused,
            })
            .collect();
        let blocked = self.blocked_until.saturating_sub(now);
        let mut waits = limits.iter().map(|limit| limit.next_after);
        let wait = waits.try_fold(blocked, |longest, wait| wait.map(|wait| longest.max(wait)));
        let binding = binding(&limits);
        let delay = views.iter().map(|(ledger, _)| ledger.delay(now, charged)).max();
        DecisionValues {
            allowed: admitted || shadow,
            shadow,
            overridden: false,
            learned: false,
            abnormal: !(admitted || shadow) && blocked > 0 && self.level > 0 && !self.by_hand,
            granted: charged,
            limit: binding.limit,
            remaining: if blocked > 0 { 0 } else { binding.remaining },
            retry_after: if admitted || shadow { Some(0) } else { wait },
            next_after: if policy.options().shadow { Some(0) } else { wait },
            reset_after: binding.reset_after.max(blocked),
            delay: if admitted { delay.unwrap_or(0) } else { 0 },
            limits,
            decisions: Vec::new(),
        }
    }
}

/// The refusing limit with the longest wait, else the limit with the smallest share left. The first of equals.
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

/// True if less is left of the first than of the second, in proportion.
pub(super) fn is_tighter((left, limit): (u64, u64), (other_left, other_limit): (u64, u64)) -> bool {
    u128::from(left) * u128::from(other_limit.max(1)) < u128::from(other_left) * u128::from(limit.max(1))
}
