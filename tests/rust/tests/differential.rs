//! The rules in Rust and the rules in Lua give identical Decisions for identical histories.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tidegate::{Builder, CheckOptions, Decision, KeyOverride, Limiter, ManualClock, OnStoreError, Options, Policy};
use tidegate_tests::any_limiter::fresh_prefix;
use tidegate_tests::budget::within;
use tidegate_tests::history::{self, text_of};
use tidegate_tests::random::Random;
use tidegate_tests::servers::{Kind, Servers};
use tidegate_tests::setting::setting;
use tidegate_tests::shared_file::SharedFile;
use tidegate_tests::strategies::is_held;

/// The histories of a full run (see `budget.rs`). `TIDEGATE_HISTORIES` sets another number, `TIDEGATE_SEED` runs a single one.
const HISTORIES: u64 = 10_000;

#[test]
fn memory_and_redis_agree() {
    agree(Kind::Single, HISTORIES, 5);
}

#[test]
fn memory_and_a_cluster_agree() {
    agree(Kind::Cluster, HISTORIES / 10, 2);
}

#[test]
fn memory_and_a_file_agree() {
    let shared = SharedFile::new();
    let clock = || Arc::new(ManualClock::new(Duration::ZERO));
    let (memory_clock, file_clock) = (clock(), clock());
    let memory = Limiter::builder().clock(Arc::clone(&memory_clock)).build().expect("a memory limiter");
    let file = Limiter::builder().store(shared.url("max_bytes=64MB")).timeout(Duration::from_secs(10));
    let file = file.on_store_error(OnStoreError::Raise).clock(Arc::clone(&file_clock)).build().expect("a limiter");
    for seed in within(2, seeds(HISTORIES)) {
        let expected = history::run(seed, &memory, &memory_clock);
        let found = history::run(seed, &file, &file_clock);
        history::agree(seed, &expected, &found);
    }
}

/// A table keeps a key in one value, which has a bound. Histories with a policy that could pass it are left out.
#[test]
fn memory_and_a_table_agree() {
    let server = Servers::start(Kind::Postgres);
    let clock = || Arc::new(ManualClock::new(Duration::ZERO));
    let (memory_clock, table_clock) = (clock(), clock());
    let memory = Limiter::builder().clock(Arc::clone(&memory_clock)).build().expect("a memory limiter");
    let table = Limiter::builder().store(format!("{}?create=yes", server.url())).timeout(Duration::from_secs(10));
    let table = table.on_store_error(OnStoreError::Raise).deny_cache(Duration::ZERO).clock(Arc::clone(&table_clock));
    let table = table.build().expect("a limiter");
    let (mut compared, mut seeds) = (0, within(3, seeds(HISTORIES)));
    for seed in seeds.by_ref() {
        let expected = history::run(seed, &memory, &memory_clock);
        let found = history::answers_of_redis(&table, &expected, || history::run(seed, &table, &table_clock));
        if !found.iter().any(|line| line.contains(history::BOUNDED)) {
            history::agree(seed, &expected, &found);
            compared += 1;
        }
    }
    assert!(compared * 2 > seeds.begun(), "{compared} of {} histories were compared", seeds.begun());
}

/// Named policies from a file that changes. A check from before a reload is settled after it, overrides stay, and a
/// journal goes on.
#[test]
fn histories_with_reloads_agree() {
    let (redis, shared) = (Servers::start(Kind::Single), SharedFile::new());
    let others = [redis.url(), &shared.url("max_bytes=64MB")].map(|url| {
        let limiter = Limiter::builder().store(url).timeout(Duration::from_secs(10));
        (url.to_owned(), limiter.build().expect("a limiter"))
    });
    for seed in within(2, seeds(HISTORIES / 10)) {
        let expected = reloading("memory://", seed);
        for (url, store) in &others {
            let found = history::answers_of_redis(store, &expected, || reloading(url, seed));
            history::agree(seed, &expected, &found);
        }
    }
}

fn reloading(url: &str, seed: u64) -> Vec<String> {
    let mut random = Random::new(seed);
    let file = TempFile::new();
    let mut policy = loop {
        let limits = history::policy(&mut random, "p").limits().to_vec();
        let options = Options { journal: 5, ..Options::default() };
        let policy = Policy::new(limits, options).and_then(|policy| policy.named("p")).expect("a policy");
        if file.write(&policy) && !is_held(&policy) {
            break policy;
        }
    };
    let clock = Arc::new(ManualClock::new(Duration::from_secs(1_700_000_000)));
    let limiter = Builder::from_file(&file.0).expect("a file").store(url).prefix(fresh_prefix());
    let limiter = limiter.timeout(Duration::from_secs(10)).deny_cache(Duration::ZERO).clock(Arc::clone(&clock));
    let limiter = limiter.on_store_error(OnStoreError::Raise).build().expect("a limiter");
    let (mut lines, mut decisions) = (vec![format!("{policy:?}")], Vec::new());
    for step in 0..40 {
        let period = policy.limits()[0].period().micros();
        clock.advance(Duration::from_micros(random.pick(&[0, 1, 300_000, period / 5, period])));
        let said =
            |answer: tidegate::Result<Decision>| answer.map_or_else(|error| error.to_string(), |one| text_of(&one));
        let line = match random.below(20) {
            0..=7 => {
                let meta = Some(format!("{step}").into_bytes());
                let cost = random.below(4) + 1;
                let options = CheckOptions { meta, ..history::cost_for(&mut random, &policy, cost).into() };
                let answer = limiter.check_with("p", "k", &options);
                decisions.extend(answer.iter().cloned());
                said(answer)
            }
            8..=10 if !decisions.is_empty() => {
                let decision = decisions.remove(random.below(decisions.len() as u64) as usize);
                let actual = random.below(4);
                let actual = history::cost_for(&mut random, &policy, actual);
                format!("{:?}", limiter.settle(&decision, actual))
            }
            11 => said(limiter.charge("p", "k", history::cost_for(&mut random, &policy, 2))),
            12 => said(limiter.refund("p", "k", history::cost_for(&mut random, &policy, 2))),
            13 => format!("{:?}", limiter.clear("p", "k")),
            14 | 15 => {
                let changed = history::changed(&mut random, &policy);
                if !is_held(&changed) && file.write(&changed) {
                    limiter.reload().expect("a reload");
                    policy = changed;
                }
                format!("reloaded {}", policy.limits().iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))
            }
            16 | 17 => {
                let own = KeyOverride::of(history::changed(&mut random, &policy).limits().to_vec()).to_string();
                let own = KeyOverride::parse(&own).ok().filter(|_| random.one_in(2));
                let ttl = own.as_ref().map(|_| Duration::from_micros(random.below(2 * period.min(1 << 50)) + 1));
                let (set, shown) =
                    (limiter.set_override("p", "k", own.as_ref(), ttl), own.as_ref().map(ToString::to_string));
                format!("override {shown:?} {ttl:?}: {set:?}")
            }
            18 => format!("{:?} {:?}", limiter.journal("p", "k"), limiter.overrides("p")),
            _ => said(limiter.peek("p", "k", history::cost_for(&mut random, &policy, 1))),
        };
        lines.push(format!("{step}: {line}"));
    }
    lines
}

/// A policy file that is removed at the end.
struct TempFile(PathBuf);

impl TempFile {
    fn new() -> Self {
        Self(std::env::temp_dir().join(format!("tidegate-history-{}.json", fresh_prefix())))
    }

    /// Writes a policy if a notation can express all of it, and returns true then.
    fn write(&self, policy: &Policy) -> bool {
        let text = KeyOverride::of(policy.limits().to_vec()).to_string();
        let is_same = KeyOverride::parse(&text).is_ok_and(|own| own.to_string() == text);
        let policies = json!({"policies": {"p": {"limits": text, "journal": policy.options().journal}}});
        is_same && std::fs::write(&self.0, policies.to_string()).is_ok()
    }
}

impl Drop for TempFile {
    fn drop(&mut self) {
        drop(std::fs::remove_file(&self.0));
    }
}

/// Logs of hundreds of entries, with the older ones in chunks on the server, and windows of many granules, which have
/// special loops for policies with two or three of them. They fill, entries leave the window one by one and together,
/// and units go back from the oldest.
#[test]
fn long_histories_agree() {
    for policy in ["sliding-log 300/10s", "60/2s; 300/10s", "20/s; 60/2s; 250/10s", "40/s; 60/2s; 150/5s; 250/10s"] {
        agree_for_long(policy);
    }
}

fn agree_for_long(policy: &str) {
    let redis = Servers::start(Kind::Single);
    let clock = Arc::new(ManualClock::new(Duration::from_secs(1_700_000_000)));
    let memory = Limiter::builder().clock(Arc::clone(&clock)).build().expect("a memory limiter");
    let store = Limiter::builder().store(redis.url()).timeout(Duration::from_secs(10)).deny_cache(Duration::ZERO);
    let store = store.on_store_error(OnStoreError::Raise).clock(Arc::clone(&clock)).build().expect("a redis limiter");
    let policy: Policy = policy.parse().expect("a policy");
    for seed in 0..20 {
        let mut random = Random::new(seed);
        // Later seeds pause longer: the first keys are nearly always full, the last never. A pause of 11 s ends all windows.
        let pause = 20_000 + 6_000 * seed;
        let (mut expected, mut found) = (Vec::new(), Vec::new());
        for _ in 0..400 {
            let pause = if random.one_in(150) { 11_000_000 } else { random.below(2 * pause) };
            clock.advance(Duration::from_micros(pause));
            let (cost, back) = (random.pick(&[1, 1, 1, 2, 3]), random.pick(&[1, 30, 200]));
            let key = seed.to_string();
            let refunds = random.one_in(40);
            for (limiter, lines) in [(&memory, &mut expected), (&store, &mut found)] {
                let decision = limiter.check_n(&policy, &key, cost).expect("a check");
                lines.push(history::text_of(&decision));
                if refunds {
                    limiter.refund(&policy, &key, back).expect("a refund");
                }
            }
        }
        history::agree(seed, &expected, &found);
    }
}

/// The seeds of a run: those that have failed once, and the first `histories` numbers.
fn seeds(histories: u64) -> Vec<u64> {
    let kept = include_str!("seeds.txt").lines().filter_map(|line| line.split_whitespace().next()?.parse().ok());
    match setting("TIDEGATE_SEED") {
        Some(seed) => vec![seed],
        None => kept.chain(0..setting("TIDEGATE_HISTORIES").unwrap_or(histories)).collect(),
    }
}

fn agree(kind: Kind, histories: u64, seconds: u64) {
    let redis = Servers::start(kind);
    let (one, mut seeds) = (setting("TIDEGATE_SEED"), within(seconds, seeds(histories)));
    let clock = || Arc::new(ManualClock::new(Duration::ZERO));
    let (memory_clock, redis_clock) = (clock(), clock());
    let memory = Limiter::builder().clock(Arc::clone(&memory_clock)).build().expect("a memory limiter");
    // Every fourth history uses the deny cache too. Its answers must be the same.
    let [store, layered] = [Duration::ZERO, Duration::from_secs(60)].map(|longest| {
        let store = Limiter::builder().store(redis.url()).timeout(Duration::from_secs(10)).deny_cache(longest);
        let store = store.on_store_error(OnStoreError::Raise);
        store.clock(Arc::clone(&redis_clock)).build().expect("a redis limiter")
    });
    for seed in seeds.by_ref() {
        let expected = history::run(seed, &memory, &memory_clock);
        // The cache cannot repeat the exact state of a bucket if its count changed and no charge followed.
        let contains = |words: &[&str]| words.iter().any(|word| expected.iter().any(|line| line.contains(word)));
        let inexact = contains(&["changed to"]) && contains(&["Gcra", "TokenBucket", "LeakyBucket"]);
        let cached = seed % 4 == 3 && !inexact;
        let limiter = if cached { &layered } else { &store };
        let found = history::answers_of_redis(limiter, &expected, || {
            let lines = history::run(seed, limiter, &redis_clock);
            lines.iter().map(|line| line.replace("\"deny-cache\"", "\"store\"")).collect()
        });
        history::agree(seed, &expected, &found);
    }
    let least = seeds.begun() / 100;
    assert!(one.is_some() || seeds.begun() < 500 || layered.counters().deny_cache > least, "{:?}", layered.counters());
}
