//! The records of one group of keys as events in the store's time, which is microseconds of the wall clock.

use crate::call_records::{Call, CallRecord, FaultRecord, Loss, Operation, Outcome};
use crate::decision_values::DecisionValues;

use super::ClockReadings;

/// A server and its clients read their clocks about this precisely. The difference of the readings comes on top.
const SLACK: u64 = 1_000;

/// Translates the clients' times to the wall clock.
pub(super) struct WallClock {
    /// Wall clock less monotonic clock, in microseconds.
    least: u64,
    most: u64,
}

impl WallClock {
    pub(super) fn of(readings: &ClockReadings) -> Self {
        let offsets = || readings.iter().map(|(monotonic, wall)| wall - monotonic / 1_000);
        Self { least: offsets().min().unwrap_or(0), most: offsets().max().unwrap_or(0) }
    }

    fn earliest(&self, monotonic: u64) -> u64 {
        monotonic / 1_000 + self.least - SLACK
    }

    fn latest(&self, monotonic: u64) -> u64 {
        monotonic / 1_000 + self.most + SLACK
    }
}

/// A call with a known time.
pub(super) struct DecidedCall<'a> {
    pub(super) at: u64,
    /// It ran between these.
    pub(super) from: u64,
    pub(super) until: u64,
    pub(super) call: &'a Call,
    pub(super) values: &'a DecisionValues,
    /// Names the call in a message.
    pub(super) record: &'a CallRecord,
}

/// An event at an unknown time.
#[derive(Debug, Clone, Copy)]
pub(super) enum Happening<'a> {
    /// A call, with its answer if there is one.
    Call(&'a Call, Option<&'a DecisionValues>),
    /// See [`Loss`].
    Everything,
    /// See [`Loss`].
    Newest,
}

/// See [`Happening`].
#[derive(Debug, Clone, Copy)]
pub(super) struct UncertainEvent<'a> {
    pub(super) what: Happening<'a>,
    pub(super) from: u64,
    pub(super) until: u64,
    /// True if it certainly happened.
    pub(super) certain: bool,
}

/// All events of a group.
pub(super) struct History<'a> {
    /// In order of their times.
    pub(super) decided: Vec<DecidedCall<'a>>,
    /// In order of their begin.
    pub(super) uncertain: Vec<UncertainEvent<'a>>,
    /// Calls without an answer.
    pub(super) failed: usize,
}

impl<'a> History<'a> {
    /// Fails when a Decision names a time at which its call was not running.
    pub(super) fn of(
        records: &[&'a CallRecord],
        faults: &[FaultRecord],
        clock: &WallClock,
        slack: u64,
    ) -> Result<Self, String> {
        let mut history = Self { decided: Vec::new(), uncertain: Vec::new(), failed: 0 };
        let (mut begin, mut end) = (u64::MAX, 0);
        for record in records {
            let (from, until) = (clock.earliest(record.begin) - slack, clock.latest(record.end));
            (begin, end) = (begin.min(from), end.max(until));
            let call = &record.call;
            let event =
                |values, until, certain| UncertainEvent { what: Happening::Call(call, values), from, until, certain };
            match &record.outcome {
                Outcome::Decided { at: Some(at), values } => {
                    if !(from..=until).contains(at) {
                        return Err(format!(
                            "the answer is one of {at}, the call ran from {from} to {until}: {record:?}"
                        ));
                    }
                    history.decided.push(DecidedCall { at: *at, from, until, call, values, record });
                }
                Outcome::Decided { at: None, values } => history.uncertain.push(event(Some(values), until, true)),
                Outcome::Done => history.uncertain.push(event(None, until, true)),
                Outcome::Local => {}
                Outcome::Failed(_) => {
                    history.failed += 1;
                    if call.operation != Operation::Peek {
                        history.uncertain.push(event(None, u64::MAX, false));
                    }
                }
            }
        }
        for fault in faults {
            let (from, until) = (clock.earliest(fault.begin), clock.latest(fault.end));
            let (what, certain) = match fault.loss {
                Loss::Nothing => continue,
                Loss::Everything => (Happening::Everything, true),
                Loss::EverythingOfSome => (Happening::Everything, false),
                Loss::Newest => (Happening::Newest, false),
            };
            if from <= end && until >= begin {
                history.uncertain.push(UncertainEvent { what, from, until, certain });
            }
        }
        // Next to other uncertain events, an answer without a time cannot be compared: the moments to try for the
        // others would depend on it, and it has no moment itself.
        if history.uncertain.len() > 1 {
            for event in &mut history.uncertain {
                if let Happening::Call(_, answer) = &mut event.what {
                    *answer = None;
                }
            }
        }
        history.decided.sort_by_key(|call| call.at);
        history.uncertain.sort_by_key(|event| event.from);
        Ok(history)
    }

    /// True if data may be lost.
    pub(super) fn has_loss(&self) -> bool {
        self.uncertain.iter().any(|event| !matches!(event.what, Happening::Call(..)))
    }
}
