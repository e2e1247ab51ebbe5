//! The figures of one policy, counted while traffic is replayed through it.

use std::collections::{BTreeMap, VecDeque};

use tidegate::{Algorithm, Limit, Policy, Unit};

use crate::timeline::Timeline;
use crate::traffic::Event;

/// The answer of a policy to a call, as far as the figures need it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Answer {
    pub(crate) allowed: bool,
    /// True if the policy admitted it only because it is in shadow mode.
    pub(crate) shadow: bool,
    /// How long the caller waits before going on, in microseconds.
    pub(crate) delay: u64,
}

/// The figures of one policy.
#[derive(Debug, Default)]
pub(crate) struct Figures {
    /// Its limits, grouped by their unit.
    counted: Vec<CountedLimits>,
    pub(crate) asked: u64,
    pub(crate) admitted: u64,
    pub(crate) units_asked: u64,
    pub(crate) units_admitted: u64,
    /// For each unit with a name, the number asked and the number admitted.
    pub(crate) units: BTreeMap<Unit, [u64; 2]>,
    /// For each class, the calls asked and the calls admitted.
    pub(crate) classes: BTreeMap<String, [u64; 2]>,
    pub(crate) shadow_denied: u64,
    /// Calls that were made again after a refusal.
    pub(crate) retries: u64,
    /// Callers that stopped trying.
    pub(crate) gave_up: u64,
    pub(crate) longest_wait: Option<KeyWait>,
    pub(crate) longest_delay: u64,
    delays: u128,
    /// The longest time from the first attempt of a call to its admission.
    pub(crate) longest_turn: u64,
    turns: u128,
    /// The worst count of each limit when calls are admitted.
    pub(crate) worst: Vec<Worst>,
    /// The worst count of each limit when calls go on after their delay, for policies with a `leaky-bucket`.
    pub(crate) worst_after_delay: Option<Vec<Worst>>,
    keys: Vec<KeyFigures>,
    /// The costs of the calls over time, whatever the units of the limits.
    pub(crate) timeline: Timeline,
    /// Admitted calls that are remembered now.
    pub(crate) remembered: usize,
}

/// Limits with the same unit.
#[derive(Debug)]
struct CountedLimits {
    unit: Option<Unit>,
    /// The indexes of the limits in the policy, and their periods in microseconds.
    limits: Vec<usize>,
    periods: Vec<u64>,
    /// The units over time, if the unit has a name.
    timeline: Timeline,
}

/// A time from a refusal to the next admission of the same key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct KeyWait {
    pub(crate) micros: u64,
    pub(crate) key: u32,
}

/// The most units that were admitted in any window as long as a limit's period.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Worst {
    pub(crate) units: u64,
    pub(crate) key: u32,
    /// When the last unit in that window was admitted.
    pub(crate) at: u64,
}

/// How evenly keys were served, by the admitted share of each key's calls.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Fairness {
    /// Jain's index of the shares: 1 when all are equal, 1/n when one of n keys has everything.
    pub(crate) jain: f64,
    pub(crate) least: f64,
    pub(crate) most: f64,
}

#[derive(Debug, Default)]
struct KeyFigures {
    asked: u64,
    admitted: u64,
    refused_since: Option<u64>,
    admissions: Option<Box<Admissions>>,
}

/// The admissions of a key that are still in a window.
#[derive(Debug)]
struct Admissions {
    /// One for each unit.
    on_admission: Vec<WindowCounts>,
    after_delay: Vec<WindowCounts>,
}

/// Units in the newest window of each period: the times t with now - period < t <= now.
#[derive(Debug, Default)]
struct WindowCounts {
    units: VecDeque<(u64, u64)>,
    /// How many of `units` have left the window of each period, and the sum of the others.
    windows: Vec<(usize, u64)>,
}

impl WindowCounts {
    fn add(&mut self, event: &Event, at: u64, counted: &CountedLimits, worst: &mut [Worst]) {
        let cost = event.units_of(counted.unit.as_ref());
        self.windows.resize(counted.periods.len(), (0, 0));
        match self.units.back_mut() {
            Some((last, units)) if *last == at => *units += cost,
            _ => self.units.push_back((at, cost)),
        }
        let mut unused = usize::MAX;
        for (((left, sum), period), limit) in self.windows.iter_mut().zip(&counted.periods).zip(&counted.limits) {
            let worst = &mut worst[*limit];
            *sum += cost;
            while let Some((time, units)) = self.units.get(*left)
                && time + period <= at
            {
                *sum -= units;
                *left += 1;
            }
            if *sum > worst.units {
                *worst = Worst { units: *sum, key: event.key, at };
            }
            unused = unused.min(*left);
        }
        if unused > 0 && unused != usize::MAX {
            self.units.drain(..unused);
            self.windows.iter_mut().for_each(|(left, _)| *left -= unused);
        }
    }
}

impl Figures {
    pub(crate) fn new(policy: &Policy, start: u64) -> Self {
        let mut counted: Vec<CountedLimits> = Vec::new();
        for (index, limit) in policy.limits().iter().enumerate() {
            let same = counted.iter().position(|same| same.unit.as_ref() == limit.unit());
            let same = same.unwrap_or_else(|| {
                let (unit, timeline) = (limit.unit().cloned(), Timeline::new(start));
                counted.push(CountedLimits { unit, limits: Vec::new(), periods: Vec::new(), timeline });
                counted.len() - 1
            });
            counted[same].limits.push(index);
            counted[same].periods.push(limit.period().micros());
        }
        let has_delays = policy.limits().iter().any(|limit| limit.algorithm() == Algorithm::LeakyBucket);
        let worst = vec![Worst::default(); policy.limits().len()];
        Self {
            counted,
            worst_after_delay: has_delays.then(|| worst.clone()),
            worst,
            timeline: Timeline::new(start),
            ..Self::default()
        }
    }

    /// Counts a call and its answer.
    pub(crate) fn count(&mut self, event: &Event, answer: Answer) {
        self.asked += 1;
        self.units_asked += event.cost;
        self.shadow_denied += u64::from(answer.shadow);
        if self.keys.len() <= event.key as usize {
            self.keys.resize_with(event.key as usize + 1, KeyFigures::default);
        }
        self.count_named(event, answer.allowed);
        let key = &mut self.keys[event.key as usize];
        key.asked += 1;
        if !answer.allowed {
            key.refused_since.get_or_insert(event.at);
            self.timeline.count(event.at, event.cost, 0);
            return;
        }
        self.admitted += 1;
        self.units_admitted += event.cost;
        self.timeline.count(event.at, event.cost, event.cost);
        key.admitted += 1;
        if let Some(since) = key.refused_since.take() {
            let wait = KeyWait { micros: event.at - since, key: event.key };
            if self.longest_wait.is_none_or(|longest| longest.micros < wait.micros) {
                self.longest_wait = Some(wait);
            }
        }
        self.longest_delay = self.longest_delay.max(answer.delay);
        self.delays += u128::from(answer.delay);
        self.count_admission(event, answer.delay);
    }

    /// Counts how long it took until a call was admitted.
    pub(crate) fn count_turn(&mut self, micros: u64) {
        self.longest_turn = self.longest_turn.max(micros);
        self.turns += u128::from(micros);
    }

    /// Counts the named units and the class of a call.
    fn count_named(&mut self, event: &Event, allowed: bool) {
        let admitted = |count: u64| if allowed { count } else { 0 };
        for counted in &mut self.counted {
            let Some(unit) = &counted.unit else { continue };
            let units = event.units_of(Some(unit));
            counted.timeline.count(event.at, units, admitted(units));
            let sums = self.units.entry(unit.clone()).or_default();
            (sums[0], sums[1]) = (sums[0] + units, sums[1] + admitted(units));
        }
        if let Some(class) = event.class() {
            let sums = self.classes.entry(class.to_owned()).or_default();
            (sums[0], sums[1]) = (sums[0] + 1, sums[1] + admitted(1));
        }
    }

    /// The asked and admitted units of a limit over time.
    pub(crate) fn timeline_of(&self, limit: &Limit) -> &Timeline {
        let counted =
            self.counted.iter().find(|counted| counted.unit.is_some() && counted.unit.as_ref() == limit.unit());
        counted.map_or(&self.timeline, |counted| &counted.timeline)
    }

    fn count_admission(&mut self, event: &Event, delay: u64) {
        let has_delays = self.worst_after_delay.is_some();
        let admissions = self.keys[event.key as usize].admissions.get_or_insert_with(|| {
            Box::new(Admissions {
                on_admission: self.counted.iter().map(|_| WindowCounts::default()).collect(),
                after_delay: self.counted.iter().filter(|_| has_delays).map(|_| WindowCounts::default()).collect(),
            })
        });
        let before = admissions.len();
        for (counts, counted) in admissions.on_admission.iter_mut().zip(&self.counted) {
            counts.add(event, event.at, counted, &mut self.worst);
        }
        if let Some(worst) = &mut self.worst_after_delay {
            for (counts, counted) in admissions.after_delay.iter_mut().zip(&mut self.counted) {
                counts.add(event, event.at + delay, counted, worst);
                if let Some(unit) = &counted.unit {
                    counted.timeline.count_going(event.at + delay, event.units_of(Some(unit)));
                }
            }
            self.timeline.count_going(event.at + delay, event.cost);
        }
        self.remembered = self.remembered + admissions.len() - before;
    }

    pub(crate) fn refused(&self) -> u64 {
        self.asked - self.admitted
    }

    /// The number of keys that were refused last, and the longest time since such refusals began.
    pub(crate) fn still_refused(&self, end: u64) -> (usize, Option<u64>) {
        let waits = self.keys.iter().filter_map(|key| Some(end.saturating_sub(key.refused_since?)));
        (waits.clone().count(), waits.max())
    }

    pub(crate) fn mean_delay(&self) -> f64 {
        self.delays as f64 / (self.admitted as f64).max(1.0)
    }

    pub(crate) fn mean_turn(&self) -> f64 {
        self.turns as f64 / (self.admitted as f64).max(1.0)
    }

    /// Keys that were refused at least once.
    pub(crate) fn refused_keys(&self) -> usize {
        self.keys.iter().filter(|key| key.admitted < key.asked).count()
    }

    /// `None` without calls.
    pub(crate) fn fairness(&self) -> Option<Fairness> {
        let mut count = 0.0;
        let mut sum = 0.0;
        let mut squares = 0.0;
        let mut least = f64::INFINITY;
        let mut most = 0.0_f64;
        for key in self.keys.iter().filter(|key| key.asked > 0) {
            let share = key.admitted as f64 / key.asked as f64;
            count += 1.0;
            sum += share;
            squares += share * share;
            least = least.min(share);
            most = most.max(share);
        }
        // Keys that all have nothing are served evenly.
        let jain = if squares == 0.0 { 1.0 } else { sum * sum / (count * squares) };
        (count > 0.0).then_some(Fairness { jain, least, most })
    }
}

impl Admissions {
    fn len(&self) -> usize {
        self.on_admission.iter().chain(&self.after_delay).map(|counts| counts.units.len()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answered(allowed: bool) -> Answer {
        Answer { allowed, shadow: false, delay: 0 }
    }

    #[test]
    fn a_window_is_open_at_its_start() {
        let policy = Policy::parse("2/s; 3/2s").expect("a policy");
        let mut figures = Figures::new(&policy, 0);
        for at in [0, 1_000_000, 1_999_999, 2_000_000, 2_500_000] {
            figures.count(&Event { at, key: 0, cost: 1, asked: None }, answered(true));
        }
        let units: Vec<u64> = figures.worst.iter().map(|worst| worst.units).collect();
        assert_eq!((units, figures.worst[0].at), (vec![3, 4], 2_500_000));
        assert_eq!(figures.remembered, 4, "the first has left both windows");
    }

    #[test]
    fn a_wait_begins_with_the_first_refusal() {
        let policy = Policy::parse("1/s").expect("a policy");
        let mut figures = Figures::new(&policy, 0);
        for (at, key, allowed) in
            [(0, 0, true), (1, 0, false), (5, 0, false), (7, 1, false), (9, 0, true), (10, 1, false)]
        {
            figures.count(&Event { at, key, cost: 1, asked: None }, answered(allowed));
        }
        assert_eq!(figures.longest_wait, Some(KeyWait { micros: 8, key: 0 }));
        assert_eq!(figures.still_refused(20), (1, Some(13)));
        let fairness = figures.fairness().expect("calls");
        assert_eq!((fairness.least, fairness.most, fairness.jain), (0.0, 0.5, 0.5));
    }
}
