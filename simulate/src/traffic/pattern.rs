//! Traffic that is made up: a shape, a rate, keys, and a seed that determines everything else.

use std::collections::VecDeque;

use clap::ValueEnum;
use serde_json::json;

use super::moment::{trimmed, words};
use super::{Event, Summary, value_name};
use crate::calendar::{DAY, MINUTE, SECOND};
use crate::text::{counted, of_unit};

/// The start of every pattern: Monday, 1 January 2024. An hour, a day, a week, a month and a year begin then.
const START: u64 = 1_704_067_200 * SECOND;
/// The most calls of a pattern.
pub(crate) const MAX_CALLS: f64 = 1e8;
/// The share of a window that a burst or an attack takes.
const BURST_SHARE: f64 = 0.02;

/// A shape of traffic.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Shape {
    /// Calls at equal distances, one key after another
    Steady,
    /// Each key is silent for most of --window and sends all its calls at once
    Bursts,
    /// The attack on fixed windows: all calls at the end of one --window and at the start of the next
    Boundary,
    /// Calls at random moments, with a fifth of the rate in the second half. Refused callers try again
    RetryStorm,
    /// A backlog of outgoing calls: all calls of --rate and --duration come at the start, and each waits for its turn, as
    /// with `acquire`
    Outgoing,
    /// The curve of a day: fewest calls at 4:00, most at 16:00. A few keys make most of the calls
    Daily,
}

/// A pattern with its numbers.
#[derive(Debug, Clone)]
pub struct Plan {
    /// How the calls are spread over time and keys.
    pub shape: Shape,
    /// Calls per second of all keys.
    pub rate: f64,
    /// Microseconds.
    pub duration: u64,
    /// The number of keys.
    pub keys: u32,
    /// The start of the random numbers.
    pub seed: u64,
    /// The window of bursts and of the attack, in microseconds.
    pub window: u64,
    /// The cost, the units and the class of each call.
    pub call: Event,
}

/// Random numbers from a seed, by SplitMix64.
#[derive(Debug, Clone)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// From 0 to less than 1.
    pub(crate) fn share(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    fn below(&mut self, bound: u32) -> u32 {
        ((self.share() * f64::from(bound)) as u32).min(bound.saturating_sub(1))
    }
}

/// The calls of a pattern, in order.
pub(crate) struct Calls {
    plan: Plan,
    random: Random,
    /// The keys in a random order, for shapes that take them in turn.
    order: Vec<u32>,
    /// Sums of the shares of the keys, if some have more calls than others.
    popularity: Vec<f64>,
    /// The calls so far.
    count: u64,
    /// Microseconds since the start, for shapes with random distances.
    time: f64,
    /// The calls of one window, for shapes with windows.
    waiting: VecDeque<Event>,
    windows: u64,
}

impl Calls {
    pub(crate) fn new(plan: Plan) -> Self {
        let mut random = Random::new(plan.seed);
        let mut order: Vec<u32> = (0..plan.keys).collect();
        for last in (1..order.len()).rev() {
            order.swap(last, random.below(last as u32 + 1) as usize);
        }
        let mut sum = 0.0;
        let popularity = (1..=plan.keys).map(|rank| {
            sum += 1.0 / f64::from(rank);
            sum
        });
        let popularity = if plan.shape == Shape::Daily { popularity.collect() } else { Vec::new() };
        Self { plan, random, order, popularity, count: 0, time: 0.0, waiting: VecDeque::new(), windows: 0 }
    }

    pub(crate) fn next(&mut self) -> Option<Event> {
        let event = match self.plan.shape {
            Shape::Steady => self.steady(),
            Shape::Bursts | Shape::Boundary => self.windowed()?,
            Shape::RetryStorm | Shape::Daily => self.random(),
            Shape::Outgoing => self.backlog()?,
        };
        self.count += 1;
        (event.at < START + self.plan.duration).then_some(event)
    }

    pub(crate) fn span(&self) -> (u64, u64) {
        (START, START + self.plan.duration)
    }

    fn event(&self, since_start: f64, key: u32) -> Event {
        Event { at: START + since_start as u64, key, ..self.plan.call.clone() }
    }

    /// The next key, in turn.
    fn next_key(&self) -> u32 {
        self.order[(self.count % self.order.len() as u64) as usize]
    }

    fn steady(&self) -> Event {
        let time = self.count as f64 * SECOND as f64 / self.plan.rate;
        self.event(time, self.next_key())
    }

    /// All calls at the start.
    fn backlog(&self) -> Option<Event> {
        let calls = (self.plan.rate * self.plan.duration as f64 / SECOND as f64).round() as u64;
        (self.count < calls).then(|| self.event(0.0, self.next_key()))
    }

    /// Calls at random distances, with a rate that changes.
    fn random(&mut self) -> Event {
        let rate = self.plan.rate * self.rate_share(self.time);
        self.time -= (1.0 - self.random.share()).ln() * SECOND as f64 / rate;
        let key = match self.popularity.last() {
            None => self.random.below(self.plan.keys),
            Some(sum) => {
                let chosen = self.random.share() * sum;
                let rank = self.popularity.partition_point(|sum| *sum <= chosen);
                self.order[rank.min(self.order.len() - 1)]
            }
        };
        self.event(self.time, key)
    }

    /// The rate at a time, as a share of the plan's rate.
    fn rate_share(&self, time: f64) -> f64 {
        match self.plan.shape {
            Shape::Daily => {
                let of_day = (time / DAY as f64).fract();
                1.0 - 0.9 * (std::f64::consts::TAU * (of_day - 4.0 / 24.0)).cos()
            }
            Shape::RetryStorm if time > self.plan.duration as f64 / 2.0 => 0.2,
            _ => 1.0,
        }
    }

    /// Calls that come in windows.
    fn windowed(&mut self) -> Option<Event> {
        while self.waiting.is_empty() {
            if self.windows * self.plan.window >= self.plan.duration {
                return None;
            }
            let (start, next) = (self.windows * self.plan.window, self.windows + 1);
            // The calls of this window. Their fractions are not lost, but add up over all windows.
            let per_window = self.plan.rate * self.plan.window as f64 / SECOND as f64 / f64::from(self.plan.keys);
            let calls = (per_window * next as f64) as u64 - (per_window * self.windows as f64) as u64;
            let calls: Vec<Event> = match self.plan.shape {
                Shape::Bursts => self.bursts(start as f64, calls),
                _ => self.attack(start as f64, calls),
            };
            self.waiting.extend(calls);
            self.windows = next;
        }
        self.waiting.pop_front()
    }

    /// Each key has one burst, at a random moment of the window.
    fn bursts(&mut self, start: f64, calls: u64) -> Vec<Event> {
        let window = self.plan.window as f64;
        let mut events = Vec::new();
        for key in 0..self.plan.keys {
            let burst = start + self.random.share() * window * (1.0 - BURST_SHARE);
            let step = window * BURST_SHARE / calls.max(1) as f64;
            events.extend((0..calls).map(|call| self.event(burst + call as f64 * step, key)));
        }
        events.sort_by_key(|event| event.at);
        events
    }

    /// Two kinds of windows in turn. One has its first call at the start and the others at the end. The next has all of
    /// its calls at the start. So a fixed window that the first call opens ends exactly between the two.
    fn attack(&mut self, start: f64, calls: u64) -> Vec<Event> {
        let window = self.plan.window as f64;
        let share = window * BURST_SHARE;
        let is_first = self.windows.is_multiple_of(2);
        let mut events = Vec::new();
        for call in 0..calls {
            let time = match (is_first, call) {
                (true, 0) => start,
                (true, _) => start + window - share + share * call as f64 / calls as f64,
                (false, _) => start + share * call as f64 / calls as f64,
            };
            events.extend(self.order.iter().map(|key| self.event(time, *key)));
        }
        events
    }

    pub(crate) fn summary(&self) -> Summary {
        let Plan { shape, rate, duration, keys, seed, window, call: Event { cost, asked, .. } } = &self.plan;
        let window = matches!(shape, Shape::Bursts | Shape::Boundary).then_some(*window);
        let made = if *shape == Shape::Outgoing { "all at the start".to_owned() } else { spoken_rate(*rate) };
        let mut details = vec![made, counted(keys, "key")];
        details.extend(window.map(|window| format!("window {}", words(window))));
        details.push(format!("seed {seed}"));
        let units = asked.iter().flat_map(|asked| &asked.units);
        details.extend(units.clone().map(|(unit, count)| format!("{} a call", of_unit(*count, Some(unit)))));
        details.extend(asked.iter().filter_map(|asked| Some(format!("class {}", asked.class.as_ref()?))));
        let seconds = |micros: u64| micros as f64 / SECOND as f64;
        let mut json = json!({
            "source": "pattern",
            "pattern": value_name(shape),
            "rate": rate,
            "duration": seconds(*duration),
            "seed": seed,
            "window": window.map(seconds),
        });
        if *cost != 1 || asked.is_some() {
            json["cost"] = units.map(|(unit, count)| (unit.name(), *count)).chain([("cost", *cost)]).collect();
            json["priority"] = asked.iter().find_map(|asked| asked.class.as_deref()).into();
        }
        let title = match shape {
            Shape::Steady => "Steady traffic",
            Shape::Bursts => "Bursts",
            Shape::Boundary => "Boundary attack",
            Shape::RetryStorm => "Retry storm",
            Shape::Outgoing => "Calls that go out",
            Shape::Daily => "Daily curve",
        };
        Summary { title: title.to_owned(), details, json, is_recorded: false }
    }
}

/// A rate in the shortest unit of time that has at least one call.
fn spoken_rate(rate: f64) -> String {
    let units = [(1.0, "s"), (60.0, "minute"), (3_600.0, "hour")];
    let (seconds, unit) = units.into_iter().find(|(seconds, _)| rate * seconds >= 1.0).unwrap_or((86_400.0, "day"));
    format!("{} calls/{unit}", trimmed(rate * seconds))
}

/// The usual length of a pattern for policies with this longest period.
pub fn usual_duration(shape: Shape, longest_period: u64) -> u64 {
    match shape {
        Shape::Daily => DAY,
        Shape::Boundary => longest_period.saturating_mul(4).min(366 * DAY),
        _ => longest_period.saturating_mul(3).clamp(MINUTE, 366 * DAY),
    }
}
