//! The calls that are replayed: of a trace, or of a pattern.

mod asked;
pub(super) mod moment;
pub(super) mod pattern;
mod trace;
pub(super) mod trace_line;

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use clap::ValueEnum;
use serde_json::Value;

use crate::Failure;
pub(super) use asked::{Asked, of_option as cost_option};
use trace_line::TraceOptions;

/// The most keys of a simulation: each has state in every policy.
const MAX_KEYS: usize = 1_000_000;
/// The most bytes that their names may have.
const MAX_KEY_BYTES: usize = 256 << 20;

/// One call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Event {
    /// Microseconds since 1970.
    pub(super) at: u64,
    /// The number of its key.
    pub(super) key: u32,
    /// What it takes of limits that name no unit.
    pub(super) cost: u64,
    /// What else it says, behind a pointer: most traffic says nothing.
    pub(super) asked: Option<Arc<Asked>>,
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
    Trace(Box<trace::Trace>),
}

/// Calls in the order of their times.
pub(super) struct Traffic {
    pub(super) keys: Keys,
    source: Source,
    /// When the last call was.
    last: Option<u64>,
    /// The one key whose calls are replayed.
    only_key: Option<String>,
}

impl Traffic {
    pub(super) fn of_pattern(plan: pattern::Plan, only_key: Option<String>) -> Result<Self, Failure> {
        let mut keys = Keys::default();
        (1..=plan.keys).try_for_each(|number| keys.add(&format!("user-{number}")).map(drop))?;
        Ok(Self { keys, source: Source::Pattern(pattern::Calls::new(plan)), last: None, only_key })
    }

    pub(super) fn of_trace(path: &Path, options: &TraceOptions, only_key: Option<String>) -> Result<Self, Failure> {
        let mut keys = Keys::default();
        let source = Source::Trace(Box::new(trace::Trace::open(path, options, &mut keys)?));
        Ok(Self { keys, source, last: None, only_key })
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
                Source::Trace(trace) => trace.next(&mut self.keys)?,
            };
            let Some(event) = event else { break };
            if let (Source::Trace(trace), Some(last)) = (&self.source, self.last)
                && event.at < last
            {
                return Err(trace.out_of_order(event.at, last));
            }
            self.last = Some(event.at);
            if self.only_key.as_deref().is_none_or(|key| key == self.keys.name(event.key)) {
                events.push(event);
            }
        }
        Ok(())
    }

    /// The moments between which the traffic lies: those that a pattern names, else those of the calls.
    pub(super) fn span(&self, first: u64) -> (u64, u64) {
        match &self.source {
            Source::Pattern(calls) => calls.span(),
            Source::Trace(_) => (first, self.last.unwrap_or(first)),
        }
    }

    /// How much of the traffic was replayed, from 0 to 1, when that can be known.
    pub(super) fn progress(&self) -> Option<f64> {
        match &self.source {
            Source::Pattern(calls) => {
                let (start, end) = calls.span();
                let done = self.last.unwrap_or(start) - start;
                Some(done as f64 / (end - start).max(1) as f64)
            }
            Source::Trace(trace) => trace.progress(),
        }
    }

    pub(super) fn summary(&self) -> Summary {
        let mut summary = match &self.source {
            Source::Pattern(calls) => calls.summary(),
            Source::Trace(trace) => trace.summary(),
        };
        summary.details.extend(self.only_key.as_ref().map(|key| format!("only the key {key:?}")));
        summary.json["only_key"] = self.only_key.clone().into();
        summary
    }

    /// What a reader of the figures has to know of the trace.
    pub(super) fn notes(&self) -> Vec<String> {
        match &self.source {
            Source::Pattern(_) => Vec::new(),
            Source::Trace(trace) => trace.notes(),
        }
    }

    /// What to say when there is nothing to replay.
    pub(super) fn no_events(&self) -> String {
        match (&self.source, &self.only_key) {
            (_, Some(key)) if self.keys.len() > 0 => {
                format!("no call has the key {key:?} of --only-key: there are {} other keys", self.keys.len())
            }
            (Source::Trace(trace), _) => trace.no_events(),
            (Source::Pattern(_), _) => "the pattern has no calls: raise --rate or --duration".to_owned(),
        }
    }
}

/// A choice as its option spells it.
pub(super) fn value_name(value: &impl ValueEnum) -> String {
    value.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
}
