//! Finds out whether any order of recorded calls explains their answers. It relies only on the promises to users:
//! `model` computes each answer from everything that was charged before, and shares no code with the rules.
//!
//! `search.rs` searches the history of a group of keys exactly. A Decision has the store's time, so the order of the
//! calls with a Decision is known. A call without an answer, or a loss of data, can have happened at any time from its
//! begin on, or never. `moments.rs` lists the times that make a difference. A group is undecided if its search would
//! take too long. `bounds.rs` checks every group for the rules that hold in any order. `docs/adr/0014` has the reasons.

mod bounds;
mod event;
mod moments;
mod possible_state;
mod search;

use std::collections::BTreeMap;

use tidegate::Policy;

use crate::call_records::{CallRecord, FaultRecord};
use event::WallClock;

/// A contradiction that no order of calls explains.
#[derive(Debug, Clone)]
pub struct Violation {
    /// The group of keys.
    pub group: String,
    /// The recorded answer, and those that the model gives.
    pub what: String,
}

/// The result of a check.
#[derive(Debug, Clone, Default)]
pub struct Report {
    /// Groups of keys.
    pub groups: usize,
    /// Groups with a call of unknown outcome, or with data that may be lost.
    pub uncertain: usize,
    /// Groups that would have taken too long to search.
    pub undecided: usize,
    /// Calls with a Decision of the store.
    pub decided_calls: usize,
    /// Calls without an answer.
    pub failed_calls: usize,
    /// Contradictions that no order of calls explains.
    pub violations: Vec<Violation>,
}

impl Report {
    /// The report in one line.
    #[must_use]
    pub fn summary(&self) -> String {
        let Self { groups, uncertain, undecided, decided_calls, failed_calls, violations } = self;
        format!(
            "{decided_calls} answered and {failed_calls} failed calls in {groups} groups, {uncertain} of them uncertain and \
             {undecided} undecided: {} violations",
            violations.len()
        )
    }
}

/// Pairs of `CLOCK_MONOTONIC` in nanoseconds and the wall clock in microseconds, taken before and during the run.
pub type ClockReadings = Vec<(u64, u64)>;

/// Checks records against the model. If a change may become visible so many microseconds after its moment, its `slack`, a call
/// that changes nothing may read what was stored before a change that had not ended when the call began.
///
/// # Panics
/// When a record names an unknown policy.
#[must_use]
pub fn check(
    policies: &[Policy],
    records: &[CallRecord],
    faults: &[FaultRecord],
    readings: &ClockReadings,
    slack: u64,
) -> Report {
    let clock = WallClock::of(readings);
    let mut groups: BTreeMap<&str, Vec<&CallRecord>> = BTreeMap::new();
    for record in records {
        groups.entry(&record.group).or_default().push(record);
    }
    let mut report = Report { groups: groups.len(), ..Report::default() };
    for (name, records) in groups {
        let mut found = |what: String| report.violations.push(Violation { group: name.to_owned(), what });
        let history = match event::History::of(&records, faults, &clock, slack) {
            Ok(history) => history,
            Err(what) => {
                found(what);
                continue;
            }
        };
        bounds::check(policies, &history).into_iter().for_each(&mut found);
        match search::explain(policies, &history, slack) {
            search::Verdict::Explained => {}
            search::Verdict::Undecided => report.undecided += 1,
            search::Verdict::Unexplained(what) => found(what),
        }
        report.uncertain += usize::from(!history.uncertain.is_empty());
        report.decided_calls += history.decided.len();
        report.failed_calls += history.failed;
    }
    report
}
