//! Random policies, and random histories of calls on a limiter with all its answers.
//!
//! Everything follows from one seed, so a number names a failing history.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tidegate::{
    Algorithm, BlockFor, CheckOptions, Cost, Decision, Hold, HoldAnswer, KeyOverride, Limit, Limiter, ManualClock,
    Options, Period, Policy, TimeUnit, Units,
};

use crate::random::Random;
use crate::strategies::{ZONES, is_held};

const SECOND: u64 = 1_000_000;

/// Redis removes a key in real time, at the earliest this long after the last moment at which the key matters.
const EXPIRY_GRACE: Duration = Duration::from_millis(250);

/// A part of the error of a store that cannot keep a key of the policy in one value.
pub const BOUNDED: &str = "this store keeps at most";

/// How often a history is repeated if keys may have expired too early and changed its answers. A race that shows in one
/// of ten attempts shows in one of these.
const REPETITIONS: usize = 30;

/// The answers of a store on Redis to a history with a test clock. If the machine stalls, real time passes while that
/// clock stands still, and a key can expire too early. So a history that took too long and gave other answers is
/// repeated. No quick attempt may give other answers, and most attempts have to agree.
///
/// # Panics
/// When the store cannot be cleared.
pub fn answers_of_redis(store: &Limiter, expected: &[String], attempt: impl Fn() -> Vec<String>) -> Vec<String> {
    let timed = || {
        let began = Instant::now();
        let found = attempt();
        (found, began.elapsed())
    };
    let (first, took) = timed();
    if first == expected || took < EXPIRY_GRACE {
        return first;
    }
    println!("other answers within {took:?}: keys may have expired, so the history is repeated");
    let mut agreed = 0;
    for _ in 0..REPETITIONS {
        store.clear_all().expect("nothing is kept");
        let (found, took) = timed();
        if found != expected && took < EXPIRY_GRACE {
            return found;
        }
        agreed += usize::from(found == expected);
    }
    if agreed > REPETITIONS / 2 { expected.to_vec() } else { first }
}

fn limit(random: &mut Random) -> Limit {
    let algorithm = random.pick(&Algorithm::ALL);
    let count = match random.below(12) {
        0 => 0,
        1 => 1_000_000_000_000,
        2 => 999_999_999_989,
        3 => random.below(100_000),
        4..=6 => random.below(300) + 1,
        _ => random.below(12) + 1,
    };
    let period = match random.below(10) {
        0 => Period::from_micros(1_000),
        1 => Period::new(1, tidegate::TimeUnit::Year),
        2 => Period::new(random.below(3) + 1, tidegate::TimeUnit::Month),
        3 => Period::new(random.below(3) + 1, tidegate::TimeUnit::Week),
        4 => Period::from_micros(1_000 + random.below(100 * SECOND)),
        5 => Period::new(random.below(40) + 1, tidegate::TimeUnit::Minute),
        _ => Period::new(random.below(90) + 1, tidegate::TimeUnit::Second),
    };
    let mut limit = Limit::new(algorithm, count, period.expect("in range")).expect("in range");
    if algorithm.has_burst() && random.one_in(2) {
        let burst = random.below(count.saturating_mul(2).clamp(1, 1_000_000_000_000)) + 1;
        limit = limit.clone().with_burst(burst.min(1_000_000_000_000)).unwrap_or(limit);
    }
    if algorithm == Algorithm::TokenBucket && random.one_in(3) {
        limit = limit.clone().with_initial(random.below(limit.capacity() + 1)).expect("within capacity");
    }
    if algorithm == Algorithm::SlidingWindow && random.one_in(2) {
        limit = limit.with_precision(random.below(40) as u32 + 1).expect("in range");
    }
    limit = with_calendar(random, limit);
    if algorithm != Algorithm::Concurrency && random.one_in(8) {
        limit = limit.with_unit(random.pick(&["tokens", "requests", "bytes"])).expect("a name");
    }
    limit
}

/// The same limit, sometimes with a zone and an anchor if it can have them.
fn with_calendar(random: &mut Random, limit: Limit) -> Limit {
    let period = limit.period();
    if limit.algorithm() != Algorithm::CalendarWindow
        || period.multiple() > 1
        || period.unit() < TimeUnit::Day
        || random.one_in(3)
    {
        return limit;
    }
    let limit = limit.with_zone(random.pick(ZONES)).expect("a zone");
    let time = format!("at {:02}:{:02}", random.below(24), random.below(60));
    let anchor = match period.unit() {
        TimeUnit::Week => format!("{} {time}", random.pick(&["monday", "friday"])),
        TimeUnit::Month => format!("day {} {time}", random.below(31) + 1),
        _ => time,
    };
    if random.one_in(3) {
        limit
    } else {
        limit.with_anchor(anchor.parse().expect("an anchor")).expect("of that period")
    }
}

/// A cost for a policy: a number, or numbers by name if the policy counts named units.
pub fn cost_for(random: &mut Random, policy: &Policy, cost: u64) -> Cost {
    let units = policy.limits().iter().filter_map(Limit::unit);
    let mut names: Vec<&str> = units.map(tidegate::Unit::name).collect();
    names.sort_unstable();
    names.dedup();
    if names.is_empty() {
        return cost.into();
    }
    if policy.limits().iter().any(|limit| limit.unit().is_none()) {
        names.push("cost");
    }
    let most = policy.limits().iter().map(Limit::capacity).max().unwrap_or(0).min(1 << 50);
    let number = |random: &mut Random| match random.below(5) {
        0 => 0,
        1 => cost,
        2 => random.below(most / 3 + 2),
        _ => random.below(4),
    };
    let units: Vec<(&str, u64)> = names.into_iter().map(|name| (name, number(random))).collect();
    let omits = random.one_in(4);
    units.into_iter().filter(|(name, _)| !(omits && matches!(*name, "requests" | "cost"))).collect::<Units>().into()
}

/// A random policy of one to five limits under a name.
pub fn policy(random: &mut Random, name: &str) -> Policy {
    let limits = (0..random.pick(&[1, 1, 1, 2, 2, 3, 4, 5])).map(|_| limit(random)).collect();
    let seconds =
        |random: &mut Random, most| Period::new(random.below(most) + 1, tidegate::TimeUnit::Second).expect("in range");
    let (blocks, lengths) = (random.one_in(6), random.pick(&[1, 1, 2, 3, 4]));
    let options = Options {
        shadow: random.one_in(10),
        count_denied: random.one_in(8),
        block_for: blocks.then(|| BlockFor::new((0..lengths).map(|_| seconds(random, 20))).expect("a length or more")),
        forgive: (blocks && random.one_in(2)).then(|| seconds(random, 60)),
        journal: if random.one_in(8) { 5 } else { 0 },
        priorities: random.one_in(6).then(|| "batch: 30%, rest: 75%".parse().expect("classes")),
        ..Options::default()
    };
    possible(limits, options).named(name).expect("a short name")
}

/// The policy of these limits. It has no classes if one of them could never be admitted.
fn possible(limits: Vec<Limit>, options: Options) -> Policy {
    let plain = Options { priorities: None, ..options.clone() };
    Policy::new(limits.clone(), options).or_else(|_| Policy::new(limits, plain)).expect("from one to five limits")
}

/// A changed version of a policy: other numbers, sometimes other limits.
pub fn changed(random: &mut Random, policy: &Policy) -> Policy {
    let mut limits: Vec<Limit> = policy
        .limits()
        .iter()
        .map(|old| {
            let count = if random.one_in(3) { old.count() } else { random.below(2 * old.count().min(1 << 38) + 2) };
            let fresh = Limit::new(old.algorithm(), count, old.period()).expect("in range");
            let burst = old.burst().and_then(|burst| fresh.clone().with_burst(burst).ok());
            let limit = with_calendar(random, burst.unwrap_or(fresh));
            let limit = match old.unit() {
                Some(unit) => limit.with_unit(unit.name()).expect("a name"),
                None => limit,
            };
            if limit.algorithm() == Algorithm::SlidingWindow {
                return limit.with_precision(random.below(30) as u32 + 1).expect("in range");
            }
            limit
        })
        .collect();
    if random.one_in(3) {
        limits.push(limit(random));
    }
    if limits.len() > 1 && random.one_in(3) {
        limits.remove(random.below(limits.len() as u64) as usize);
    }
    if random.one_in(4) {
        limits.reverse();
    }
    limits.truncate(5);
    possible(limits, policy.options().clone()).named(policy.name()).expect("short")
}

/// All values of a Decision as text, to compare and to print.
#[must_use]
pub fn text_of(decision: &Decision) -> String {
    let mut text = format!("{decision:?} at={:?} reset_at={:?}", decision.at(), decision.reset_at());
    for part in decision.decisions() {
        let _ = write!(text, " [{:?}]", part.at());
    }
    text
}

/// Compares the lines of a seed that a limiter in memory has written with those of another store.
///
/// # Panics
/// When they differ. The message has the lines before.
#[track_caller]
pub fn agree(seed: u64, expected: &[String], found: &[String]) {
    if let Some(line) = (0..expected.len()).find(|line| expected.get(*line) != found.get(*line)) {
        let before = expected[..line].join("\n");
        panic!("seed {seed}\n{before}\nmemory: {}\nother:  {:?}", expected[line], found.get(line));
    }
}

/// The overrides of a history. One of four histories has some. They use their own generator, so that the other
/// histories and all other steps stay the same.
struct Overriding(Option<Random>);

impl Overriding {
    fn of(seed: u64) -> Self {
        Self((seed % 4 == 2).then(|| Random::new(!seed)))
    }

    /// Sets or removes an override now and then, and then reads the journal.
    fn step(&mut self, limiter: &Limiter, policy: &Policy, key: &str) -> Option<String> {
        let random = self.0.as_mut()?;
        if !random.one_in(6) {
            return None;
        }
        let own = match random.below(6) {
            0 | 1 => None,
            2 => Some(KeyOverride::unlimited()),
            // The notation drops everything that it cannot express.
            _ => KeyOverride::parse(&KeyOverride::of(changed(random, policy).limits().to_vec()).to_string()).ok(),
        };
        let ttl = random.one_in(2).then(|| Duration::from_micros(random.below(9 * SECOND) + 1));
        let set = limiter.set_override(policy, key, own.as_ref(), ttl.filter(|_| own.is_some()));
        let (journal, listed) = (limiter.journal(policy, key), limiter.overrides(policy));
        let shown = own.map_or_else(String::new, |own| own.to_string());
        Some(format!("override {shown:?} for {ttl:?}: {set:?} {journal:?} {listed:?}"))
    }

    /// The answer to a call as text. A call fails if its policy has come to forbid the override of its key, or is too large for
    /// the store.
    #[track_caller]
    fn said(&self, answer: tidegate::Result<Decision>) -> String {
        match answer {
            Ok(decision) => text_of(&decision),
            Err(error) if self.0.is_some() && error.code() == "policy_invalid" => format!("failed {error}"),
            Err(error) if error.message().contains(BOUNDED) => format!("failed {error}"),
            Err(error) => panic!("a call: {error}"),
        }
    }
}

/// Runs the history of a seed on a limiter. Returns one line for each call.
///
/// # Panics
/// When a call fails.
#[must_use]
pub fn run(seed: u64, limiter: &Limiter, clock: &Arc<ManualClock>) -> Vec<String> {
    let mut random = Random::new(seed);
    let names = [format!("one-{seed}"), format!("two-{seed}")];
    let mut policies = [policy(&mut random, &names[0]), policy(&mut random, &names[1])];
    let keys = ["alice", "bob"];
    let mut now = 1_700_000_000 * SECOND + random.below(40 * 365 * 86_400 * SECOND / 10);
    clock.set(Duration::from_micros(now));
    let mut lines = Vec::new();
    let mut holds: Vec<Hold> = Vec::new();
    let mut last: Option<Decision> = None;
    lines.push(format!("policies {:?} {:?}", policies[0], policies[1]));
    let mut overrides = Overriding::of(seed);
    for step in 0..random.below(28) + 6 {
        let period = policies[0].limits()[0].period().micros();
        let pause = match random.below(16) {
            0..=3 => 0,
            4..=7 => random.below(SECOND / 2),
            8 => 1,
            9 => period,
            10 => period / policies[0].limits()[0].count().max(1),
            11 => random.below(2 * period),
            12 => last.as_ref().and_then(Decision::retry_after).map_or(0, |wait| wait.as_micros() as u64),
            13 => {
                let wait = last.as_ref().and_then(Decision::retry_after).map_or(0, |wait| wait.as_micros() as u64);
                wait.saturating_sub(1)
            }
            14 => random.below(20 * SECOND),
            _ => 0,
        };
        let back = random.one_in(14).then(|| random.below(5 * SECOND + period.min(86_400 * SECOND)));
        now = match back {
            // The next call that writes forgets an override that has ended. A clock that goes back may see it again.
            Some(_) if overrides.0.is_some() => now,
            Some(back) => now - back,
            None => now + pause,
        };
        clock.set(Duration::from_micros(now));
        let which = random.pick(&[0, 0, 0, 1]);
        let policy = policies[which].clone();
        let key = random.pick(&keys);
        let capacity = policy.limits()[0].capacity();
        let cost = match random.below(12) {
            0 => capacity.max(1),
            1 => capacity / 2 + 1,
            2 => capacity + 1,
            3 => random.below(5) + 1,
            4 => (1 << 53) - 1,
            _ => 1,
        };
        if let Some(line) = overrides.step(limiter, &policy, key) {
            lines.push(format!("{step} now={now} {which} {key}: {line}"));
        }
        let asked = cost_for(&mut random, &policy, cost);
        let priority = policy.options().priorities.is_some().then(|| random.pick(&[None, Some("batch"), Some("rest")]));
        let priority = priority.flatten().map(str::to_owned);
        let asked_as = |asked: Cost| CheckOptions { priority: priority.clone(), ..asked.into() };
        let line = match random.below(24) {
            0..=10 if is_held(&policy) => match limiter.hold_with(&policy, key, &asked_as(asked)) {
                Ok(HoldAnswer::Held(hold)) => {
                    let line = text_of(hold.decision());
                    holds.push(hold);
                    line
                }
                denied => overrides.said(denied.map(|denied| denied.decision().clone())),
            },
            0..=10 => {
                let meta = (policy.options().journal > 0).then(|| format!("meta {step}").into_bytes());
                // A policy that cannot grant part of a cost refuses, with the same words in both stores.
                let options = CheckOptions { meta, partial: random.one_in(4), ..asked_as(asked) };
                match limiter.check_with(&policy, key, &options) {
                    Ok(decision) => {
                        let line = text_of(&decision);
                        last = Some(decision);
                        line
                    }
                    Err(refused) if options.partial => format!("refused {refused}"),
                    error => overrides.said(error),
                }
            }
            11 | 12 => overrides.said(limiter.peek_with(&policy, key, &asked_as(asked))),
            13 => overrides.said(limiter.charge(&policy, key, asked)),
            14 => overrides.said(limiter.refund(&policy, key, asked)),
            15 => match &last {
                Some(decision) => {
                    let known = policies.iter().find(|policy| policy.name() == decision.policy()).unwrap_or(&policy);
                    let actual = random.below(cost.min(1 << 50)) + 1;
                    let actual = cost_for(&mut random, known, actual);
                    format!("{:?}", limiter.settle(decision, actual))
                }
                None => String::new(),
            },
            16 => format!("{:?}", limiter.block(&policy, key, Duration::from_micros(random.below(9 * SECOND) + 1))),
            17 => format!("{:?}", limiter.unblock(&policy, key)),
            18 if random.one_in(3) => format!("{:?}", limiter.clear(&policy, key)),
            19 => {
                let other = policies[1 - which].clone();
                let cost = cost.min(1 << 50);
                let mut entry = |of, key, cost| {
                    let options = cost_for(&mut random, of, cost).into();
                    let priority = if std::ptr::eq(of, &raw const policy) { priority.clone() } else { None };
                    (of, key, CheckOptions { priority, ..options })
                };
                let entries = [
                    entry(&policy, key, 1),
                    entry(&other, keys[0], cost),
                    entry(&policy, key, cost),
                    entry(&policy, keys[1], 1),
                ];
                let entries = &entries[..random.below(4) as usize + 1];
                match limiter.check_all(entries.iter().cloned()) {
                    Ok(decision) => text_of(&decision),
                    Err(refused) if entries.iter().any(|(policy, ..)| is_held(policy)) => format!("refused {refused}"),
                    error => overrides.said(error),
                }
            }
            // Units of a `concurrency` limit that no hold renews.
            20 if is_held(&policy) => overrides.said({
                let units = random.below(3) + 1;
                let units = cost_for(&mut random, &policy, units);
                limiter.charge(&policy, key, units)
            }),
            21 if !holds.is_empty() => {
                drop(holds.remove(random.below(holds.len() as u64) as usize));
                "dropped".to_owned()
            }
            22 => format!("{:?}", limiter.journal(&policy, key)),
            23 if random.one_in(2) => {
                policies[which] = changed(&mut random, &policy);
                format!("changed to {:?}", policies[which])
            }
            _ => String::new(),
        };
        lines.push(format!("{step} now={now} {which} {key} cost={cost}: {line}"));
    }
    // Dropped here, so that they are released at the same place of the history in both stores.
    holds.clear();
    for (policy, key) in [(&policies[0], keys[0]), (&policies[0], keys[1]), (&policies[1], keys[0])] {
        lines.push(overrides.said({
            let asked = cost_for(&mut random, policy, 1);
            limiter.peek(policy, key, asked)
        }));
    }
    lines
}
