//! An event loop that reads itself: its thread gets the answers, and nothing is lost when it does not look, lets go, or
//! the server does.
#![cfg(target_os = "linux")]

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::thread::ThreadId;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde_json::json;
use tidegate::host::{Call, CompletionQueue, HostAsyncLimiter, Outcome, ReplyPoller, Wake};
use tidegate::{AsyncLimiter, CheckOptions, ErrorKind, Limiter, OnStoreError, Result};
use tidegate_tests::servers::{Kind, Servers};

const PATIENCE: Duration = Duration::from_secs(20);

/// What was delivered, and by which thread.
#[derive(Default)]
struct Letters(Mutex<HashMap<u64, (Result<Outcome>, ThreadId)>>);

impl Wake for Letters {
    fn wake(&self) {}
}

impl CompletionQueue for Letters {
    fn deliver(&self, ticket: u64, outcome: Result<Outcome>) {
        let before = self.0.lock().expect("no panic").insert(ticket, (outcome, std::thread::current().id()));
        assert!(before.is_none(), "{ticket} was delivered twice");
    }
}

/// A limiter, and a loop that asks it.
struct Loop {
    limiter: AsyncLimiter,
    letters: Arc<Letters>,
    inbox: Arc<dyn CompletionQueue>,
    next: u64,
}

impl Loop {
    fn new(url: &str, timeout: Duration) -> Self {
        let builder = Limiter::builder().store(url).timeout(timeout).deny_cache(Duration::ZERO);
        let limiter = builder.on_store_error(OnStoreError::Raise).build_async().expect("a limiter");
        let letters = Arc::new(Letters::default());
        Self { limiter, inbox: letters.clone(), letters, next: 0 }
    }

    fn ask(&mut self, policy: &str, key: &str) -> u64 {
        self.next += 1;
        let call = Call::Check(CheckOptions::default());
        let answer = self.limiter.post(policy, key, &call, self.next, &self.inbox, None);
        assert!(answer.is_none(), "{answer:?}");
        self.next
    }

    fn answered(&self) -> usize {
        self.letters.0.lock().expect("no panic").len()
    }

    /// Looks whenever the file says so, until so many are answered; `then` runs when some are.
    fn run(&mut self, watch: &ReplyPoller, count: usize, mut then: impl FnMut(&mut Self)) {
        let began = Instant::now();
        while self.answered() < count {
            assert!(began.elapsed() < PATIENCE, "{} of {count} are answered", self.answered());
            let mut files = [PollFd::new(watch, PollFlags::IN)];
            let length = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
            if poll(&mut files, Some(&length)).expect("a poll") > 0 {
                let _batch = watch.poll_replies();
                then(self);
            }
        }
    }

    fn wait(&self, count: usize) {
        let began = Instant::now();
        while self.answered() < count {
            assert!(began.elapsed() < PATIENCE, "{} of {count} are answered", self.answered());
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn allowed(&self) -> usize {
        let letters = self.letters.0.lock().expect("no panic");
        letters.values().filter(|(outcome, _)| matches!(outcome, Ok(Outcome::Decision(one)) if one.allowed())).count()
    }

    /// Whether this very thread delivered it.
    fn is_ours(&self, ticket: u64) -> bool {
        self.letters.0.lock().expect("no panic")[&ticket].1 == std::thread::current().id()
    }
}

fn drains(servers: &Servers, url: &str) {
    let mut events = Loop::new(url, PATIENCE);
    let watch = events.limiter.reply_poller().expect("somebody may look");
    assert!(events.limiter.reply_poller().is_none(), "a second one looks");
    for key in 0..32 {
        events.ask("10/hour", &format!("warm {key}"));
    }
    events.wait(32);
    // Whoever is answered asks again, in the call that looks.
    let first = events.next + 1;
    for number in 0..64 {
        events.ask("50/hour", &format!("k{}", number % 16));
    }
    let mut asked = 64;
    events.run(&watch, 32 + 2_000, |events| {
        while asked < 2_000 && asked < events.answered() - 32 + 64 {
            events.ask("50/hour", &format!("k{}", asked % 16));
            asked += 1;
        }
    });
    assert_eq!(events.allowed(), 32 + 16 * 50, "{}", servers.json());
    let ours = (first..=events.next).filter(|ticket| events.is_ours(*ticket)).count();
    assert!(ours > 1_000, "{ours} of 2,000 were read by the loop");
}

#[test]
fn the_loop_reads_and_each_is_counted_once() {
    let servers = Servers::start(Kind::Single);
    drains(&servers, servers.url());
}

#[test]
fn also_from_a_cluster() {
    let servers = Servers::start(Kind::Cluster);
    drains(&servers, servers.url());
}

#[test]
fn also_through_tls() {
    let servers = Servers::start_with(Kind::Single, json!({ "tls": true }));
    let ca = servers.json()["tls"]["ca"].as_str().expect("a file");
    let url = servers.url_of("tls").split('?').next().expect("a URL");
    drains(&servers, &format!("{url}?ssl_ca_certs={ca}"));
}

#[test]
fn a_loop_that_does_not_look_loses_nothing() {
    let servers = Servers::start(Kind::Single);
    let mut events = Loop::new(servers.url(), 3 * PATIENCE);
    let watch = events.limiter.reply_poller().expect("somebody may look");
    for count in 1..=20 {
        events.ask("100/hour", "k");
        events.wait(count);
    }
    // A late answer, too: the thread comes to see as long as one is under way.
    servers.stop(0);
    events.ask("100/hour", "k");
    std::thread::sleep(Duration::from_millis(200));
    servers.cont(0);
    events.wait(21);
    assert_eq!(events.allowed(), 21);
    drop(watch);
    events.ask("100/hour", "k");
    events.wait(22);
    assert!((1..=22).all(|ticket| !events.is_ours(ticket)));
    assert!(events.limiter.reply_poller().is_some(), "nobody may look again");
}

/// The reading goes to and fro while somebody asks: nothing is left lying that only the thread could send or read.
#[test]
fn who_looks_and_lets_go_leaves_nothing() {
    let servers = Servers::start(Kind::Single);
    let mut events = Loop::new(servers.url(), 3 * PATIENCE);
    for round in 0..100 {
        let watch = events.limiter.reply_poller().expect("somebody may look");
        events.ask("1000000/hour", "k");
        events.wait(events.next as usize);
        // Until the thread has nothing to come for any more.
        std::thread::sleep(Duration::from_millis(30));
        drop(watch);
        // While the thread is at any point of its way to sleep.
        let (began, pause) = (Instant::now(), Duration::from_micros(2 * round));
        while began.elapsed() < pause {}
        events.ask("1000000/hour", "k");
        events.wait(events.next as usize);
    }
}

#[test]
fn a_server_that_goes_away_is_noticed_and_found_again() {
    let servers = Servers::start(Kind::Single);
    let mut events = Loop::new(servers.url(), Duration::from_secs(2));
    let watch = events.limiter.reply_poller().expect("somebody may look");
    events.ask("100/hour", "k");
    events.run(&watch, 1, |_| {});
    servers.kill(0);
    let lost = events.ask("100/hour", "k");
    events.run(&watch, 2, |_| {});
    let error = events.letters.0.lock().expect("no panic").remove(&lost).expect("an answer").0.expect_err("an error");
    assert!(matches!(error.kind(), ErrorKind::StoreUnavailable | ErrorKind::StoreTimeout), "{error}");
    servers.start_again(0);
    let began = Instant::now();
    loop {
        let ticket = events.ask("100/hour", "k");
        events.run(&watch, 2, |_| {});
        if events.letters.0.lock().expect("no panic").remove(&ticket).expect("an answer").0.is_ok() {
            break;
        }
        assert!(began.elapsed() < PATIENCE, "the server was not found again");
        std::thread::sleep(Duration::from_millis(10));
    }
    let ticket = events.ask("100/hour", "k");
    events.run(&watch, 2, |_| {});
    assert!(events.letters.0.lock().expect("no panic").contains_key(&ticket));
}

#[test]
fn memory_is_nothing_to_look_for() {
    assert!(Limiter::builder().build_async().expect("a limiter").reply_poller().is_none());
}

/// Another loop asks too: nobody's answer is to depend on when this one looks.
#[test]
fn who_is_told_not_to_look_has_nothing_to_look_for() {
    let servers = Servers::start(Kind::Single);
    let mut events = Loop::new(servers.url(), PATIENCE);
    let watch = events.limiter.reply_poller().expect("somebody may look");
    let is_told = |watch: &ReplyPoller| {
        let mut files = [PollFd::new(watch, PollFlags::IN)];
        poll(&mut files, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).expect("a poll") > 0
    };
    // Whether it was ever told of an answer that it did not look for.
    let told = |events: &mut Loop| {
        let (mut told, count) = (false, events.answered() + 100);
        while events.answered() < count {
            let before = events.answered();
            events.ask("1000/hour", "key");
            let began = Instant::now();
            while events.answered() == before {
                told |= is_told(&watch);
                assert!(began.elapsed() < PATIENCE);
            }
        }
        told
    };
    assert!(told(&mut events), "it is told, and the thread comes later");
    events.limiter.read_on_threads();
    // The thread may hear of that after the next call.
    told(&mut events);
    assert!(!told(&mut events));
    // Somebody else may look now; who looked before changes nothing when it goes.
    let other = events.limiter.reply_poller().expect("nobody looks");
    drop(watch);
    assert!(events.limiter.reply_poller().is_none());
    let count = events.answered() + 1;
    let ticket = events.ask("1000/hour", "key");
    events.run(&other, count, |_| {});
    assert!(events.answered() == count, "{ticket} is answered");
}
