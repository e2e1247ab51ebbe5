//! Lives of charges: random histories of checks that are settled late, given back, forgotten and settled again, over
//! every store. The test judges *usage by call and time*: a call uses its estimate until it is settled, and from then
//! on its actual units, at the moment of its check. The usage is counted by brute force, without the product.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use tidegate::{
    Algorithm, Decision, KeyOverride, Limit, Limiter, ManualClock, OnStoreError, Options, Period, Policy, Result,
};
use tidegate_tests::budget::within;
use tidegate_tests::cluster::Cluster;
use tidegate_tests::history::{agree, answers_of_redis, text_of};
use tidegate_tests::proxy::{Condition, Proxy};
use tidegate_tests::random::Random;
use tidegate_tests::servers::{Kind, Servers};
use tidegate_tests::setting::setting;
use tidegate_tests::shared_file::SharedFile;

/// Lives in a normal run. `TIDEGATE_LIVES` sets another number. With `TIDEGATE_SEED`, one life runs from that seed by default.
const LIVES: u64 = 10_000;
const PERIODS: [u64; 4] = [SECOND, 7 * SECOND + 1, 10 * SECOND, 60 * SECOND];
/// Steps of the shortest life.
const STEPS: u64 = 30;
const SECOND: u64 = 1_000_000;
const START: u64 = 1_700_000_000 * SECOND;

/// Units that were used at a moment.
#[derive(Clone, Debug)]
struct Used {
    at: u64,
    units: u64,
}

/// A check that was admitted.
struct Charge {
    decision: Decision,
    /// The index of its usage in `Life::used`.
    used: usize,
    settled: bool,
}

/// The fate of replies. A call with a lost reply was made, and its caller does not know.
#[derive(Clone, Copy)]
enum Replies<'a> {
    AllArrive,
    /// One in twelve is not read. A store with `SomeCut` is compared with this.
    SomeIgnored,
    /// One in twelve is cut on its way.
    SomeCut(&'a Proxy),
}

struct Life<'a> {
    limiter: &'a Limiter,
    clock: &'a ManualClock,
    random: Random,
    policy: Policy,
    /// The policy of an override of its key, and the moment when the override ends.
    own: Option<(Policy, u64)>,
    /// Each life has a different key.
    key: String,
    now: u64,
    used: Vec<Used>,
    charges: Vec<Charge>,
    lines: Vec<String>,
    replies: Replies<'a>,
    /// True if the reply of this step is lost. The breaker would see two in a row, so that never happens.
    lost: bool,
}

fn limit(random: &mut Random, periods: &[u64]) -> Limit {
    let algorithms = Algorithm::ALL.into_iter().filter(|algorithm| *algorithm != Algorithm::Concurrency);
    let algorithms: Vec<Algorithm> = algorithms.collect();
    let (algorithm, count) = (random.pick(&algorithms), random.below(20) + 1);
    let period = Period::from_micros(random.pick(periods)).expect("a period");
    let limit = Limit::new(algorithm, count, period).expect("a limit");
    if algorithm.has_burst() && random.one_in(2) {
        return limit.with_burst(random.below(2 * count) + 1).expect("a burst");
    }
    limit
}

impl Life<'_> {
    fn run(mut self) -> Vec<String> {
        self.steps(STEPS);
        self.end()
    }

    fn steps(&mut self, number: u64) {
        (0..number).for_each(|_| self.step());
    }

    /// Makes the rest of its steps, and returns its lines.
    fn end(mut self) -> Vec<String> {
        let more = self.random.below(STEPS);
        self.steps(more);
        let last = self.limiter.peek(&self.policy, &self.key, 1).expect("a peek");
        self.lines.push(text_of(&last));
        self.lines
    }

    fn step(&mut self) {
        let period = self.policy.limits()[0].period().micros();
        let pause = match self.random.below(8) {
            0 | 1 => 0,
            2 => self.random.below(period),
            3 => period,
            _ => self.random.below(period / 5),
        };
        self.now += pause;
        self.clock.set(Duration::from_micros(self.now));
        self.own.take_if(|(_, ends)| *ends <= self.now);
        self.lost = !matches!(self.replies, Replies::AllArrive) && !self.lost && self.random.one_in(12);
        match self.random.below(40) {
            0..=19 => self.check(),
            20..=33 => self.settle(),
            34 | 35 => self.refund(),
            36 => self.clear(),
            37 => {
                let time = Duration::from_micros(self.random.below(period) + 1);
                self.answer(|limiter| limiter.block(&self.policy, &self.key, time));
                self.lines.push("blocked".to_owned());
            }
            38 if self.random.one_in(2) => self.change(),
            38 => self.set_override(),
            // The other release would use the override too, while the key has one.
            _ if self.own.is_some() => {}
            _ => self.other_algorithm(),
        }
    }

    /// The answer of a call, unless its reply is lost.
    #[track_caller]
    fn answer<T>(&self, call: impl Fn(&Limiter) -> Result<T>) -> Option<T> {
        match self.replies {
            _ if !self.lost => Some(call(self.limiter).expect("an answer")),
            Replies::AllArrive | Replies::SomeIgnored => {
                call(self.limiter).expect("an answer");
                None
            }
            Replies::SomeCut(proxy) => {
                // The call before was lost. This peek makes a connection and learns the numbers of the key, so that
                // only the call itself is lost.
                self.limiter.peek(&self.policy, &self.key, 1).expect("an answer");
                proxy.set(Condition::CutReplies);
                let answer = call(self.limiter);
                proxy.set(Condition::Healthy);
                // A settle to the same number makes no call, and so no error.
                answer.err().inspect(|error| assert!(!error.did_not_run(), "{error}"));
                None
            }
        }
    }

    fn check(&mut self) {
        let most = self.in_force().limits()[0].capacity();
        let cost = if self.random.one_in(3) { self.random.below(most) + 1 } else { self.random.below(3) + 1 };
        let Some(decision) = self.answer(|limiter| limiter.check_n(&self.policy, &self.key, cost)) else {
            // The caller does not go on, so it uses nothing.
            return self.lines.push(format!("{} lost check {cost}", self.now));
        };
        self.lines.push(format!("{} check {cost}: {}", self.now, text_of(&decision)));
        if decision.allowed() {
            self.used.push(Used { at: self.now, units: cost });
            self.judge(&decision);
            self.charges.push(Charge { decision, used: self.used.len() - 1, settled: false });
        }
    }

    fn settle(&mut self) {
        let open: Vec<usize> = (0..self.charges.len()).filter(|index| !self.charges[*index].settled).collect();
        if open.is_empty() {
            return;
        }
        let index = open[self.random.below(open.len() as u64) as usize];
        let granted = self.charges[index].decision.granted();
        let actual = match self.random.below(6) {
            0 => 0,
            1 => granted + self.random.below(3),
            _ => self.random.below(granted + 1),
        };
        self.answer(|limiter| limiter.settle(&self.charges[index].decision, actual));
        let charge = &mut self.charges[index];
        assert!(self.limiter.settle(&charge.decision, actual).is_err(), "a Decision is settled once");
        charge.settled = true;
        let used = &mut self.used[charge.used];
        used.units = used.units.min(actual);
        if actual > granted {
            self.used.push(Used { at: self.now, units: actual - granted });
        }
        self.lines.push(format!("{} settled {granted} to {actual}", self.now));
    }

    /// Gives units back without a Decision: the oldest that count. Several limits do not count the same ones, and fixed
    /// windows do not know their age.
    fn refund(&mut self) {
        let [limit] = self.policy.limits() else { return };
        if matches!(limit.algorithm(), Algorithm::FixedWindow | Algorithm::CalendarWindow) {
            return;
        }
        let (limit, units) = (limit.clone(), self.random.below(5) + 1);
        self.answer(|limiter| limiter.refund(&self.policy, &self.key, units));
        self.forget_oldest(&limit, units);
        self.lines.push(format!("{} refunded {units}", self.now));
    }

    /// Takes the oldest units that still count out of the usage.
    fn forget_oldest(&mut self, limit: &Limit, mut units: u64) {
        let (now, period) = (self.now, limit.period().micros());
        let granule = period / u64::from(limit.precision());
        let mut order: Vec<usize> = (0..self.used.len()).collect();
        order.sort_by_key(|place| self.used[*place].at);
        let drained = if limit.algorithm().has_burst() { self.drained(limit, now, &order) } else { Vec::new() };
        for (index, place) in order.into_iter().enumerate() {
            let Used { at, units: own } = self.used[place];
            let counted = match limit.algorithm() {
                Algorithm::SlidingLog if at + period <= now => 0,
                Algorithm::SlidingWindow if (at / granule + 1) * granule - 1 + period <= now => 0,
                Algorithm::SlidingCounter if at / period < now / period && !self.weighs(at / period, period) => 0,
                _ => drained.get(index).map_or(own, |drained| own - drained),
            };
            let taken = units.min(counted);
            self.used[place].units -= taken;
            units -= taken;
        }
    }

    /// True if a counter still weighs the usage of a window that is over.
    fn weighs(&self, window: u64, period: u64) -> bool {
        let left = period.saturating_sub(self.now - (window + 1) * period);
        let units: u64 = self.used.iter().filter(|used| used.at / period == window).map(|used| used.units).sum();
        u128::from(units) * u128::from(left) >= u128::from(period)
    }

    /// The whole units of each usage that have drained from a bucket, first in, first out.
    fn drained(&self, limit: &Limit, now: u64, order: &[usize]) -> Vec<u64> {
        let (rate, unit) = (u128::from(limit.count()), u128::from(limit.period().micros()));
        let mut empty_at = 0;
        let drained = order.iter().map(|place| {
            let Used { at, units } = self.used[*place];
            // In parts of a microsecond.
            let begins = (u128::from(at) * rate).max(empty_at);
            empty_at = begins + u128::from(units) * unit;
            ((u128::from(now) * rate).saturating_sub(begins) / unit).min(u128::from(units)) as u64
        });
        drained.collect()
    }

    fn clear(&mut self) {
        self.answer(|limiter| limiter.clear(&self.policy, &self.key));
        // Nothing that was used before counts any more.
        self.used.iter_mut().for_each(|used| used.units = 0);
        self.lines.push("cleared".to_owned());
    }

    /// Changes the numbers. Buckets keep theirs, because their drain since then depends on the moment of their last write.
    fn change(&mut self) {
        if let Some(changed) = self.changed() {
            self.policy = changed;
            self.lines.push(format!("changed to {:?}", self.policy));
        }
    }

    fn changed(&mut self) -> Option<Policy> {
        if self.policy.limits().iter().any(|limit| limit.algorithm().has_burst()) {
            return None;
        }
        let limits = self.policy.limits().iter();
        let limits = limits
            .map(|limit| Limit::new(limit.algorithm(), self.random.below(20) + 1, limit.period()).expect("a limit"));
        Some(Policy::new(limits.collect(), Options::default()).expect("a policy").named("p").expect("a name"))
    }

    /// Gives its key other numbers, for a time or for good, or removes them.
    fn set_override(&mut self) {
        let Some(changed) = self.changed() else { return };
        let own = (!self.random.one_in(3)).then_some(changed);
        let period = self.policy.limits()[0].period().micros();
        let ttl = (own.is_some() && self.random.one_in(2)).then(|| self.random.below(3 * period) + 1);
        let limits = own.as_ref().map(|own| KeyOverride::of(own.limits().to_vec()));
        if limits.as_ref().is_some_and(|limits| KeyOverride::parse(&limits.to_string()).is_err()) {
            // No notation has such a period.
            return;
        }
        let time = ttl.map(Duration::from_micros);
        // The override is noted in a list first. If that reply is lost, it is not set.
        self.lost = false;
        self.answer(|limiter| limiter.set_override(&self.policy, &self.key, limits.as_ref(), time));
        self.lines.push(format!("{} override {limits:?} for {time:?}", self.now));
        self.own = own.map(|own| (own, ttl.map_or(u64::MAX, |ttl| self.now + ttl)));
    }

    /// The policy with the current numbers of its key.
    fn in_force(&self) -> &Policy {
        self.own.as_ref().map_or(&self.policy, |(own, _)| own)
    }

    /// A release with other limits works on the same key. It counts for itself, and takes nothing from this one.
    fn other_algorithm(&mut self) {
        let other = self.random.pick(&["gcra 3/9s", "sliding-log 4/11s", "fixed-window 5/13s"]);
        let other = Policy::parse(other).expect("a policy").named("p").expect("a name");
        let decision = self.limiter.check_n(&other, &self.key, self.random.below(3) + 1).expect("a check");
        if decision.allowed() && self.random.one_in(2) {
            self.limiter.settle(&decision, 0).expect("settled");
        }
        self.lines.push(format!("{} other {}", self.now, text_of(&decision)));
    }

    /// Asserts that the usage, with the check that was just admitted, is within every limit.
    fn judge(&self, decision: &Decision) {
        for (limit, state) in self.in_force().limits().iter().zip(decision.limits()) {
            let (now, period) = (self.now, limit.period().micros());
            let since =
                |from: u64| -> u64 { self.used.iter().filter(|used| used.at >= from).map(|used| used.units).sum() };
            let (used, most) = match limit.algorithm() {
                Algorithm::SlidingLog | Algorithm::SlidingWindow => {
                    (since(now.saturating_sub(period) + 1), limit.count())
                }
                Algorithm::FixedWindow => {
                    let opened = now + state.reset_after.as_micros() as u64 - period;
                    (since(opened), limit.count())
                }
                // Periods that are no units of the calendar begin in 1970.
                Algorithm::CalendarWindow => (since(now / period * period), limit.count()),
                Algorithm::SlidingCounter => {
                    let (window, elapsed) = (now / period, now % period);
                    let current = since(window * period);
                    let previous = since((window - 1) * period) - current;
                    let left = u128::from(previous) * u128::from(period - elapsed) / u128::from(period);
                    (left as u64 + current, limit.count())
                }
                _ => (self.level(limit), limit.capacity()),
            };
            assert!(used <= most, "{used} units of {limit} were used\n{}\n{:?}", self.lines.join("\n"), self.used);
        }
    }

    /// The level of a bucket after the actual usage, in whole units, rounded down.
    fn level(&self, limit: &Limit) -> u64 {
        // In parts of a unit: it has as many as the period has microseconds.
        let (rate, unit) = (u128::from(limit.count()), u128::from(limit.period().micros()));
        let (mut level, mut at) = (0_u128, 0);
        let mut used = self.used.clone();
        used.sort_by_key(|used| used.at);
        for used in used {
            level = level.saturating_sub(u128::from(used.at - at) * rate) + u128::from(used.units) * unit;
            at = used.at;
        }
        // A part of a unit beyond does not count, because a bucket stores whole microseconds.
        (level.saturating_sub(rate) / unit) as u64
    }
}

fn life<'a>(
    seed: u64,
    limiter: &'a Limiter,
    clock: &'a ManualClock,
    periods: &[u64],
    replies: Replies<'a>,
) -> Life<'a> {
    let mut random = Random::new(seed);
    let limits = (0..random.pick(&[1, 1, 2])).map(|_| limit(&mut random, periods)).collect();
    let policy = Policy::new(limits, Options::default()).expect("a policy").named("p").expect("a name");
    let now = START + random.below(100 * SECOND);
    clock.set(Duration::from_micros(now));
    let (key, lines) = (format!("{seed}"), vec![format!("{policy:?}")]);
    Life {
        limiter,
        clock,
        random,
        policy,
        own: None,
        key,
        now,
        used: Vec::new(),
        charges: Vec::new(),
        lines,
        replies,
        lost: false,
    }
}

fn seeds(lives: u64) -> std::ops::Range<u64> {
    let (first, number) = (setting("TIDEGATE_SEED"), setting("TIDEGATE_LIVES"));
    let number = number.map_or(if first.is_some() { 1 } else { lives }, |wanted| (wanted * lives / LIVES).max(1));
    let first = first.unwrap_or(0);
    first..first + number
}

fn clock() -> Arc<ManualClock> {
    Arc::new(ManualClock::new(Duration::ZERO))
}

fn in_memory(clock: &Arc<ManualClock>) -> Limiter {
    Limiter::builder().clock(Arc::clone(clock)).build().expect("a memory limiter")
}

fn on_a_server(url: &str, clock: &Arc<ManualClock>) -> Limiter {
    let store = Limiter::builder().store(url).timeout(Duration::from_secs(10)).deny_cache(Duration::ZERO);
    store.on_store_error(OnStoreError::Raise).clock(Arc::clone(clock)).build().expect("a limiter")
}

fn live(url: &str, lives: u64, seconds: u64, proxy: Option<&Proxy>) -> u64 {
    let (memory_clock, redis_clock) = (clock(), clock());
    let (memory, store) = (in_memory(&memory_clock), on_a_server(url, &redis_clock));
    let (ignored, cut) = match proxy {
        Some(proxy) => (Replies::SomeIgnored, Replies::SomeCut(proxy)),
        None => (Replies::AllArrive, Replies::AllArrive),
    };
    let mut seeds = within(seconds, seeds(lives));
    for seed in seeds.by_ref() {
        let expected = life(seed, &memory, &memory_clock, &PERIODS, ignored).run();
        let found = answers_of_redis(&store, &expected, || life(seed, &store, &redis_clock, &PERIODS, cut).run());
        agree(seed, &expected, &found);
    }
    seeds.begun()
}

#[test]
fn nothing_is_used_twice_in_memory_and_on_a_server() {
    live(Servers::start(Kind::Single).url(), LIVES, 4, None);
}

#[test]
fn nothing_is_used_twice_in_postgres() {
    let server = Servers::start(Kind::Postgres);
    live(&format!("{}?create=yes", server.url()), LIVES / 20, 2, None);
}

#[test]
fn nothing_is_used_twice_in_a_file() {
    live(&SharedFile::new().url("max_bytes=16MB"), LIVES / 4, 2, None);
}

#[test]
fn nothing_is_used_twice_on_a_cluster() {
    live(Servers::start(Kind::Cluster).url(), LIVES / 20, 2, None);
}

#[test]
fn nothing_is_used_twice_where_replies_are_lost() {
    let redis = Servers::start(Kind::Single);
    let proxy = Proxy::to(redis.port(0));
    let (user, password) = redis.control();
    let url = format!("redis://{user}:{password}@127.0.0.1:{}/0", proxy.port());
    // If a server does not have a script yet, the script certainly did not run. It is sent again instead of being lost.
    live(&url, LIVES / 100, 1, None);
    redis.command(0, &["FLUSHALL"]);
    let lived = live(&url, LIVES / 20, 2, Some(&proxy));
    assert!(proxy.accepted() as u64 > lived, "{} connections were cut", proxy.accepted());
}

/// In the middle of each life, every primary fails over.
#[test]
fn nothing_is_used_twice_where_replicas_take_over() {
    let cluster = Cluster::start();
    let (memory_clock, redis_clock) = (clock(), clock());
    let (memory, store) = (in_memory(&memory_clock), on_a_server(&cluster.url(), &redis_clock));
    let periods = [60 * SECOND, 600 * SECOND];
    let mut primaries: Vec<_> = cluster.primaries().into_iter().map(|node| cluster.servers.connection(node)).collect();
    let (mut halves, mut persisted) = (Vec::new(), HashSet::new());
    for seed in within(2, seeds(LIVES / 20)) {
        let expected = life(seed, &memory, &memory_clock, &periods, Replies::AllArrive).run();
        let mut half = life(seed, &store, &redis_clock, &periods, Replies::AllArrive);
        half.steps(STEPS);
        // The clock of the test stands still while replicas take over, but keys expire in real time.
        for connection in &mut primaries {
            let keys: Vec<Vec<u8>> = redis::cmd("KEYS").arg("*").query(connection).expect("the keys");
            for key in keys.into_iter().filter(|key| persisted.insert(key.clone())) {
                redis::cmd("PERSIST").arg(key).exec(connection).expect("it stays");
            }
        }
        halves.push((seed, expected, half));
    }
    cluster.primaries().into_iter().for_each(|primary| cluster.fail_over(primary));
    for (seed, expected, half) in halves {
        redis_clock.set(Duration::from_micros(half.now));
        agree(seed, &expected, &half.end());
    }
}

/// This test judges the algorithms. The other tests compare the servers, over as many lives as there is time for.
#[test]
#[ignore = "a million lives take minutes"]
fn a_million_lives_in_memory() {
    let (seeds, threads) =
        (seeds(100 * LIVES), std::thread::available_parallelism().map_or(2, |threads| threads.get() as u64));
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let own: Vec<u64> = seeds.clone().filter(|seed| seed % threads == thread).collect();
            scope.spawn(move || {
                for part in own.chunks(1_000) {
                    // Each thousand has a new limiter, because the stored data of a life is not needed after it.
                    let clock = clock();
                    let limiter = in_memory(&clock);
                    part.iter().for_each(|seed| {
                        drop(life(*seed, &limiter, &clock, &PERIODS, Replies::AllArrive).run());
                    });
                }
            });
        }
    });
}
