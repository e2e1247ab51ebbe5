//! What a simulation has found: for the table, for JSON and for the plots.

use serde_json::{Value, json};
use tidegate::{Limit, Policy};

use super::figures::{Fairness, KeyWait, Worst};
use super::replay::Replay;
use super::timeline::Timeline;
use super::traffic::moment::words;
use super::traffic::{Summary, Traffic};
use crate::calendar::SECOND;

/// Traces whose times are before March 1973 count them from a start of their own.
const EARLIEST_DATE: u64 = 100_000_000 * SECOND;

/// The whole simulation.
pub(super) struct Report {
    pub(super) traffic: Summary,
    pub(super) calls: u64,
    pub(super) units: u64,
    pub(super) keys: usize,
    /// Microseconds since 1970.
    pub(super) start: u64,
    pub(super) end: u64,
    /// Whether these are moments of a calendar, and not times since a start that a pattern or a trace chose.
    pub(super) has_dates: bool,
    pub(super) store: &'static str,
    pub(super) policies: Vec<PolicyReport>,
    pub(super) notes: Vec<String>,
    pub(super) command: String,
    pub(super) files: Vec<String>,
}

/// What became of the traffic under one policy.
pub(super) struct PolicyReport {
    pub(super) name: String,
    pub(super) notation: String,
    pub(super) limits: Vec<Limit>,
    pub(super) shadow: bool,
    pub(super) asked: u64,
    pub(super) admitted: u64,
    pub(super) refused: u64,
    pub(super) units_asked: u64,
    pub(super) units_admitted: u64,
    pub(super) shadow_denied: u64,
    pub(super) retries: u64,
    pub(super) gave_up: u64,
    pub(super) longest_wait: Option<NamedWait>,
    /// How many keys were refused last, and the longest time since.
    pub(super) still_refused: (usize, Option<NamedWait>),
    pub(super) worst: Vec<NamedWorst>,
    /// Keys that were refused at least once.
    pub(super) refused_keys: usize,
    pub(super) fairness: Option<Fairness>,
    pub(super) delay: Option<Delays>,
    pub(super) timeline: Timeline,
}

/// A wait, with the key by name.
pub(super) struct NamedWait {
    pub(super) micros: u64,
    pub(super) key: String,
}

/// The worst count of a limit, with the key by name.
pub(super) struct NamedWorst {
    pub(super) limit: Limit,
    pub(super) units: u64,
    pub(super) key: String,
    pub(super) at: u64,
}

/// The delays of a `leaky-bucket`, in microseconds.
pub(super) struct Delays {
    pub(super) mean: f64,
    pub(super) longest: u64,
    /// The worst counts when calls go on after their delay.
    pub(super) worst: Vec<NamedWorst>,
}

impl NamedWorst {
    /// The count in proportion to the limit's; `None` for a limit of 0.
    pub(super) fn ratio(&self) -> Option<f64> {
        (self.limit.count() > 0).then(|| self.units as f64 / self.limit.count() as f64)
    }
}

impl PolicyReport {
    fn new(replay: &Replay, traffic: &Traffic, end: u64) -> Self {
        let (policy, figures): (&Policy, _) = (&replay.policy, &replay.figures);
        let name = |key: u32| traffic.keys.name(key).to_owned();
        let wait = |wait: KeyWait| NamedWait { micros: wait.micros, key: name(wait.key) };
        let worst = |counts: &[Worst]| -> Vec<NamedWorst> {
            let limits = policy.limits().iter().zip(counts);
            let named = |(limit, worst): (&Limit, &Worst)| NamedWorst {
                limit: limit.clone(),
                units: worst.units,
                key: if worst.units > 0 { name(worst.key) } else { String::new() },
                at: worst.at,
            };
            limits.map(named).collect()
        };
        let (still_refused, longest) = figures.still_refused(end);
        Self {
            name: policy.name().to_owned(),
            notation: policy.to_string(),
            limits: policy.limits().to_vec(),
            shadow: policy.options().shadow,
            asked: figures.asked,
            admitted: figures.admitted,
            refused: figures.refused(),
            units_asked: figures.units_asked,
            units_admitted: figures.units_admitted,
            shadow_denied: figures.shadow_denied,
            retries: figures.retries,
            gave_up: figures.gave_up,
            longest_wait: figures.longest_wait.map(wait),
            still_refused: (still_refused, longest.map(wait)),
            worst: worst(&figures.worst),
            refused_keys: figures.refused_keys(),
            fairness: figures.fairness(),
            delay: figures.worst_after_delay.as_ref().map(|counts| Delays {
                mean: figures.mean_delay(),
                longest: figures.longest_delay,
                worst: worst(counts),
            }),
            timeline: figures.timeline.clone(),
        }
    }

    /// The limit that the plot shows: the one whose worst count is nearest to it, or most above it.
    pub(super) fn drawn_limit(&self) -> usize {
        let share = |worst: &NamedWorst| worst.ratio().unwrap_or(f64::INFINITY);
        let nearest = self.worst.iter().enumerate().max_by(|a, b| {
            // Of equal ones the longer period, which says more of the traffic.
            let order = share(a.1).total_cmp(&share(b.1));
            order.then(a.1.limit.period().micros().cmp(&b.1.limit.period().micros()))
        });
        nearest.map_or(0, |(index, _)| index)
    }

    /// The policy's name, and its notation where that is another text.
    pub(super) fn title(&self) -> String {
        if self.name == self.notation { self.name.clone() } else { format!("{} ({})", self.name, self.notation) }
    }

    fn json(&self) -> Value {
        let wait = |wait: &Option<NamedWait>| wait.as_ref().map(|wait| seconds(wait.micros));
        json!({
            "policy": self.name,
            "notation": self.notation,
            "shadow": self.shadow,
            "asked": self.asked,
            "admitted": self.admitted,
            "refused": self.refused,
            "refused_percent": percent(self.refused, self.asked),
            "units_asked": self.units_asked,
            "units_admitted": self.units_admitted,
            "shadow_denied": self.shadow_denied,
            "retries": self.retries,
            "gave_up": self.gave_up,
            "longest_wait": wait(&self.longest_wait),
            "longest_wait_key": self.longest_wait.as_ref().map(|wait| &wait.key),
            "still_refused": {"keys": self.still_refused.0, "longest": wait(&self.still_refused.1)},
            "worst": self.worst.iter().map(worst_json).collect::<Vec<_>>(),
            "fairness": self.fairness.map(|fairness| json!({
                "jain": rounded(fairness.jain), "least": rounded(fairness.least), "most": rounded(fairness.most),
            })),
            "delay": self.delay.as_ref().map(|delay| json!({
                "mean": rounded(delay.mean / SECOND as f64),
                "longest": seconds(delay.longest),
                "worst": delay.worst.iter().map(worst_json).collect::<Vec<_>>(),
            })),
        })
    }
}

fn worst_json(worst: &NamedWorst) -> Value {
    json!({
        "limit": worst.limit.to_string(),
        "algorithm": worst.limit.algorithm().name(),
        "count": worst.limit.count(),
        "period": seconds(worst.limit.period().micros()),
        "worst": worst.units,
        "ratio": worst.ratio().map(rounded),
        "key": (worst.units > 0).then_some(&worst.key),
        "at": (worst.units > 0).then(|| seconds(worst.at)),
    })
}

/// A share in percent, 0 of nothing.
pub(super) fn percent(part: u64, whole: u64) -> f64 {
    rounded(part as f64 * 100.0 / (whole as f64).max(1.0))
}

fn rounded(number: f64) -> f64 {
    (number * 1e6).round() / 1e6
}

fn seconds(micros: u64) -> f64 {
    micros as f64 / SECOND as f64
}

impl Report {
    pub(super) fn new(replays: &[Replay], traffic: &Traffic, (start, end): (u64, u64)) -> Self {
        let policies: Vec<PolicyReport> =
            replays.iter().map(|replay| PolicyReport::new(replay, traffic, end)).collect();
        let first = replays.first();
        let calls = first.map_or(0, |replay| replay.figures.asked - replay.figures.retries);
        let summary = traffic.summary();
        let mut report = Self {
            has_dates: summary.is_recorded && start >= EARLIEST_DATE,
            traffic: summary,
            calls,
            units: first.map_or(0, |replay| replay.units()),
            keys: traffic.key_count(),
            start,
            end,
            store: if first.is_some_and(Replay::is_shared) { "redis" } else { "memory" },
            policies,
            notes: Vec::new(),
            command: String::new(),
            files: Vec::new(),
        };
        report.notes = notes(replays, traffic);
        report
    }

    pub(super) fn json(&self) -> Value {
        let mut traffic = self.traffic.json.clone();
        traffic["calls"] = self.calls.into();
        traffic["units"] = self.units.into();
        traffic["keys"] = self.keys.into();
        traffic["start"] = seconds(self.start).into();
        traffic["end"] = seconds(self.end).into();
        json!({
            "traffic": traffic,
            "store": self.store,
            "command": self.command,
            "policies": self.policies.iter().map(PolicyReport::json).collect::<Vec<_>>(),
            "files": self.files,
            "notes": self.notes,
        })
    }
}

/// What a reader of the figures has to know.
fn notes(replays: &[Replay], traffic: &Traffic) -> Vec<String> {
    let mut notes = Vec::new();
    if let Some((lines, first)) = traffic.skipped() {
        notes.push(format!("{lines} lines were skipped; the first: {first}"));
    }
    notes.extend(traffic.pooled());
    for replay in replays {
        let name = replay.policy.name();
        if replay.waiting() > 0 {
            notes.push(format!("{name}: {} callers would try again after the end of the traffic", replay.waiting()));
        }
        if let Some(slowness) = replay.slowness() {
            notes.push(format!(
                "{name}: the store needed up to {} more than the traffic's own time, so keys may have expired too early and \
                 more calls were admitted than by the limit: compare with a simulation in memory",
                words(slowness)
            ));
        }
    }
    notes
}
