//! An event loop that polls for replies itself. Its thread gets the answers, and none is lost if it does not poll, if
//! it drops its poller, or if the server goes away.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::thread::ThreadId;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde_json::json;
use tidegate::host::{Call, CompletionQueue, Outcome, ReplyPoller, Wake};
use tidegate::{AsyncLimiter, ErrorKind, Limiter, OnStoreError, Result};
use tidegate_tests::servers::{Kind, Servers};

const PATIENCE: Duration = Duration::from_secs(20);

/// The delivered answers, and the thread that delivered each.
#[derive(Default)]
struct Deliveries(Mutex<HashMap<u64, (Result<Outcome>, ThreadId)>>);

impl Wake for Deliveries {
    fn wake(&self) {}
}

impl CompletionQueue for Deliveries {
    fn deliver(&self, ticket: u64, outcome: Result<Outcome>) {
        let before = self.0.lock().expect("no panic").insert(ticket, (outcome, std::thread::current().id()));
        assert!(before.is_none(), "{ticket} was delivered twice");
    }
}

/// A limiter and the event loop that uses it.
struct Loop {
    limiter: AsyncLimiter,
    deliveries: Arc<Deliveries>,
    queue: Arc<dyn CompletionQueue>,
    next: u64,
}

impl Loop {
    fn new(url: &str, timeout: Duration) -> Self {
        let builder = Limiter::builder().store(url).timeout(timeout).deny_cache(Duration::ZERO);
        let limiter = builder.on_store_error(OnStoreError::Raise).build_async().expect("a limiter");
        let deliveries = Arc::new(Deliveries::default());
        Self { limiter, queue: deliveries.clone(), deliveries, next: 0 }
    }

    fn check(&mut self, policy: &str, key: &str) -> u64 {
        self.next += 1;
        let call = Call::Plain(1);
        let answer = self.limiter.post(policy, key, &call, self.next, &self.queue, None);
        assert!(answer.is_none(), "{answer:?}");
        self.next
    }

    fn answered(&self) -> usize {
        self.deliveries.0.lock().expect("no panic").len()
    }

    /// Polls whenever the file is readable, until `count` calls are answered. `then` runs after each poll.
    fn run(&mut self, poller: &ReplyPoller, count: usize, mut then: impl FnMut(&mut Self)) {
        let began = Instant::now();
        while self.answered() < count {
            assert!(began.elapsed() < PATIENCE, "{} of {count} are answered", self.answered());
            let mut files = [PollFd::new(poller, PollFlags::IN)];
            let length = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
            let is_readable = poll(&mut files, Some(&length)).expect("a poll") > 0;
            // On a busy machine the engine's thread may read first. A host would be woken then, and here the poll times out.
            let _batch = is_readable.then(|| poller.poll_replies());
            then(self);
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
        let deliveries = self.deliveries.0.lock().expect("no panic");
        deliveries
            .values()
            .filter(|(outcome, _)| matches!(outcome, Ok(Outcome::Decision(one)) if one.allowed()))
            .count()
    }

    /// True if the thread of the loop delivered the answer.
    fn is_ours(&self, ticket: u64) -> bool {
        self.deliveries.0.lock().expect("no panic")[&ticket].1 == std::thread::current().id()
    }
}

fn drains(servers: &Servers, url: &str) {
    let mut events = Loop::new(url, PATIENCE);
    let poller = events.limiter.reply_poller().expect("a poller");
    assert!(events.limiter.reply_poller().is_none(), "there are two pollers");
    for key in 0..32 {
        events.check("10/hour", &format!("warm {key}"));
    }
    events.wait(32);
    // New calls follow answered ones, within the poll.
    let first = events.next + 1;
    for number in 0..64 {
        events.check("50/hour", &format!("k{}", number % 16));
    }
    let mut sent = 64;
    events.run(&poller, 32 + 2_000, |events| {
        while sent < 2_000 && sent < events.answered() - 32 + 64 {
            events.check("50/hour", &format!("k{}", sent % 16));
            sent += 1;
        }
    });
    assert_eq!(events.allowed(), 32 + 16 * 50, "{}", servers.json());
    let ours = (first..=events.next).filter(|ticket| events.is_ours(*ticket)).count();
    assert!(ours > 1_000, "{ours} of 2,000 were read by the loop");
}

#[test]
fn the_loop_reads_and_each_call_is_counted_once() {
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
fn a_loop_that_does_not_poll_loses_nothing() {
    let servers = Servers::start(Kind::Single);
    let mut events = Loop::new(servers.url(), 3 * PATIENCE);
    let poller = events.limiter.reply_poller().expect("a poller");
    for count in 1..=20 {
        events.check("100/hour", "k");
        events.wait(count);
    }
    // A late answer comes too, because the engine's thread reads as long as a call is in flight.
    servers.stop(0);
    events.check("100/hour", "k");
    std::thread::sleep(Duration::from_millis(200));
    servers.cont(0);
    events.wait(21);
    assert_eq!(events.allowed(), 21);
    drop(poller);
    events.check("100/hour", "k");
    events.wait(22);
    assert!((1..=22).all(|ticket| !events.is_ours(ticket)));
    assert!(events.limiter.reply_poller().is_some(), "no new poller");
}

/// The loop and the engine's thread take turns in reading, while calls are made. No call is left behind that only the
/// thread could send or read.
#[test]
fn a_poller_that_is_dropped_leaves_no_call_behind() {
    let servers = Servers::start(Kind::Single);
    let mut events = Loop::new(servers.url(), 3 * PATIENCE);
    for round in 0..100 {
        let poller = events.limiter.reply_poller().expect("a poller");
        events.check("1000000/hour", "k");
        events.wait(events.next as usize);
        // By then the thread has nothing left to do.
        std::thread::sleep(Duration::from_millis(30));
        drop(poller);
        // The pause differs, so that the thread is at any point of its way to sleep.
        let (began, pause) = (Instant::now(), Duration::from_micros(2 * round));
        while began.elapsed() < pause {}
        events.check("1000000/hour", "k");
        events.wait(events.next as usize);
    }
}

#[test]
fn a_server_that_goes_away_is_noticed_and_found_again() {
    let servers = Servers::start(Kind::Single);
    let mut events = Loop::new(servers.url(), Duration::from_secs(2));
    let poller = events.limiter.reply_poller().expect("a poller");
    events.check("100/hour", "k");
    events.run(&poller, 1, |_| {});
    servers.kill(0);
    let lost = events.check("100/hour", "k");
    events.run(&poller, 2, |_| {});
    let error =
        events.deliveries.0.lock().expect("no panic").remove(&lost).expect("an answer").0.expect_err("an error");
    assert!(matches!(error.kind(), ErrorKind::StoreUnavailable | ErrorKind::StoreTimeout), "{error}");
    servers.start_again(0);
    let began = Instant::now();
    loop {
        let ticket = events.check("100/hour", "k");
        events.run(&poller, 2, |_| {});
        if events.deliveries.0.lock().expect("no panic").remove(&ticket).expect("an answer").0.is_ok() {
            break;
        }
        assert!(began.elapsed() < PATIENCE, "the server was not found again");
        std::thread::sleep(Duration::from_millis(10));
    }
    let ticket = events.check("100/hour", "k");
    events.run(&poller, 2, |_| {});
    assert!(events.deliveries.0.lock().expect("no panic").contains_key(&ticket));
}

#[test]
fn memory_has_no_poller() {
    assert!(Limiter::builder().build_async().expect("a limiter").reply_poller().is_none());
}

/// A second loop uses the limiter, so no answer may depend on when the first one polls.
#[test]
fn a_poller_that_is_switched_off_never_becomes_readable() {
    let servers = Servers::start(Kind::Single);
    let mut events = Loop::new(servers.url(), PATIENCE);
    let poller = events.limiter.reply_poller().expect("a poller");
    let is_readable = |poller: &ReplyPoller| {
        let mut files = [PollFd::new(poller, PollFlags::IN)];
        poll(&mut files, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).expect("a poll") > 0
    };
    // True if the poller became readable during a hundred calls that the loop did not poll for.
    let becomes_readable = |events: &mut Loop| {
        let (mut readable, count) = (false, events.answered() + 100);
        while events.answered() < count {
            let before = events.answered();
            events.check("1000/hour", "key");
            let began = Instant::now();
            while events.answered() == before {
                readable |= is_readable(&poller);
                assert!(began.elapsed() < PATIENCE);
            }
        }
        readable
    };
    assert!(becomes_readable(&mut events), "it becomes readable, and the thread reads later");
    events.limiter.read_on_threads();
    // The thread may notice that only after the next call.
    becomes_readable(&mut events);
    assert!(!becomes_readable(&mut events));
    // Another poller is possible now. Dropping the old one changes nothing.
    let other = events.limiter.reply_poller().expect("another poller");
    drop(poller);
    assert!(events.limiter.reply_poller().is_none());
    let count = events.answered() + 1;
    let ticket = events.check("1000/hour", "key");
    events.run(&other, count, |_| {});
    assert!(events.answered() == count, "{ticket} is answered");
}
