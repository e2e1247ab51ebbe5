//! Random lives of keys with turns, against a model that counts the used units and their moments by brute force.

use std::time::Duration;

use tidegate::{AsyncLimiter, Cost, Decision, ManualClock, Policy};
use tidegate_tests::budget::within;
use tidegate_tests::random::Random;
use tidegate_tests::servers::{Kind, Servers};
use tidegate_tests::setting::setting;
use tidegate_tests::wait::wait_closely;

use super::{Caller, START, limiter, seconds};

const PATIENCE: Duration = Duration::from_secs(10);

/// A bucket as one number: the moment at which it is empty, in parts of a microsecond. `count` parts make one.
#[derive(Clone)]
struct Bucket {
    count: i128,
    period: i128,
    burst: i128,
    empty: i128,
}

impl Bucket {
    /// Rounded up to a microsecond.
    fn rounded(&self, parts: i128) -> i128 {
        parts.div_euclid(self.count) + i128::from(parts.rem_euclid(self.count) > 0)
    }

    fn admits_at(&self, now: i128, cost: i128) -> i128 {
        self.rounded(self.empty + (cost - self.burst) * self.period).max(now)
    }

    fn charge(&mut self, at: i128, cost: i128) {
        self.empty = self.empty.max(at * self.count) + cost * self.period;
    }
}

/// Used units, and the moment of their use.
#[derive(Debug, Clone, Copy)]
struct Used {
    at: i128,
    units: i128,
}

/// A turn: its moment, its charge, and the moment at which each bucket is empty after it.
#[derive(Clone)]
struct Turn {
    at: i128,
    charged: i128,
    ends: Vec<i128>,
}

/// A caller that sleeps until its turn.
struct Sleeper {
    caller: Caller,
    cost: i128,
    turn: Turn,
}

const BUCKETS: [(&str, i128, i128, i128); 5] = [
    ("gcra 3/10s burst 3", 3, 10_000_000, 3),
    ("gcra 1/s burst 1", 1, 1_000_000, 1),
    ("token-bucket 7/s burst 20", 7, 1_000_000, 20),
    ("leaky-bucket 5/s burst 3", 5, 1_000_000, 3),
    ("gcra 200/s burst 2", 200, 1_000_000, 2),
];

/// The life of one key.
struct Life<'a> {
    limiter: &'a AsyncLimiter,
    clock: &'a ManualClock,
    notation: String,
    policy: Policy,
    key: String,
    buckets: Vec<Bucket>,
    /// True if the model knows the buckets. After a settle or a refund it does not, until they have drained.
    is_known: bool,
    used: Vec<Used>,
    /// The Decisions that may be settled, each with its index in `used`.
    decisions: Vec<(Decision, usize)>,
    sleeping: Vec<Sleeper>,
    /// The steps, each with its moment after the start.
    steps: Vec<(i128, String)>,
}

impl<'a> Life<'a> {
    fn new(history: u64, random: &mut Random, limiter: &'a AsyncLimiter, clock: &'a ManualClock) -> Self {
        let mut chosen: Vec<_> = (0..1 + random.below(3)).map(|_| random.pick(&BUCKETS)).collect();
        chosen.dedup_by_key(|bucket| bucket.0);
        let notation = chosen.iter().map(|bucket| bucket.0).collect::<Vec<_>>().join("; ");
        let buckets =
            chosen.iter().map(|&(_, count, period, burst)| Bucket { count, period, burst, empty: 0 }).collect();
        Self {
            limiter,
            clock,
            policy: Policy::parse(&notation).expect("a policy"),
            notation,
            key: format!("history {history}"),
            buckets,
            is_known: true,
            used: Vec::new(),
            decisions: Vec::new(),
            sleeping: Vec::new(),
            steps: Vec::new(),
        }
    }

    fn step(&mut self, step: String) {
        self.steps.push((self.now() - START.as_micros() as i128, step));
    }

    fn now(&self) -> i128 {
        self.clock.now().as_micros() as i128
    }

    fn peek(&self, cost: i128) -> Decision {
        self.limiter.to_blocking().peek(&self.policy, &self.key, cost as u64).expect("a peek")
    }

    /// When the buckets admit so many units.
    fn admits_at(&self, cost: i128) -> i128 {
        if !self.is_known {
            return self.now() + self.peek(cost).next_after().expect("it fits").as_micros() as i128;
        }
        self.buckets.iter().map(|bucket| bucket.admits_at(self.now(), cost)).max().expect("a bucket")
    }

    fn charge(&mut self, at: i128, cost: i128) -> Turn {
        self.buckets.iter_mut().for_each(|bucket| bucket.charge(at, cost));
        Turn { at, charged: cost, ends: self.buckets.iter().map(|bucket| bucket.rounded(bucket.empty)).collect() }
    }

    fn has_used(&mut self, at: i128, units: i128, decision: Decision) {
        self.decisions.push((decision, self.used.len()));
        self.used.push(Used { at, units });
    }

    fn check(&mut self, cost: i128) -> bool {
        self.step(format!("check {cost}"));
        let (at, now) = (self.admits_at(cost), self.now());
        let check = self.limiter.to_blocking().check_n(&self.policy, &self.key, cost as u64);
        let decision = check.expect("a decision");
        let allowed = decision.allowed();
        assert_eq!(allowed, at == now, "{self}");
        if allowed {
            self.charge(now, cost);
            self.has_used(now, cost, decision);
        }
        allowed
    }

    fn acquire(&mut self, cost: i128, timeout: Duration) {
        self.step(format!("acquire {cost} within {timeout:?}"));
        let (at, now) = (self.admits_at(cost), self.now());
        let in_time = at - now <= timeout.as_micros() as i128;
        let waiting = self.limiter.waiting(&self.policy, &self.key);
        if in_time && at > now {
            let units = Cost::from(cost as u64);
            let mut caller = Caller::asks(self.limiter, &self.policy, &self.key, units, Some(timeout));
            wait_closely(PATIENCE, "it has a turn", || {
                assert!(caller.polled().is_none(), "{self}");
                self.limiter.waiting(&self.policy, &self.key) > waiting
            });
            let turn = self.charge(at, cost);
            self.sleeping.push(Sleeper { caller, cost, turn });
            self.sleeping.sort_by_key(|sleeper| sleeper.turn.at);
            return;
        }
        let call = self.limiter.to_blocking().acquire(&self.policy, &self.key, cost as u64, Some(timeout));
        let decision = call.expect("a decision");
        assert_eq!(decision.allowed(), in_time, "{self}");
        assert_eq!(decision.retry_after(), Some(Duration::from_micros((at - now) as u64)), "{self}");
        if in_time {
            self.charge(now, cost);
            self.has_used(now, cost, decision);
        }
    }

    /// Moves the clock to a turn, or by any time, so that each turn is seen at its moment.
    fn moves_on(&mut self, random: &mut Random) {
        let (now, next) = (self.now(), self.sleeping.first().map(|sleeper| sleeper.turn.at));
        let by = match next {
            Some(at) if random.one_in(2) => at - now,
            None if random.one_in(6) => self.drains(),
            _ => random.below(900_000).into(),
        };
        let to = (now + by).min(next.unwrap_or(i128::MAX));
        self.clock.set(Duration::from_micros(to as u64));
        while self.sleeping.first().is_some_and(|sleeper| sleeper.turn.at <= to) {
            let Sleeper { mut caller, cost, turn } = self.sleeping.remove(0);
            let decision = caller.decision();
            assert_eq!((decision.allowed(), decision.granted() as i128), (true, cost), "{self}");
            assert_eq!(decision.at().as_micros() as i128, turn.at, "{self}");
            self.has_used(turn.at, cost, decision);
        }
        for sleeper in &mut self.sleeping {
            assert!(sleeper.caller.polled().is_none(), "before its turn");
        }
    }

    /// The time until all buckets are empty. From then on the model knows them.
    fn drains(&mut self) -> i128 {
        self.is_known = true;
        self.buckets.iter_mut().for_each(|bucket| bucket.empty = 0);
        let empty = self.peek(1).limits().map(|limit| limit.reset_after.as_micros()).max();
        // One microsecond later, because a charge at the moment of a refund does not take account of the refund.
        empty.expect("a bucket") as i128 + 1
    }

    /// A caller gives its turn up. The next caller with no larger cost takes the turn, a later one takes the turn of
    /// that caller, and so on. The last turn goes back if nothing was charged after it.
    fn cancel(&mut self, random: &mut Random) {
        if self.sleeping.is_empty() || !self.is_known {
            return;
        }
        let at = random.below(self.sleeping.len() as u64) as usize;
        let Sleeper { mut caller, mut turn, .. } = self.sleeping.remove(at);
        self.step(format!("cancel the turn at {}", turn.at - START.as_micros() as i128));
        caller.gives_up();
        for sleeper in &mut self.sleeping {
            if sleeper.turn.at > turn.at && sleeper.cost <= turn.charged {
                std::mem::swap(&mut sleeper.turn, &mut turn);
            }
        }
        self.sleeping.sort_by_key(|sleeper| sleeper.turn.at);
        if self.buckets.iter().zip(&turn.ends).all(|(bucket, end)| bucket.rounded(bucket.empty) == *end) {
            self.buckets.iter_mut().for_each(|bucket| bucket.empty -= turn.charged * bucket.period);
        }
        let expected = Duration::from_micros((self.admits_at(1) - self.now()) as u64);
        wait_closely(PATIENCE, &format!("the turn is given back, or is lost: {self}"), || {
            self.peek(1).next_after() == Some(expected)
        });
    }

    /// Refunds a check in part or as a whole. Its charge is behind no turn.
    fn refund(&mut self, random: &mut Random, cost: i128) {
        if !self.sleeping.is_empty() || !self.check(cost) {
            return;
        }
        let units = 1 + i128::from(random.below(cost as u64));
        self.step(format!("refund {units}"));
        self.limiter.to_blocking().refund(&self.policy, &self.key, units as u64).expect("it goes back");
        self.used.last_mut().expect("the check").units -= units;
        self.decisions.pop();
        // The refund may have taken units of a turn that is taken at the same moment.
        self.is_known = false;
    }

    /// A call has used less than its charge. No turn is behind it.
    fn settle(&mut self, random: &mut Random) {
        if !self.sleeping.is_empty() || self.decisions.is_empty() {
            return;
        }
        let at = random.below(self.decisions.len() as u64) as usize;
        let (decision, used) = self.decisions.remove(at);
        let actual = random.below(decision.granted());
        self.step(format!("settle {:?} to {actual}", self.used[used]));
        self.limiter.to_blocking().settle(&decision, actual).expect("it is settled");
        self.used[used].units = actual.into();
        self.is_known = false;
    }

    /// Checks that the used units were within each bucket at their moments, whatever decided.
    fn is_within_every_bucket(&mut self) {
        self.used.sort_by_key(|used| used.at);
        for bucket in &self.buckets {
            let mut bucket = Bucket { empty: 0, ..bucket.clone() };
            for used in self.used.iter().filter(|used| used.units > 0) {
                assert_eq!(bucket.admits_at(used.at, used.units), used.at, "{self}: {used:?}");
                bucket.charge(used.at, used.units);
            }
        }
    }
}

impl std::fmt::Display for Life<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}, \"{}\": {:?}, known {}", self.key, self.notation, self.steps, self.is_known)
    }
}

fn live(history: u64, limiter: &AsyncLimiter, clock: &ManualClock) {
    let random = &mut Random::new(history);
    clock.set(START);
    let mut life = Life::new(history, random, limiter, clock);
    let burst = life.buckets.iter().map(|bucket| bucket.burst).min().expect("a bucket") as u64;
    for _ in 0..40 {
        let cost = 1 + i128::from(random.below(burst));
        match random.below(16) {
            0..=2 => {
                life.check(cost);
            }
            3..=8 => life.acquire(cost, seconds(random.below(8_000) as f64 / 1_000.0)),
            9 | 10 => life.cancel(random),
            11 => life.refund(random, cost),
            12 => life.settle(random),
            _ => life.moves_on(random),
        }
    }
    life.is_within_every_bucket();
}

#[test]
fn in_memory_turns_are_where_a_brute_force_has_them_and_no_bucket_is_overdrawn() {
    let histories = setting("TIDEGATE_HISTORIES").unwrap_or(10_000);
    std::thread::scope(|scope| {
        for first in 0..2 {
            scope.spawn(move || {
                let (limiter, clock) = limiter("memory://");
                within(2, (first..histories).step_by(2)).for_each(|history| live(history, &limiter, &clock));
            });
        }
    });
}

#[test]
fn on_redis_turns_are_where_a_brute_force_has_them_and_no_bucket_is_overdrawn() {
    let redis = Servers::start(Kind::Single);
    let (limiter, clock) = limiter(redis.url());
    for history in within(2, 0..setting("TIDEGATE_HISTORIES").unwrap_or(10_000) / 30) {
        live(history, &limiter, &clock);
    }
}
