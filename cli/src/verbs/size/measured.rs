//! Measures the cost of checks on a store: its CPU time while this process calls it, and the memory of a few keys.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use redis::Value;
use tidegate::host::{ServerConnection, redis_key};
use tidegate::{Algorithm, AsyncLimiter, Cost, Decision, Error, Limiter, Policy};

use super::costs::{Costs, table_bytes, with_tables};
use crate::redis_cost::{RedisCost, name_bytes};
use crate::reply::Info;
use crate::store_options::{ChosenStore, StoreOptions};
use crate::temporary_keys::TemporaryKeys;
use crate::{Output, Result, invalid};

/// The length of each measurement, and of the one of an idle server before.
const TIME: Duration = Duration::from_millis(1_000);
const IDLE: Duration = Duration::from_millis(200);
/// Keys of a measurement, and calls that wait at the same moment.
const KEYS: usize = 500;
const TASKS: usize = 64;

/// Connections to the primaries of a store, for questions about them.
struct Primaries(Vec<ServerConnection>);

impl Primaries {
    fn of(store: &ChosenStore, timeout: Duration) -> Result<Self> {
        let mut connections = Vec::new();
        for servers in store.servers(timeout)? {
            for shard in servers.shards()? {
                connections.push(servers.connect(&shard.primary)?);
            }
        }
        Ok(Self(connections))
    }

    /// The CPU time of all primaries so far, in seconds. If a server reports the time of the thread that runs commands,
    /// only that counts. `None` if the user may not ask.
    fn cpu(&mut self) -> Result<Option<f64>, Error> {
        let mut sum = 0.0;
        for connection in &mut self.0 {
            let Some(info) = Info::of(&connection.ask(&["INFO", "cpu"])?) else { return Ok(None) };
            let seconds = |name: &str| info.get(name)?.parse::<f64>().ok();
            let both = |user: &str, system: &str| Some(seconds(user)? + seconds(system)?);
            let main = both("used_cpu_user_main_thread", "used_cpu_sys_main_thread");
            let Some(seconds) = main.or_else(|| both("used_cpu_user", "used_cpu_sys")) else { return Ok(None) };
            sum += seconds;
        }
        Ok(Some(sum))
    }

    /// The bytes of a key as MEMORY USAGE counts them. `None` if the user may not ask.
    fn memory_usage(&mut self, key: &[u8]) -> Result<Option<f64>, Error> {
        for connection in &mut self.0 {
            let reply = connection.ask(&[&b"MEMORY"[..], b"USAGE", key, b"SAMPLES", b"0"])?;
            if let Value::Int(bytes) = reply {
                return Ok(Some(bytes as f64));
            }
        }
        Ok(None)
    }
}

/// Measures the costs. If one cannot be measured, it is a figure of this project, with a note about it.
pub(super) fn costs(
    store: &ChosenStore,
    options: &StoreOptions,
    policies: &[Policy],
    output: &mut Output,
) -> Result<Costs> {
    let usual_prefix = options.prefix(store);
    let options = &options.with_temporary_keys("size");
    let limiter = options.limiter(store, output)?;
    let temporary = TemporaryKeys::of(options.builder(store)?, &limiter)?;
    let mut primaries = Primaries::of(store, options.timeout)?;
    output.progress("measuring memory …");
    let mut costs = Costs::shipped(policies);
    match key_bytes(&limiter, &mut primaries, [options.prefix(store), usual_prefix], policies)? {
        Some(bytes) => costs.key_bytes = bytes,
        None => costs
            .notes
            .push("The user may not run MEMORY USAGE: the memory is what the format of a key says.".to_owned()),
    }
    output.progress("measuring checks …");
    let before = primaries.cpu()?;
    thread::sleep(IDLE);
    let background = primaries.cpu()?.zip(before).map(|(after, before)| (after - before) / IDLE.as_secs_f64());
    if let Some(background) = background {
        costs.alone = per_check(&mut primaries, background, || alone(&limiter, policies))?;
        output.progress("measuring batches of checks …");
        let shared = options.shared_limiter(store)?;
        temporary.ended_by({
            let shared = shared.clone();
            move || shared.close()
        });
        costs.folded = per_check(&mut primaries, background, || folded(&shared, policies))?;
        costs.is_measured = true;
        costs.source = format!("measured now on {}: CPU time of the server, also for its sockets", store.shown());
        if background > 0.2 {
            costs.notes.push(format!(
                "Other clients keep the server {:.0} % busy; that was subtracted, and makes the figures less exact.",
                background * 100.0
            ));
        }
    } else {
        costs.notes.push("The user may not run INFO: the CPU time is a figure of this project.".to_owned());
    }
    temporary.remove()?;
    Ok(costs)
}

/// Measures the time of checks on a table of PostgreSQL, whose server does not tell its CPU time.
pub(super) fn costs_of_table(
    store: &ChosenStore,
    options: &StoreOptions,
    policies: &[Policy],
    output: &mut Output,
) -> Result<Costs> {
    let options = &options.with_temporary_keys("size");
    let limiter = options.limiter(store, output)?;
    let temporary = TemporaryKeys::of(options.builder(store)?, &limiter)?;
    let micros = |checks: u64| TIME.as_secs_f64() * 1e6 / checks.max(1) as f64;
    output.progress("measuring checks …");
    let one_by_one = micros(alone(&limiter, policies)?);
    output.progress("measuring batches of checks …");
    let shared = options.shared_limiter(store)?;
    temporary.ended_by({
        let shared = shared.clone();
        move || shared.close()
    });
    let together = micros(folded(&shared, policies)?);
    temporary.remove()?;
    Ok(Costs {
        source: format!(
            "measured now on {}: the time of a caller, and of {TASKS} at once, with the way there",
            store.shown()
        ),
        is_measured: true,
        alone: one_by_one,
        folded: together,
        key_bytes: table_bytes(policies),
        ..Costs::shipped(policies)
    })
}

/// Microseconds of CPU for each check of all policies.
fn per_check(primaries: &mut Primaries, background: f64, run: impl FnOnce() -> Result<u64>) -> Result<f64> {
    let begun = Instant::now();
    let before = primaries.cpu()?.unwrap_or(0.0);
    let checks = run()?;
    let spent = primaries.cpu()?.unwrap_or(0.0) - before - background * begun.elapsed().as_secs_f64();
    Ok((spent.max(0.0) * 1e6 / checks.max(1) as f64).max(0.1))
}

fn name(number: usize) -> String {
    format!("key {}", number % KEYS)
}

fn is_held(policy: &Policy) -> bool {
    policy.limits().iter().any(|limit| limit.algorithm() == Algorithm::Concurrency)
}

/// A check. If a unit must be held, it is a charge instead, which costs as much and needs no release.
fn spend(limiter: &Limiter, policy: &Policy, key: &str) -> Result<Decision, Error> {
    let cost = Cost::one_of_each(policy);
    if is_held(policy) { limiter.charge(policy, key, cost) } else { limiter.check_with(policy, key, &cost.into()) }
}

/// Checks one after the other, on this thread.
fn alone(limiter: &Limiter, policies: &[Policy]) -> Result<u64> {
    let ends = Instant::now() + TIME;
    let mut rounds = 0;
    while Instant::now() < ends {
        for policy in policies {
            spend(limiter, policy, &name(rounds))?;
        }
        rounds += 1;
    }
    Ok(rounds as u64)
}

/// Checks in many tasks, so that the limiter sends them in batches.
fn folded(limiter: &AsyncLimiter, policies: &[Policy]) -> Result<u64> {
    let failed = |error: std::io::Error| invalid(format!("the measurement cannot start: {error}"));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().map_err(failed)?;
    let policies: Arc<[Policy]> = policies.into();
    let ended = Arc::new(AtomicBool::new(false));
    runtime.block_on(async {
        let tasks: Vec<_> = (0..TASKS)
            .map(|task| {
                let limiter = limiter.clone();
                let policies = Arc::clone(&policies);
                let ended = Arc::clone(&ended);
                tokio::spawn(async move {
                    let mut rounds = 0;
                    while !ended.load(Ordering::Relaxed) {
                        let key = name(task + rounds * TASKS);
                        for policy in &*policies {
                            // As in `spend`.
                            match is_held(policy) {
                                true => limiter.charge(policy, &key, Cost::one_of_each(policy)).await?,
                                false => limiter.check_with(policy, &key, &Cost::one_of_each(policy).into()).await?,
                            };
                        }
                        rounds += 1;
                    }
                    Ok::<u64, Error>(rounds as u64)
                })
            })
            .collect();
        tokio::time::sleep(TIME).await;
        ended.store(true, Ordering::Relaxed);
        let mut sum = 0;
        for task in tasks {
            sum += task.await.map_err(|error| failed(std::io::Error::other(error)))??;
        }
        Ok(sum)
    })
}

/// The bytes of a key of each policy together: after one check, and with all units in use.
fn key_bytes(
    limiter: &Limiter,
    primaries: &mut Primaries,
    [prefix, usual_prefix]: [&str; 2],
    policies: &[Policy],
) -> Result<Option<(f64, f64)>> {
    let mut keys = Vec::new();
    for policy in policies {
        spend(limiter, policy, "once")?;
        let room = limiter
            .peek(policy, "full", Cost::one_of_each(policy))?
            .limits()
            .map(|limit| limit.remaining)
            .min()
            .unwrap_or(0);
        if room > 0 {
            limiter.charge(policy, "full", Cost::of_each(policy, room))?;
        }
        let once = primaries.memory_usage(&redis_key(&prefix.into(), policy, "once"))?;
        let full = primaries.memory_usage(&redis_key(&prefix.into(), policy, "full"))?;
        let Some(once) = once.or(full) else { return Ok(None) };
        // A window in constant use has a granule for each part of its period. To see them would take a whole period.
        let stated = RedisCost::of(policy).key.1 as f64;
        // The name of a temporary key is longer than that of a service.
        let beyond = name_bytes(prefix.len()) as f64 - name_bytes(usual_prefix.len()) as f64;
        keys.push((once - beyond, (full.unwrap_or(once) - beyond).max(stated)));
    }
    Ok(Some(with_tables(keys.into_iter(), policies.len())))
}
