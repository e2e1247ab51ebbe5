//! The results of a simulation, for the table, for JSON and for the plots.

use serde_json::{Map, Value, json};
use tidegate::{Limit, Policy, Unit};

use crate::calendar::SECOND;
use crate::figures::{Figures, Worst};
use crate::replay::Replay;
use crate::text::escaped;
use crate::traffic::moment::words;
use crate::traffic::{Keys, Summary, Traffic};
use crate::waiting_callers::Retry;

/// A trace with times before March 1973 counts them from its own start.
const EARLIEST_DATE: u64 = 100_000_000 * SECOND;

/// The results of a simulation.
pub struct Report {
    pub(crate) traffic: Summary,
    pub(crate) calls: u64,
    pub(crate) units: u64,
    pub(crate) keys: usize,
    /// Microseconds since 1970.
    pub(crate) start: u64,
    pub(crate) end: u64,
    /// True if these are dates, and not times since a start that a pattern or a trace chose.
    pub(crate) has_dates: bool,
    pub(crate) store: &'static str,
    pub(crate) policies: Vec<PolicyReport>,
    pub(crate) notes: Vec<String>,
    pub(crate) command: String,
    pub(crate) files: Vec<String>,
}

/// The results of one policy.
pub(crate) struct PolicyReport {
    pub(crate) policy: Policy,
    pub(crate) figures: Figures,
    longest_wait_key: Option<String>,
    /// The number of keys that were refused last, and the longest time since such refusals began.
    pub(crate) still_refused: (usize, Option<u64>),
    /// True if its callers waited for their turns.
    pub(crate) has_turns: bool,
    /// The worst counts of the figures, with the limits and the names of the keys.
    pub(crate) worst: Vec<NamedWorst>,
    pub(crate) worst_after_delay: Option<Vec<NamedWorst>>,
}

/// The worst count of a limit, with the key by name.
pub(crate) struct NamedWorst {
    pub(crate) limit: Limit,
    pub(crate) units: u64,
    key: String,
    pub(crate) at: u64,
}

impl NamedWorst {
    /// The count divided by that of the limit. `None` for a limit of 0.
    pub(crate) fn ratio(&self) -> Option<f64> {
        (self.limit.count() > 0).then(|| self.units as f64 / self.limit.count() as f64)
    }

    fn json(&self) -> Value {
        json!({
            "limit": self.limit.to_string(),
            "algorithm": self.limit.algorithm().name(),
            "count": self.limit.count(),
            "unit": self.limit.unit().map(Unit::name),
            "period": seconds(self.limit.period().micros()),
            "worst": self.units,
            "ratio": self.ratio().map(rounded),
            "key": (self.units > 0).then_some(&self.key),
            "at": (self.units > 0).then(|| seconds(self.at)),
        })
    }
}

impl PolicyReport {
    fn new(replay: Replay, keys: &Keys, end: u64) -> Self {
        let Replay { policy, figures, callers, .. } = replay;
        let name = |key: u32| keys.name(key).to_owned();
        let named = |counts: &Vec<Worst>| -> Vec<NamedWorst> {
            let limits = policy.limits().iter().cloned().zip(counts);
            let named = |(limit, worst): (Limit, &Worst)| NamedWorst {
                limit,
                units: worst.units,
                key: name(worst.key),
                at: worst.at,
            };
            limits.map(named).collect()
        };
        Self {
            longest_wait_key: figures.longest_wait.map(|wait| name(wait.key)),
            still_refused: figures.still_refused(end),
            has_turns: callers.retries.how == Retry::Turn,
            worst: named(&figures.worst),
            worst_after_delay: figures.worst_after_delay.as_ref().map(named),
            policy,
            figures,
        }
    }

    /// The worst count of the limit that the plot shows: the one with the highest ratio to its limit.
    pub(crate) fn drawn_limit(&self) -> &NamedWorst {
        let share = |worst: &NamedWorst| worst.ratio().unwrap_or(f64::INFINITY);
        // If two are equal, the longer period wins, because it shows more of the traffic.
        let period = |worst: &NamedWorst| worst.limit.period().micros();
        let nearest = self.worst.iter().max_by(|a, b| share(a).total_cmp(&share(b)).then(period(a).cmp(&period(b))));
        nearest.expect("a policy has a limit")
    }

    /// The policy's name as people see it, and its notation if that is another text.
    pub(crate) fn names(&self) -> (String, Option<String>) {
        let (name, notation) = (self.policy.name(), self.policy.to_string());
        (escaped(name), (name != notation).then_some(notation))
    }

    /// Both in one text.
    pub(crate) fn title(&self) -> String {
        let (name, notation) = self.names();
        notation.map_or_else(|| name.clone(), |notation| format!("{name} ({notation})"))
    }

    fn json(&self) -> Value {
        let figures = &self.figures;
        let worst = |counts: &Vec<NamedWorst>| counts.iter().map(NamedWorst::json).collect::<Value>();
        let sums = |[asked, admitted]: [u64; 2]| json!({"asked": asked, "admitted": admitted});
        let units: Map<String, Value> =
            figures.units.iter().map(|(unit, of)| (unit.name().to_owned(), sums(*of))).collect();
        let classes: Map<String, Value> =
            figures.classes.iter().map(|(class, of)| (class.clone(), sums(*of))).collect();
        json!({
            "units": units,
            "classes": classes,
            "policy": self.policy.name(),
            "notation": self.policy.to_string(),
            "shadow": self.policy.options().shadow,
            "asked": figures.asked,
            "admitted": figures.admitted,
            "refused": figures.refused(),
            "refused_percent": percent(figures.refused(), figures.asked),
            "units_asked": figures.units_asked,
            "units_admitted": figures.units_admitted,
            "shadow_denied": figures.shadow_denied,
            "retries": figures.retries,
            "gave_up": figures.gave_up,
            "longest_wait": figures.longest_wait.map(|wait| seconds(wait.micros)),
            "longest_wait_key": self.longest_wait_key,
            "still_refused": {"keys": self.still_refused.0, "longest": self.still_refused.1.map(seconds)},
            "worst": worst(&self.worst),
            "fairness": figures.fairness().map(|fairness| json!({
                "jain": rounded(fairness.jain), "least": rounded(fairness.least), "most": rounded(fairness.most),
            })),
            "delay": self.worst_after_delay.as_ref().map(|counts| json!({
                "mean": rounded(figures.mean_delay() / SECOND as f64),
                "longest": seconds(figures.longest_delay),
                "worst": worst(counts),
            })),
            "turn": self.has_turns.then(|| json!({
                "mean": rounded(figures.mean_turn() / SECOND as f64),
                "longest": seconds(figures.longest_turn),
            })),
        })
    }
}

/// A share in percent, 0 of nothing.
pub(crate) fn percent(part: u64, whole: u64) -> f64 {
    rounded(part as f64 * 100.0 / (whole as f64).max(1.0))
}

fn rounded(number: f64) -> f64 {
    (number * 1e6).round() / 1e6
}

fn seconds(micros: u64) -> f64 {
    micros as f64 / SECOND as f64
}

impl Report {
    pub(crate) fn new(replays: Vec<Replay>, traffic: &Traffic, (start, end): (u64, u64), command: String) -> Self {
        let first = replays.first();
        let summary = traffic.summary();
        Self {
            has_dates: summary.is_recorded && start >= EARLIEST_DATE,
            traffic: summary,
            calls: first.map_or(0, |replay| replay.figures.asked - replay.figures.retries),
            units: first.map_or(0, Replay::units),
            keys: traffic.key_count(),
            start,
            end,
            store: first.map_or("memory", |replay| replay.store),
            notes: notes(&replays, traffic),
            policies: replays.into_iter().map(|replay| PolicyReport::new(replay, &traffic.keys, end)).collect(),
            command,
            files: Vec::new(),
        }
    }

    /// The figures as JSON: times in seconds, `null` for a number that does not exist.
    pub fn json(&self) -> Value {
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

/// The notes that a reader of the figures has to know.
fn notes(replays: &[Replay], traffic: &Traffic) -> Vec<String> {
    let mut notes = traffic.notes();
    for replay in replays {
        let name = replay.policy.name();
        let waiting = replay.callers.len();
        if waiting > 0 {
            notes.push(format!("{name}: {waiting} callers would try again after the end of the traffic"));
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
