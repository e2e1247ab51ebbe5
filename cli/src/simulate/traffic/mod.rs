//! The calls that are replayed: of a trace, or of a pattern.

mod access_log;
mod field;
mod json_lines;
pub(super) mod moment;
pub(super) mod pattern;
mod timestamps;
pub(super) mod trace;

use std::collections::HashMap;
use std::sync::Arc;

use clap::ValueEnum;
use serde_json::{Value, json};

use crate::Failure;

/// The most keys of a simulation: each has state in every policy.
const MAX_KEYS: usize = 1_000_000;
/// The most bytes that their names may have.
const MAX_KEY_BYTES: usize = 256 << 20;

/// One call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Event {
    /// Microseconds since 1970.
    pub(super) at: u64,
    /// The number of its key.
    pub(super) key: u32,
    pub(super) cost: u64,
}

/// The keys of a simulation, by number.
#[derive(Debug, Default)]
pub(super) struct Keys {
    names: Vec<Arc<str>>,
    numbers: HashMap<Arc<str>, u32>,
    bytes: usize,
}

impl Keys {
    pub(super) fn len(&self) -> usize {
        self.names.len()
    }

    pub(super) fn name(&self, number: u32) -> &str {
        self.names.get(number as usize).map_or("", |name| name)
    }

    /// The number of a key, also of a new one.
    pub(super) fn add(&mut self, name: &str) -> Result<u32, Failure> {
        if let Some(number) = self.numbers.get(name) {
            return Ok(*number);
        }
        self.bytes += name.len();
        if self.names.len() == MAX_KEYS || self.bytes > MAX_KEY_BYTES {
            return Err(Failure::argument(format!(
                "the traffic has more than {MAX_KEYS} keys, or their names have more than {} MiB: every key takes memory in \
                 every policy; simulate a part of the traffic, or choose a key with fewer values",
                MAX_KEY_BYTES >> 20
            )));
        }
        let (number, name) = (self.names.len() as u32, Arc::<str>::from(name));
        self.names.push(Arc::clone(&name));
        self.numbers.insert(name, number);
        Ok(number)
    }
}

/// How the traffic came to be, for titles and for JSON.
#[derive(Debug, Clone)]
pub(super) struct Summary {
    /// `boundary` or the name of a file.
    pub(super) title: String,
    /// What else there is to say of it.
    pub(super) details: Vec<String>,
    pub(super) json: Value,
    /// Whether its times are those of a calendar, and not chosen by the simulation.
    pub(super) is_recorded: bool,
}

enum Source {
    Pattern(pattern::Calls),
    Trace(trace::Trace),
    Sorted(std::vec::IntoIter<Event>, Box<trace::Trace>),
}

/// Calls in the order of their times.
pub(super) struct Traffic {
    pub(super) keys: Keys,
    source: Source,
    last: Option<Event>,
    /// The one key whose calls are replayed.
    only_key: Option<String>,
}

impl Traffic {
    pub(super) fn of_pattern(plan: &pattern::Plan) -> Result<Self, Failure> {
        let mut keys = Keys::default();
        for number in 1..=plan.keys {
            keys.add(&format!("user-{number}"))?;
        }
        Ok(Self { keys, source: Source::Pattern(pattern::Calls::new(plan.clone())), last: None, only_key: None })
    }

    /// A trace; `sorted` reads it as a whole first.
    pub(super) fn of_trace(mut trace: trace::Trace, sorted: bool) -> Result<Self, Failure> {
        let mut keys = Keys::default();
        let source = if sorted {
            let events = trace.read_sorted(&mut keys)?;
            Source::Sorted(events.into_iter(), Box::new(trace))
        } else {
            Source::Trace(trace)
        };
        Ok(Self { keys, source, last: None, only_key: None })
    }

    /// The same without the calls of other keys.
    pub(super) fn with_only_key(mut self, key: Option<String>) -> Self {
        self.only_key = key;
        self
    }

    /// How many keys make the calls.
    pub(super) fn key_count(&self) -> usize {
        if self.only_key.is_some() { 1 } else { self.keys.len() }
    }

    /// Replaces what `events` has by the next calls, at most that many. None are left when it stays empty.
    pub(super) fn fill(&mut self, events: &mut Vec<Event>, most: usize) -> Result<(), Failure> {
        events.clear();
        while events.len() < most {
            let event = match &mut self.source {
                Source::Pattern(calls) => calls.next(),
                Source::Sorted(calls, _) => calls.next(),
                Source::Trace(trace) => trace.next(&mut self.keys)?,
            };
            let Some(event) = event else { break };
            if let (Source::Trace(trace), Some(last)) = (&self.source, self.last)
                && event.at < last.at
            {
                return Err(trace.out_of_order(event.at, last.at));
            }
            self.last = Some(event);
            if self.only_key.as_deref().is_none_or(|key| key == self.keys.name(event.key)) {
                events.push(event);
            }
        }
        Ok(())
    }

    /// The moments between which the traffic lies: those that a pattern names, else those of the calls.
    pub(super) fn span(&self, first: u64) -> (u64, u64) {
        let last = self.last.map_or(first, |event| event.at);
        match &self.source {
            Source::Pattern(calls) => calls.span(),
            Source::Trace(_) | Source::Sorted(..) => (first, last),
        }
    }

    /// How much of the traffic was replayed, from 0 to 1, when that can be known.
    pub(super) fn progress(&self) -> Option<f64> {
        match &self.source {
            Source::Pattern(calls) => {
                let (start, end) = calls.span();
                let done = self.last.map_or(start, |event| event.at) - start;
                Some(done as f64 / (end - start).max(1) as f64)
            }
            Source::Trace(trace) => trace.progress(),
            Source::Sorted(calls, trace) => {
                let left = calls.len() as f64;
                Some(1.0 - left / (trace.events() as f64).max(1.0))
            }
        }
    }

    pub(super) fn summary(&self) -> Summary {
        let mut summary = match &self.source {
            Source::Pattern(calls) => calls.summary(),
            Source::Trace(trace) => trace.summary(),
            Source::Sorted(_, trace) => trace.summary(),
        };
        if let Some(key) = &self.only_key {
            summary.details.push(format!("only the key {key:?}"));
        }
        summary.json["only_key"] = self.only_key.clone().into();
        summary
    }

    /// What is said of callers that the trace does not tell apart.
    pub(super) fn pooled(&self) -> Option<String> {
        match &self.source {
            Source::Pattern(_) => None,
            Source::Trace(trace) => trace.pooled(),
            Source::Sorted(_, trace) => trace.pooled(),
        }
    }

    /// The lines that were skipped, and what was wrong with the first of them.
    pub(super) fn skipped(&self) -> Option<(u64, &str)> {
        match &self.source {
            Source::Pattern(_) => None,
            Source::Trace(trace) => trace.skipped(),
            Source::Sorted(_, trace) => trace.skipped(),
        }
    }
}

/// A choice as its option spells it.
pub(super) fn value_name(value: &impl ValueEnum) -> String {
    value.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
}

/// The first members of what JSON says of traffic.
fn json_of(source: &str, more: Value) -> Value {
    let mut value = json!({"source": source});
    if let (Value::Object(value), Value::Object(more)) = (&mut value, more) {
        value.extend(more);
    }
    value
}
