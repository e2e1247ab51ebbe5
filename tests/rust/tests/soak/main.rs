//! Random faults, one after the other, against an exact model: what is stored of a key is known to the unit, except for
//! checks nobody heard the answer of.
//!
//! A minute of it runs with all tests; `TIDEGATE_SOAK` gives the seconds, `TIDEGATE_SEED` the order of things.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tidegate::{Decision, Limiter, OnStoreError, Result, Source};
use tidegate_tests::proxy::{Proxy, Weather};
use tidegate_tests::servers::{Kind, Servers};

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

/// A small generator, so that a run can be had again.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }
}

/// One thing that goes wrong for a while.
fn mishap(random: &mut Random, servers: &Servers, proxy: &Proxy, losses: &AtomicU64) -> &'static str {
    let while_ = |milliseconds: u64| std::thread::sleep(Duration::from_millis(milliseconds));
    let length = 20 + random.below(900);
    let weather = |weather: Weather, name: &'static str| {
        proxy.set(weather);
        while_(length);
        proxy.set(Weather::Clear);
        name
    };
    match random.below(11) {
        0 => {
            // Counted before and after: a check in between may have been stored on either side of it.
            losses.fetch_add(1, Ordering::SeqCst);
            servers.kill(0);
            while_(length / 2);
            servers.start_again(0);
            losses.fetch_add(1, Ordering::SeqCst);
            "killed"
        }
        1 => {
            servers.stop(0);
            while_(length);
            servers.cont(0);
            "stopped"
        }
        2 => {
            for _ in 0..5 {
                drop(servers.command(0, &["SCRIPT", "FLUSH"]));
                while_(length / 10);
            }
            "flushed"
        }
        3 => {
            drop(servers.command(0, &["CLIENT", "PAUSE", &length.to_string(), "WRITE"]));
            while_(length);
            "paused"
        }
        4 => {
            drop(servers.command(0, &["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]));
            while_(length / 10);
            "disconnected"
        }
        5 => weather(Weather::Silent, "silent"),
        6 => weather(Weather::Slow(Duration::from_millis(50 + length / 2)), "slow"),
        7 => weather(Weather::Swallow, "swallowed"),
        8 => weather(Weather::Cut, "cut"),
        9 => weather(Weather::Stall, "stalled"),
        _ => weather(Weather::Refuse, "refused"),
    }
}

#[test]
fn nothing_is_lost_and_nothing_counts_twice() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let seed = number("TIDEGATE_SEED").unwrap_or_else(|| u64::from(std::process::id()));
    let until = Instant::now() + Duration::from_secs(number("TIDEGATE_SOAK").unwrap_or(60));
    println!("seed {seed}");
    let mut random = Random(seed);
    let servers = Servers::start(Kind::Single);
    let proxy = Proxy::before(servers.port(0));
    let limiter = Limiter::builder().store(format!("redis://127.0.0.1:{}/0", proxy.port())).timeout(TIMEOUT);
    let limiter = limiter.on_store_error(OnStoreError::Raise).build().expect("a limiter");
    let (over, losses) = (AtomicBool::new(false), AtomicU64::new(0));
    let checks = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for worker in 0..WORKERS {
            let (limiter, over, losses, checks) = (&limiter, &over, &losses, &checks);
            // A worker that finds a fault ends the run; its panic fails the test.
            scope.spawn(move || {
                let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
                let mut known = [Known::default(); KEYS];
                let mut random = Random(worker as u64);
                let tasks = limiter.to_async();
                while !over.load(Ordering::Relaxed) {
                    let number = random.below(KEYS as u64) as usize;
                    let key = format!("{worker}:{number}:{}", known[number].turn);
                    let before = losses.load(Ordering::SeqCst);
                    let decision = if worker % 2 == 0 {
                        limiter.check(POLICY, &key)
                    } else {
                        runtime.block_on(tasks.check(POLICY, &key))
                    };
                    checks.fetch_add(1, Ordering::Relaxed);
                    known[number].hear(&decision, before, losses.load(Ordering::SeqCst));
                    std::thread::sleep(Duration::from_micros(500));
                }
            });
        }
        while Instant::now() < until {
            let name = mishap(&mut random, &servers, &proxy, &losses);
            println!("{name}");
            std::thread::sleep(Duration::from_millis(random.below(1_200)));
        }
        over.store(true, Ordering::Relaxed);
    });
    println!("{} checks", checks.into_inner());
}
