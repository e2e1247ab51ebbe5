//! Traffic through one policy: a limiter with its own clock, callers that retry, and the decisions.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tidegate::host::{Call, unpublished};
use tidegate::{Builder, CheckOptions, Cost, Limiter, ManualClock, OnStoreError, Policy, Result, Unit, Units};

use crate::figures::{Answer, Figures};
use crate::traffic::{Event, Keys};
use crate::waiting_callers::{Retries, Retry, Tried, WaitingCallers};

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

/// The store that `--store` names.
pub struct SharedStore<'a> {
    /// Its URL.
    pub url: &'a str,
    /// The prefix of all keys.
    pub prefix: &'a str,
    /// The function gets each limiter before the limiter writes keys, and a builder of another limiter that can remove them.
    pub opened: &'a mut dyn FnMut(Builder, &Limiter) -> Result<()>,
}

/// One policy during the replay.
pub(crate) struct Replay {
    pub(crate) policy: Policy,
    pub(crate) figures: Figures,
    clock: Arc<ManualClock>,
    limiter: Limiter,
    /// `memory`, `file` or `redis`.
    pub(crate) store: &'static str,
    /// The pace on a shared store, where keys expire in real time.
    on_redis: Option<Pace>,
    pub(crate) callers: WaitingCallers,
    retried_units: u64,
    /// Lines of CSV that are not written yet, if decisions are kept.
    pub(crate) decisions: Option<String>,
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
    /// A replay in memory, or on the given store, where keys have a prefix with the number of the policy.
    pub(crate) fn new(
        policy: &Policy,
        number: usize,
        store: Option<&mut SharedStore<'_>>,
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
        let builder = unpublished(Limiter::builder()).clock(Arc::clone(&clock)).on_store_error(OnStoreError::Raise);
        let builder = builder.deny_cache(Duration::ZERO).timeout(TIMEOUT);
        let builder = match &store {
            None => builder.store(MEMORY),
            Some(store) => builder.store(store.url).prefix(format!("{}{number}:", store.prefix)),
        };
        let on_redis = (!builder.is_local()).then(|| Pace { started: Instant::now(), first: start, least: 0, most: 0 });
        let limiter = builder.clone().build()?;
        let kind = match store.filter(|_| on_redis.is_some()) {
            None => "memory",
            Some(store) => {
                (store.opened)(builder, &limiter)?;
                if store.url.starts_with("file:") { "file" } else { "redis" }
            }
        };
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
        })
    }

    /// Replays calls, and before each the retries that are due.
    pub(crate) fn run(&mut self, events: &[Event], keys: &Keys) -> Result<()> {
        for event in events {
            self.retry_until(event.at, keys)?;
            self.ask(event, Tried { since: event.at, attempts: 0 }, keys)?;
        }
        Ok(())
    }

    /// Replays the retries that are due until `end`. After the end of the traffic, no retries are made.
    pub(crate) fn retry_until(&mut self, end: u64, keys: &Keys) -> Result<()> {
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
    pub(crate) fn units(&self) -> u64 {
        self.figures.units_asked - self.retried_units
    }

    /// The microseconds by which the store was slower than the traffic. `None` unless they were so many that a key may
    /// have expired in the store too early for the traffic.
    pub(crate) fn slowness(&self) -> Option<u64> {
        let lag = self.on_redis.as_ref()?.most;
        (lag > GRACE).then(|| u64::try_from(lag).unwrap_or(u64::MAX))
    }

    /// The decisions since the last call, as lines of CSV. Empty if they are not kept.
    pub(crate) fn take_decisions(&mut self) -> String {
        self.decisions.as_mut().map(std::mem::take).unwrap_or_default()
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
pub(crate) const DECISION_COLUMNS: &str =
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
