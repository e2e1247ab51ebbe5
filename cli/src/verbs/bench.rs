//! `tidegate bench`: checks per second and latency, on this machine and this store.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use serde_json::json;
use tidegate::{CheckOptions, Cost, Limiter, Policy};
use tidegate_simulate::text::{counted, number};

use crate::store_options::StoreOptions;
use crate::temporary_keys::TemporaryKeys;
use crate::terminal::{BOLD, DIM, NAME, paint};
use crate::time_text::length;
use crate::{Outcome, Output, Result, invalid, policy_argument};

/// Latencies that each thread keeps: a sample of all, so that memory is bounded.
const KEPT: usize = 200_000;
/// The most keys, because their names are in memory.
const MAX_KEYS: u64 = 1_000_000;

#[derive(Debug, Args)]
#[command(
    after_help = "The keys have a temporary prefix, and the verb removes them at the end. It puts a load on the server, so be \
        careful with a server in use.

Examples:
  $ tidegate bench
  $ tidegate bench --seconds 1 --concurrency 4 --keys 1
  $ tidegate bench \"20/minute; 5/3s\" --store redis://localhost:6379 --seconds 1 --json"
)]
pub(crate) struct Bench {
    /// A notation, or the name of a policy of --policies
    #[arg(default_value = "gcra 1000000/s")]
    policy: String,
    /// The seconds to measure
    #[arg(long, value_name = "N", default_value_t = 3.0)]
    seconds: f64,
    /// The number of threads that check at the same time
    #[arg(long, value_name = "N", default_value_t = 1)]
    concurrency: usize,
    /// The number of different keys. With 1, all checks use the same key
    #[arg(long, value_name = "N", default_value_t = 1_000)]
    keys: u64,
    #[command(flatten)]
    store: StoreOptions,
}

/// The measurements of one thread, or of all.
#[derive(Default)]
struct Measured {
    checks: u64,
    allowed: u64,
    /// In nanoseconds.
    latencies: Vec<u64>,
}

impl Bench {
    pub(crate) fn run(&self, output: &mut Output) -> Result<Outcome> {
        self.validate()?;
        let file = self.store.policies.read()?;
        let policy = policy_argument::find(&self.policy, file.as_ref())?;
        let store = self.store.chosen(file.as_ref());
        let options = self.store.with_temporary_keys("bench");
        let limiter = options.limiter(&store, output)?;
        let temporary = TemporaryKeys::of(options.builder(&store)?, &limiter)?;
        // The names are made first, so that the measurement does not include it.
        let keys: Arc<[String]> = (0..self.keys).map(|key| format!("key {key}")).collect();
        let begun = Instant::now();
        let mut measured = self.measure(&limiter, &policy, &keys, output)?;
        let elapsed = begun.elapsed();
        temporary.remove()?;
        measured.latencies.sort_unstable();
        let rate = measured.checks as f64 / elapsed.as_secs_f64();
        let latency = |share: f64| percentile(&measured.latencies, share);
        let shares = [("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p99.9", 0.999), ("max", 1.0)];
        if output.is_json() {
            let micros = shares.map(|(name, share)| (name, latency(share).as_nanos() as f64 / 1e3));
            let micros: serde_json::Value = micros.into_iter().collect();
            output.json(&json!({
                "store": store.shown(),
                "policy": policy.name(),
                "seconds": elapsed.as_secs_f64(),
                "concurrency": self.concurrency,
                "keys": self.keys,
                "checks": measured.checks,
                "allowed": measured.allowed,
                "checks_per_second": rate,
                "latency_micros": micros,
            }));
            return Ok(Outcome::Done);
        }
        output.line(format!("{}  on {}", paint(NAME, policy.name()), store.shown()));
        let (threads, keys) = (counted(self.concurrency, "thread"), counted(number(self.keys), "key"));
        output.line(paint(DIM, &format!("  {threads}, {keys}, {:.1} s", elapsed.as_secs_f64())));
        output.line(format!("  {} checks per second", paint(BOLD, &number(rate as u64))));
        let text = shares.map(|(name, share)| format!("{name} {}", shown(latency(share))));
        output.line(format!("  {}", text.join("   ")));
        output.line(format!("  {} of {} allowed", number(measured.allowed), number(measured.checks)));
        Ok(Outcome::Done)
    }

    fn validate(&self) -> Result<()> {
        let keys = format!("--keys must be from 1 to {MAX_KEYS}");
        let wrong = [
            (!(0.01..=3_600.0).contains(&self.seconds), "--seconds must be from 0.01 to 3600"),
            (!(1..=256).contains(&self.concurrency), "--concurrency must be from 1 to 256"),
            (!(1..=MAX_KEYS).contains(&self.keys), &*keys),
        ];
        wrong.iter().find(|(is_wrong, _)| *is_wrong).map_or(Ok(()), |(_, why)| Err(invalid(*why)))
    }

    fn measure(
        &self,
        limiter: &Limiter,
        policy: &Policy,
        keys: &Arc<[String]>,
        output: &mut Output,
    ) -> Result<Measured> {
        let (ends, counted) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let threads: Vec<_> = (0..self.concurrency as u64)
            .map(|thread| {
                let limiter = limiter.clone();
                let policy = policy.clone();
                let keys = Arc::clone(keys);
                let (ends, counted) = (Arc::clone(&ends), Arc::clone(&counted));
                thread::spawn(move || checks(&limiter, &policy, &keys, thread, &ends, &counted))
            })
            .collect();
        let begun = Instant::now();
        let whole = Duration::from_secs_f64(self.seconds);
        while begun.elapsed() < whole && !threads.iter().all(thread::JoinHandle::is_finished) {
            thread::sleep((whole.saturating_sub(begun.elapsed())).min(Duration::from_millis(100)));
            let rate = counted.load(Ordering::Relaxed) as f64 / begun.elapsed().as_secs_f64();
            let left = whole.saturating_sub(begun.elapsed()).as_secs_f64();
            output.progress(&format!("{} checks per second, {left:.0} s left", number(rate as u64)));
        }
        ends.store(true, Ordering::Relaxed);
        let mut all = Measured::default();
        for thread in threads {
            let one =
                thread.join().map_err(|_| invalid("a thread of the measurement panicked: please report it"))??;
            all.checks += one.checks;
            all.allowed += one.allowed;
            all.latencies.extend(one.latencies);
        }
        Ok(all)
    }
}

/// Checks keys in turn until `ends` is set.
fn checks(
    limiter: &Limiter,
    policy: &Policy,
    keys: &[String],
    thread: u64,
    ends: &AtomicBool,
    counted: &AtomicU64,
) -> Result<Measured, tidegate::Error> {
    let mut measured = Measured::default();
    let has_units = policy.limits().iter().any(|limit| limit.unit().is_some());
    let options = has_units.then(|| CheckOptions::from(Cost::one_of_each(policy)));
    let mut at = (thread as usize).wrapping_mul(7_919);
    while !ends.load(Ordering::Relaxed) {
        let begun = Instant::now();
        let allowed = match &options {
            None => limiter.check(policy, &keys[at % keys.len()]),
            Some(options) => limiter.check_with(policy, &keys[at % keys.len()], options),
        }?
        .allowed();
        let nanos = begun.elapsed().as_nanos() as u64;
        at = at.wrapping_add(1);
        measured.allowed += u64::from(allowed);
        // Keeps the first latencies. After that, every 17th replaces an old one.
        let place = measured.checks as usize % KEPT;
        match measured.latencies.get_mut(place) {
            Some(old) if measured.checks.is_multiple_of(17) => *old = nanos,
            Some(_) => {}
            None => measured.latencies.push(nanos),
        }
        measured.checks += 1;
        if measured.checks.is_multiple_of(64) {
            counted.fetch_add(64, Ordering::Relaxed);
        }
    }
    Ok(measured)
}

/// The latency that this share of the calls does not pass.
fn percentile(sorted: &[u64], share: f64) -> Duration {
    let index = ((sorted.len() as f64 * share).ceil() as usize).clamp(1, sorted.len().max(1)) - 1;
    Duration::from_nanos(sorted.get(index).copied().unwrap_or_default())
}

/// A latency for people, in nanoseconds if it is below a microsecond.
fn shown(latency: Duration) -> String {
    if latency < Duration::from_micros(1) { format!("{} ns", latency.as_nanos()) } else { length(latency) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_the_latencies_that_a_share_does_not_pass() {
        let sorted: Vec<u64> = (1..=100).collect();
        let at = |share| percentile(&sorted, share).as_nanos();
        assert_eq!([at(0.5), at(0.99), at(0.999), at(1.0), at(0.0)], [50, 99, 100, 100, 1]);
        assert_eq!(percentile(&[], 0.5), Duration::ZERO);
    }
}
