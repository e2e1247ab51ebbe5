//! The replayed calls, from a trace or from a pattern.

mod asked;
pub(crate) mod moment;
pub(crate) mod pattern;
mod trace;
pub(crate) mod trace_line;

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use clap::ValueEnum;
use serde_json::Value;
use tidegate::Result;

use crate::errors::invalid;
use asked::Asked;
use moment::words;
use pattern::{MAX_CALLS, Plan};
use trace_line::TraceOptions;

/// The most keys of a simulation, because each has state in every policy.
const MAX_KEYS: usize = 1_000_000;
/// The most bytes of all their names together.
const MAX_KEY_BYTES: usize = 256 << 20;

/// One call, of a trace or of a pattern.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// Microseconds since 1970.
    pub(crate) at: u64,
    /// The number of its key.
    pub(crate) key: u32,
    /// The units that it takes from limits without a named unit.
    pub(crate) cost: u64,
    /// Its named units and its class, behind a pointer because most traffic has neither.
    pub(crate) asked: Option<Arc<Asked>>,
}

/// The keys of a simulation, by number.
#[derive(Debug, Default)]
pub(crate) struct Keys {
    names: Vec<Arc<str>>,
    numbers: HashMap<Arc<str>, u32>,
    bytes: usize,
}

impl Keys {
    pub(crate) fn len(&self) -> usize {
        self.names.len()
    }

    pub(crate) fn name(&self, number: u32) -> &str {
        self.names.get(number as usize).map_or("", |name| name)
    }

    /// Returns the number of a key, and adds the key if it is new.
    pub(crate) fn add(&mut self, name: &str) -> Result<u32> {
        if let Some(number) = self.numbers.get(name) {
            return Ok(*number);
        }
        self.bytes += name.len();
        if self.names.len() == MAX_KEYS || self.bytes > MAX_KEY_BYTES {
            return Err(invalid(format!(
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

/// The origin of the traffic, for titles and for JSON.
#[derive(Debug, Clone)]
pub(crate) struct Summary {
    /// `boundary` or the name of a file.
    pub(crate) title: String,
    /// Further details, such as `10 keys`.
    pub(crate) details: Vec<String>,
    pub(crate) json: Value,
    /// True if its times were recorded, and not chosen by the simulation.
    pub(crate) is_recorded: bool,
}

enum Source {
    Pattern(pattern::Calls),
    Trace(Box<trace::Trace>),
}

/// Calls in the order of their times.
pub struct Traffic {
    pub(crate) keys: Keys,
    source: Source,
    /// The time of the last call.
    last: Option<u64>,
    /// The key of `--only-key`. Calls of other keys are not replayed.
    only_key: Option<String>,
}

impl Traffic {
    /// The calls of a pattern, all or those of one key.
    ///
    /// # Errors
    /// `config_invalid` for more calls or keys than a simulation may have.
    pub fn of_pattern(plan: Plan, only_key: Option<String>) -> Result<Self> {
        let Plan { rate, duration, .. } = plan;
        let calls = rate * duration as f64 / 1e6;
        if calls > MAX_CALLS {
            return Err(invalid(format!(
                "{rate} calls/s for {} are {calls:.0} calls, and a pattern has at most {MAX_CALLS:.0}: lower --rate or \
                 --duration",
                words(duration)
            )));
        }
        let mut keys = Keys::default();
        (1..=plan.keys).try_for_each(|number| keys.add(&format!("user-{number}")).map(drop))?;
        Ok(Self { keys, source: Source::Pattern(pattern::Calls::new(plan)), last: None, only_key })
    }

    /// The calls of a trace, all or those of one key.
    ///
    /// # Errors
    /// `config_invalid` for a file that cannot be read.
    pub fn of_trace(path: &Path, options: TraceOptions, only_key: Option<String>) -> Result<Self> {
        let mut keys = Keys::default();
        let source = Source::Trace(Box::new(trace::Trace::open(path, options, &mut keys)?));
        Ok(Self { keys, source, last: None, only_key })
    }

    /// The number of keys that make the calls.
    pub(crate) fn key_count(&self) -> usize {
        if self.only_key.is_some() { 1 } else { self.keys.len() }
    }

    /// Replaces the contents of `events` by the next calls, at most `most`. It stays empty if no calls are left.
    pub(crate) fn fill(&mut self, events: &mut Vec<Event>, most: usize) -> Result<()> {
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

    /// The start and the end of the traffic: those of the pattern, else the times of the first and the last call.
    pub(crate) fn span(&self, first: u64) -> (u64, u64) {
        match &self.source {
            Source::Pattern(calls) => calls.span(),
            Source::Trace(_) => (first, self.last.unwrap_or(first)),
        }
    }

    /// The replayed share of the traffic, from 0 to 1, if it can be known.
    pub(crate) fn progress(&self) -> Option<f64> {
        match &self.source {
            Source::Pattern(calls) => {
                let (start, end) = calls.span();
                let done = self.last.unwrap_or(start) - start;
                Some(done as f64 / (end - start).max(1) as f64)
            }
            Source::Trace(trace) => trace.progress(),
        }
    }

    pub(crate) fn summary(&self) -> Summary {
        let mut summary = match &self.source {
            Source::Pattern(calls) => calls.summary(),
            Source::Trace(trace) => trace.summary(),
        };
        summary.details.extend(self.only_key.as_ref().map(|key| format!("only the key {key:?}")));
        summary.json["only_key"] = self.only_key.clone().into();
        summary
    }

    /// The notes on the trace that a reader of the figures has to know.
    pub(crate) fn notes(&self) -> Vec<String> {
        match &self.source {
            Source::Pattern(_) => Vec::new(),
            Source::Trace(trace) => trace.notes(),
        }
    }

    /// The message if there is nothing to replay.
    pub(crate) fn no_events(&self) -> String {
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
pub fn value_name(value: &impl ValueEnum) -> String {
    value.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
}
