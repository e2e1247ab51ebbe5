//! Traffic through one policy: a limiter with its own clock, callers that retry, and the decisions.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tidegate::host::Call;
use tidegate::{CheckOptions, Cost, Limiter, ManualClock, OnStoreError, Policy, Unit, Units};

use super::figures::{Answer, Figures};
use super::traffic::{Event, Keys};
use super::waiting_callers::{Retries, Retry, Tried, WaitingCallers};
use crate::Result;
use crate::limiter_builder::limiter_builder;
use crate::temporary_keys::TemporaryKeys;

/// Room for more keys than a simulation may have, so that the store forgets none.
const MEMORY: &str = if usize::BITS < 64 {
    "memory://?max_keys=8000000&max_bytes=2GB"
} else {
    "memory://?max_keys=8000000&max_bytes=64GB"
};
/// How long Redis may take for a check.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Redis keeps a value at least so much longer than it is needed, in microseconds of real time.
const GRACE: i128 = 250_000;

/// One policy during the replay.
pub(super) struct Replay {
    pub(super) policy: Policy,
    pub(super) figures: Figures,
    clock: Arc<ManualClock>,
    limiter: Limiter,
    /// `memory`, `file` or `redis`.
    pub(super) store: &'static str,
    /// The pace on a shared store, where keys expire in real time.
    on_redis: Option<Pace>,
    callers: WaitingCallers,
    retried_units: u64,
    /// Lines of CSV that are not written yet, if decisions are kept.
    decisions: Option<String>,
    /// Its keys in a shared store.
    temporary: Option<TemporaryKeys>,
}

/// Compares real time with the time of the traffic.
struct Pace {
    started: Instant,
    first: u64,
    /// The least that real time was ahead so far, and the most that it gained from there, in microseconds.
    least: i128,
    most: i128,
}

impl Replay {
    /// A replay in memory, or on the given store under the prefix.
    pub(super) fn new(
        policy: &Policy,
        store: Option<&str>,
        prefix: &str,
        start: u64,
        retries: Retries,
    ) -> Result<Self> {
        // Every check asks the store itself, and a store that fails ends the simulation.
        let mut options = policy.options().clone();
        (options.on_store_error, options.lease, options.journal) = (Some(OnStoreError::Raise), None, 0);
        if retries.how == Retry::Turn {
            // An attempt that goes on waiting is no denial.
            (options.block_for, options.forgive, options.count_denied) = (None, None, false);
        }
        let policy = Policy::new(policy.limits().to_vec(), options)?.named(policy.name())?;
        let clock = Arc::new(ManualClock::new(Duration::from_micros(start)));
        let store = store.unwrap_or(MEMORY);
        let builder = limiter_builder().store(store).prefix(prefix).clock(Arc::clone(&clock));
        let builder = builder.deny_cache(Duration::ZERO).timeout(TIMEOUT).on_store_error(OnStoreError::Raise);
        let on_redis = (!builder.is_local()).then(|| Pace { started: Instant::now(), first: start, least: 0, most: 0 });
        let limiter = builder.clone().build()?;
        let kind = match on_redis {
            None => "memory",
            Some(_) if store.starts_with("file:") => "file",
            Some(_) => "redis",
        };
        let temporary = on_redis.is_some().then(|| TemporaryKeys::of(builder, &limiter)).transpose()?;
        Ok(Self {
            figures: Figures::new(&policy, start),
            policy,
            clock,
            limiter,
            store: kind,
            on_redis,
            callers: WaitingCallers::new(retries),
            retried_units: 0,
            decisions: None,
            temporary,
        })
    }

    /// Keeps every decision as a line of CSV, until it is taken.
    pub(super) fn keep_decisions(&mut self) {
        self.decisions = Some(String::new());
    }

    /// Replays calls, and before each the retries that are due.
    pub(super) fn run(&mut self, events: &[Event], keys: &Keys) -> Result<()> {
        for event in events {
            self.retry_until(event.at, keys)?;
            self.ask(event, Tried { since: event.at, attempts: 0 }, keys)?;
        }
        Ok(())
    }

    /// Replays the retries that are due until `end`. After the end of the traffic, no retries are made.
    pub(super) fn retry_until(&mut self, end: u64, keys: &Keys) -> Result<()> {
        while let Some((event, tried)) = self.callers.due(end) {
            self.figures.retries += 1;
            self.retried_units += event.cost;
            self.ask(&event, tried, keys)?;
        }
        Ok(())
    }

    fn ask(&mut self, event: &Event, tried: Tried, keys: &Keys) -> Result<()> {
        let key = keys.name(event.key);
        self.clock.set(Duration::from_micros(event.at));
        let decision = self.limiter.call(&self.policy, key, &Call::Unheld(self.options(event).into()))?;
        if let Some(pace) = &mut self.on_redis {
            pace.note(event.at);
        }
        let micros = |length: Duration| u64::try_from(length.as_micros()).unwrap_or(u64::MAX);
        let allowed = decision.allowed();
        let answer = Answer { allowed, shadow: decision.shadow(), delay: micros(decision.delay()) };
        self.figures.count(event, answer);
        if let Some(lines) = &mut self.decisions {
            let retry_after = decision.retry_after().map_or_else(|| "never".to_owned(), |wait| seconds(micros(wait)));
            let (at, delay) = (seconds(event.at), seconds(answer.delay));
            // Writing to a string cannot fail.
            let _ = writeln!(
                lines,
                "{},{at},{},{},{allowed},{},{},{retry_after},{delay},{},{}",
                quoted(self.policy.name()),
                quoted(key),
                event.cost,
                answer.shadow,
                decision.remaining(),
                quoted(&units_text(event)),
                quoted(event.class().unwrap_or_default()),
            );
        }
        if allowed {
            self.figures.count_turn(event.at - tried.since);
            self.callers.leave(event, tried);
        } else if !self.callers.refuse(event, tried, decision.retry_after().map(micros)) {
            self.figures.gave_up += 1;
        }
        Ok(())
    }

    /// The options of a call: the units that the policy counts, and the class if the policy has classes.
    fn options(&self, event: &Event) -> CheckOptions {
        let Some(asked) = &event.asked else { return Cost::of_each(&self.policy, event.cost).into() };
        let units = self
            .policy
            .limits()
            .iter()
            .map(|limit| limit.unit())
            .map(|unit| (unit.map_or("cost", Unit::name), event.units_of(unit)));
        let is_counted = self.policy.limits().iter().any(|limit| limit.unit().is_some());
        let cost = if is_counted { units.collect::<Units>().into() } else { Cost::from(event.cost) };
        let classes = self.policy.options().priorities.as_ref();
        CheckOptions { priority: classes.and(asked.class.clone()), ..cost.into() }
    }

    /// The units of the traffic, without those of retries.
    pub(super) fn units(&self) -> u64 {
        self.figures.units_asked - self.retried_units
    }

    /// Callers that would try again after the end.
    pub(super) fn waiting(&self) -> usize {
        self.callers.len()
    }

    /// True if callers wait for their turns, so that the length of the wait matters.
    pub(super) fn has_turns(&self) -> bool {
        self.callers.retries.how == Retry::Turn
    }

    /// The microseconds by which the store was slower than the traffic. `None` unless they were so many that a key may
    /// have expired in the store too early for the traffic.
    pub(super) fn slowness(&self) -> Option<u64> {
        let lag = self.on_redis.as_ref()?.most;
        (lag > GRACE).then(|| u64::try_from(lag).unwrap_or(u64::MAX))
    }

    /// The decisions since the last call, as lines of CSV. Empty if they are not kept.
    pub(super) fn take_decisions(&mut self) -> String {
        self.decisions.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Removes the keys of the replay from a shared store.
    pub(super) fn clear(&mut self) -> Result<()> {
        self.temporary.take().map_or(Ok(()), TemporaryKeys::remove)
    }
}

impl Pace {
    fn note(&mut self, at: u64) {
        let real = self.started.elapsed().as_micros() as i128;
        let ahead = real - i128::from(at - self.first);
        self.least = self.least.min(ahead);
        self.most = self.most.max(ahead - self.least);
    }
}

/// The first line of a file of decisions.
pub(super) const DECISION_COLUMNS: &str =
    "policy,time,key,cost,allowed,shadow_denied,remaining,retry_after,delay,units,priority\n";

/// The units of a call as text: `tokens=1200 pages=3`.
fn units_text(event: &Event) -> String {
    let units = event.asked.iter().flat_map(|asked| &asked.units);
    units.map(|(unit, count)| format!("{unit}={count}")).collect::<Vec<_>>().join(" ")
}

/// Microseconds as seconds, exactly.
fn seconds(micros: u64) -> String {
    format!("{}.{:06}", micros / 1_000_000, micros % 1_000_000)
}

fn quoted(text: &str) -> String {
    if text.contains([',', '"', '\n', '\r']) { format!("\"{}\"", text.replace('"', "\"\"")) } else { text.to_owned() }
}
