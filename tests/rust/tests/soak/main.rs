//! Random faults, one after the other, against an exact model: what is stored of a key is known to the unit, except for
//! checks nobody heard the answer of.
//!
//! A minute of it runs with all tests, half of it over one server and half over a cluster; `TIDEGATE_SOAK` gives the
//! seconds, `TIDEGATE_SEED` the order of things.

mod cluster;
mod single;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use tidegate::{Decision, Limiter, OnStoreError, Result, Source};
use tidegate_tests::proxy::{Condition, Proxy};
use tidegate_tests::random::Random;
use tidegate_tests::servers::Servers;

const TIMEOUT: Duration = Duration::from_millis(200);
const LIMIT: u64 = 40;
/// No run outlives the window.
const POLICY: &str = "fixed-window 40/day";
const KEYS: usize = 16;
const WORKERS: usize = 12;
/// Unanswered checks after which a key says too little.
const UNSURE: u64 = 3;

/// What may be stored of a key: every check that was answered, and any of those that were not. These may run late, when
/// a network delivers what it held back.
#[derive(Debug, Clone, Copy, Default)]
struct Known {
    /// A key that is full, or of which too much is unsure, is of no more use: then it is the next one's turn.
    turn: u64,
    answered: u64,
    unanswered: u64,
    /// Up to which loss of data this is true.
    losses: u64,
}

impl Known {
    /// One check and what was heard of it; the losses before it and after it.
    fn hear(&mut self, decision: &Result<Decision>, before: u64, after: u64) {
        // An odd number is a loss that goes on: nobody can say on which side of it a check was.
        if self.losses != before || before != after || !before.is_multiple_of(2) {
            *self = Self { turn: self.turn + 1, losses: after, ..Self::default() };
            return;
        }
        let stored = decision.as_ref().ok().filter(|decision| decision.source() != Source::Fallback);
        let Some(decision) = stored else {
            self.unanswered += 1;
            if self.unanswered > UNSURE {
                *self = Self { turn: self.turn + 1, losses: after, ..Self::default() };
            }
            return;
        };
        let used = LIMIT - decision.remaining();
        self.answered += u64::from(decision.allowed());
        let range = self.answered..=self.answered + self.unanswered;
        assert!(range.contains(&used), "{used} units are used, {self:?}");
        assert!(decision.allowed() || used == LIMIT, "denied with {used} used, {self:?}");
        if used == LIMIT {
            *self = Self { turn: self.turn + 1, losses: after, ..Self::default() };
        }
    }
}

/// All things that can go wrong, each once before any comes again: a short run sees all of them too.
struct Deck {
    kinds: u64,
    left: Vec<u64>,
}

impl Deck {
    fn draw(&mut self, random: &mut Random) -> u64 {
        if self.left.is_empty() {
            self.left = (0..self.kinds).collect();
        }
        let at = random.below(self.left.len() as u64) as usize;
        self.left.swap_remove(at)
    }
}

fn sleep(milliseconds: u64) {
    std::thread::sleep(Duration::from_millis(milliseconds));
}

/// How many kinds of mishaps there are.
const MISHAPS: u64 = 10;

/// What one server and a node of a cluster suffer alike; no data is lost.
fn mishap(kind: u64, random: &mut Random, servers: &Servers, node: usize, proxy: &Proxy) -> &'static str {
    let length = 20 + random.below(900);
    let condition = |condition: Condition, name: &'static str| {
        proxy.set(condition);
        sleep(length);
        proxy.set(Condition::Healthy);
        name
    };
    match kind {
        0 => {
            servers.stop(node);
            sleep(length);
            servers.cont(node);
            "stopped"
        }
        1 => {
            for _ in 0..5 {
                drop(servers.command(node, &["SCRIPT", "FLUSH"]));
                sleep(length / 10);
            }
            "flushed"
        }
        2 => {
            drop(servers.command(node, &["CLIENT", "PAUSE", &length.to_string(), "WRITE"]));
            sleep(length);
            "paused"
        }
        3 => {
            drop(servers.command(node, &["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]));
            sleep(length / 10);
            "disconnected"
        }
        4 => condition(Condition::Silent, "silent"),
        5 => condition(Condition::Slow(Duration::from_millis(50 + length / 2)), "slow"),
        6 => condition(Condition::DropReplies, "swallowed"),
        7 => condition(Condition::CutReplies, "cut"),
        8 => condition(Condition::StallReplies, "stalled"),
        _ => condition(Condition::Refuse, "refused"),
    }
}

/// Losses of data: each is counted when it begins and when it is over, since a check in between may have been stored on
/// either side of it.
#[derive(Default)]
struct Losses(AtomicU64);

impl Losses {
    fn during(&self, what: impl FnOnce()) {
        self.0.fetch_add(1, Ordering::SeqCst);
        what();
        self.0.fetch_add(1, Ordering::SeqCst);
    }

    fn now(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }
}

/// Whatever happens, the workers end.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[track_caller]
fn until(what: &str, mut so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !so() {
        assert!(start.elapsed() < Duration::from_secs(30), "waited in vain until {what}");
        sleep(10);
    }
}

/// One at a time: together they would be slow, and their times add up to what was asked for.
static ALONE: Mutex<()> = Mutex::new(());

/// Checks from threads and tasks while one thing after the other goes wrong, of so many kinds, for half of the time.
fn soak(url: &str, losses: &Losses, kinds: u64, mut goes_wrong: impl FnMut(u64, &mut Random) -> &'static str) {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let seed = number("TIDEGATE_SEED").unwrap_or_else(|| u64::from(std::process::id()));
    let end = Instant::now() + Duration::from_secs(number("TIDEGATE_SOAK").unwrap_or(60)) / 2;
    println!("seed {seed}");
    let (mut random, mut deck) = (Random::new(seed), Deck { kinds, left: Vec::new() });
    let limiter = Limiter::builder().store(url).timeout(TIMEOUT).on_store_error(OnStoreError::Raise);
    let limiter = limiter.build().expect("a limiter");
    let over = AtomicBool::new(false);
    let (checks, stored) = (AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let _ends = Ends(&over);
        let workers: Vec<_> = (0..WORKERS)
            .map(|worker| {
                let (limiter, over, checks, stored) = (&limiter, &over, &checks, &stored);
                scope.spawn(move || {
                    // Who finds a fault ends the run for all.
                    let _ends = Ends(over);
                    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
                    let mut known = [Known::default(); KEYS];
                    let mut random = Random::new(worker as u64);
                    let tasks = limiter.to_async();
                    while !over.load(Ordering::Relaxed) {
                        let number = random.below(KEYS as u64) as usize;
                        let key = format!("{worker}:{number}:{}", known[number].turn);
                        let before = losses.now();
                        let decision = if worker % 2 == 0 {
                            limiter.check(POLICY, &key)
                        } else {
                            runtime.block_on(tasks.check(POLICY, &key))
                        };
                        checks.fetch_add(1, Ordering::Relaxed);
                        stored.fetch_add(u64::from(decision.is_ok()), Ordering::Relaxed);
                        known[number].hear(&decision, before, losses.now());
                        std::thread::sleep(Duration::from_micros(500));
                    }
                })
            })
            .collect();
        while Instant::now() < end && !over.load(Ordering::Relaxed) {
            println!("{}", goes_wrong(deck.draw(&mut random), &mut random));
            until("the store serves again", || limiter.ping().is_ok());
            sleep(random.below(600));
        }
        over.store(true, Ordering::Relaxed);
        for worker in workers {
            // The words of the one who found a fault, and not only that somebody did.
            worker.join().unwrap_or_else(|fault| std::panic::resume_unwind(fault));
        }
    });
    let (checks, stored) = (checks.into_inner(), stored.into_inner());
    println!("{checks} checks, of which {stored} were answered");
    assert!(stored > 0, "nobody was ever answered, so nothing was compared");
}
