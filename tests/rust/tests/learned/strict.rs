//! A server that counts strictly, and callers with a way to it that differs from call to call, by a clock of the test.
//! The server counts the calls that arrived, without the product.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use tidegate::http::Observation;
use tidegate::{Decision, Limiter, ManualClock, Policy};
use tidegate_tests::random::Random;

use super::{SECOND, START};

/// How a server counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Book {
    /// Windows that begin at the server's own moments.
    Fixed,
    /// Windows that begin with the first call.
    FirstCall,
    /// At most so many within any period.
    Sliding,
    /// A bucket.
    Bucket,
}

/// The part of its limit that it announces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Says {
    Nothing,
    /// The limit, the units left, and their reset, in whole seconds.
    All,
    /// The same, but the response to a served call announces a reset now.
    Left,
    /// The wait, in a refusal.
    RetryAfter,
}

struct Server {
    book: Book,
    limit: u64,
    period: u64,
    begins: u64,
    used: VecDeque<u64>,
    /// When the bucket is full again.
    full_at: u64,
    refused: Vec<u64>,
    admitted: Vec<u64>,
}

impl Server {
    fn new(book: Book, (limit, period): (u64, u64), random: &mut Random) -> Self {
        let begins = START - random.below(period);
        Self {
            book,
            limit,
            period,
            begins,
            used: VecDeque::new(),
            full_at: 0,
            refused: Vec::new(),
            admitted: Vec::new(),
        }
    }

    /// Counts a call that arrived. Returns true if it is admitted, the units left, and the moment of their reset.
    fn arrived(&mut self, now: u64) -> (bool, u64, u64) {
        if self.book == Book::Bucket {
            let each = self.period / self.limit;
            let used = self.full_at.saturating_sub(now);
            let admitted = used + each <= self.period;
            if admitted {
                self.full_at = self.full_at.max(now) + each;
            }
            self.note(now, admitted);
            let left = (self.period - self.full_at.saturating_sub(now)) / each;
            return (admitted, left, self.full_at);
        }
        match self.book {
            Book::Sliding => {
                while self.used.front().is_some_and(|at| at + self.period <= now) {
                    self.used.pop_front();
                }
            }
            Book::Fixed if self.begins + self.period <= now => {
                self.begins += (now - self.begins) / self.period * self.period;
                self.used.clear();
            }
            Book::FirstCall if self.used.front().is_some_and(|at| at + self.period <= now) => self.used.clear(),
            _ => {}
        }
        let admitted = (self.used.len() as u64) < self.limit;
        if admitted {
            self.used.push_back(now);
        }
        self.note(now, admitted);
        let resets_at = match self.book {
            Book::Fixed => self.begins + self.period,
            _ => self.used.front().map_or(now, |at| at + self.period),
        };
        (admitted, self.limit - self.used.len() as u64, resets_at)
    }

    fn note(&mut self, now: u64, admitted: bool) {
        if admitted { &mut self.admitted } else { &mut self.refused }.push(now);
    }
}

enum Event {
    Asks,
    Arrives(Box<Decision>),
    Answered(Box<Decision>, Option<Observation>),
}

struct World {
    limiter: Limiter,
    clock: Arc<ManualClock>,
    policy: Policy,
    server: Server,
    says: Says,
    random: Random,
    events: BinaryHeap<Reverse<(u64, u64)>>,
    waiting: std::collections::HashMap<u64, Event>,
    number: u64,
    now: u64,
}

const CALLERS: u64 = 64;
/// The way there: 5 ms, and at most so much more.
const WAY: u64 = 5_000;
const DIFFERS: u64 = 40_000;

impl World {
    fn new(policy: Policy, book: Book, limit: (u64, u64), says: Says, seed: u64) -> Self {
        let mut random = Random::new(seed);
        let clock = Arc::new(ManualClock::new(Duration::from_micros(START)));
        let limiter = Limiter::builder().clock(Arc::clone(&clock)).build().expect("a limiter");
        let server = Server::new(book, limit, &mut random);
        let mut world = Self {
            limiter,
            clock,
            policy,
            server,
            says,
            random,
            events: BinaryHeap::new(),
            waiting: std::collections::HashMap::new(),
            number: 0,
            now: START,
        };
        for _ in 0..CALLERS {
            let after = world.random.below(100_000);
            world.later(after, Event::Asks);
        }
        world
    }

    fn later(&mut self, after: u64, event: Event) {
        self.number += 1;
        self.events.push(Reverse((self.now + after, self.number)));
        self.waiting.insert(self.number, event);
    }

    fn way(&mut self) -> u64 {
        WAY + self.random.below(DIFFERS)
    }

    fn run(&mut self, seconds: u64) {
        while let Some(Reverse((at, number))) = self.events.pop() {
            if at > START + seconds * SECOND {
                break;
            }
            self.now = at;
            self.clock.set(Duration::from_micros(at));
            match self.waiting.remove(&number).expect("an event") {
                Event::Asks => {
                    let decision = self.limiter.check(&self.policy, "origin").expect("an answer");
                    if decision.allowed() {
                        let way = self.way();
                        self.later(way, Event::Arrives(Box::new(decision)));
                    } else {
                        let wait = decision.retry_after().expect("a wait").as_micros() as u64;
                        self.later(wait.max(1), Event::Asks);
                    }
                }
                Event::Arrives(decision) => {
                    let (admitted, left, resets_at) = self.server.arrived(at);
                    let seconds = Duration::from_secs(resets_at.saturating_sub(at).div_ceil(SECOND));
                    let mut said = Observation::default();
                    match self.says {
                        Says::All | Says::Left => {
                            (said.limit, said.remaining) = (Some(self.server.limit), Some(left));
                            let is_now = admitted && self.says == Says::Left;
                            said.reset_after = Some(if is_now { Duration::ZERO } else { seconds });
                            said.retry_after = (!admitted).then_some(seconds);
                        }
                        _ => said.retry_after = (!admitted).then_some(seconds),
                    }
                    let way = self.way();
                    self.later(way, Event::Answered(decision, Some(said).filter(|_| self.says != Says::Nothing)));
                }
                Event::Answered(decision, said) => {
                    if let Some(said) = said {
                        self.limiter.observe(&self.policy, "origin", vec![said], Some(&decision)).expect("learned");
                    }
                    let pause = self.random.below(20_000);
                    self.later(pause, Event::Asks);
                }
            }
        }
    }

    /// The calls that were refused in these seconds, and the used part of the units that the server allows in them.
    fn judged(&self, from: u64, to: u64) -> (usize, f64) {
        let within = |at: &&u64| (START + from * SECOND..START + to * SECOND).contains(*at);
        let allowed = self.server.limit as f64 * ((to - from) * SECOND) as f64 / self.server.period as f64;
        let used = self.server.admitted.iter().filter(within).count() as f64 / allowed;
        (self.server.refused.iter().filter(within).count(), used)
    }
}

#[test]
fn a_limit_that_is_given_is_kept_and_used() {
    for book in [Book::Fixed, Book::FirstCall, Book::Sliding] {
        for (limit, says) in [(100, Says::Nothing), (100, Says::All), (7, Says::All), (1_000, Says::RetryAfter)] {
            let policy = Policy::parse(&format!("{limit}/10s")).expect("a policy").paced(Duration::from_millis(50));
            let mut world = World::new(policy.expect("paced"), book, (limit, 10 * SECOND), says, limit);
            world.run(200);
            let (refused, used) = world.judged(0, 200);
            println!("{book:?} {limit} {says:?}: {refused} refused, {used:.3} used");
            assert!(refused == 0 && used > 0.97, "{book:?} {limit} {says:?}: {refused} refused, {used} used");
        }
    }
}

#[test]
fn a_bucket_that_is_given_is_kept_and_used() {
    for (limit, says) in [(100, Says::Nothing), (100, Says::All)] {
        let policy = Policy::parse(&format!("token-bucket {limit}/10s")).expect("a policy");
        let policy = policy.paced(Duration::from_millis(50)).expect("paced");
        let mut world = World::new(policy, Book::Bucket, (limit, 10 * SECOND), says, limit);
        world.run(200);
        let (refused, used) = world.judged(0, 200);
        println!("bucket {limit} {says:?}: {refused} refused, {used:.3} used");
        assert!(refused == 0 && used > 0.97, "{limit} {says:?}: {refused} refused, {used} used");
    }
}

#[test]
fn a_limit_that_is_only_said_is_kept_and_used() {
    for book in [Book::Fixed, Book::FirstCall, Book::Sliding, Book::Bucket] {
        for limit in [20, 100, 500] {
            let mut world =
                World::new(Policy::learned().expect("a policy"), book, (limit, 10 * SECOND), Says::All, limit);
            world.run(300);
            let ((first, _), (refused, used)) = (world.judged(0, 20), world.judged(20, 300));
            println!("{book:?} {limit}: {first} at first, then {refused} refused, {used:.3} used");
            assert!(first <= CALLERS as usize && refused == 0 && used > 0.9, "{book:?} {limit}: {refused}, {used}");
        }
    }
}

#[test]
fn what_is_left_is_an_answer_without_a_reset() {
    for book in [Book::Fixed, Book::FirstCall, Book::Sliding, Book::Bucket] {
        for limit in [20, 100, 500] {
            let policy = Policy::learned().expect("a policy");
            let mut world = World::new(policy, book, (limit, 10 * SECOND), Says::Left, limit);
            world.run(300);
            let ((first, _), (refused, used)) = (world.judged(0, 20), world.judged(20, 300));
            println!("{book:?} {limit}: {first} at first, then {refused} refused, {used:.3} used");
            assert!(used > 0.9, "{book:?} {limit}: {refused}, {used}");
        }
    }
}

#[test]
fn a_limit_that_is_never_said_is_found_by_one_refusal_in_each_window() {
    for book in [Book::Fixed, Book::FirstCall] {
        for limit in [20, 100, 500] {
            let policy = Policy::learned().expect("a policy");
            let mut world = World::new(policy, book, (limit, 10 * SECOND), Says::RetryAfter, limit);
            world.run(300);
            let ((first, _), (refused, used)) = (world.judged(0, 30), world.judged(30, 300));
            println!("{book:?} {limit}: {first} at first, then {refused} refused, {used:.3} used");
            assert!(
                first <= 2 * CALLERS as usize && refused <= 28 && used > 0.9,
                "{book:?} {limit}: {refused}, {used}"
            );
        }
    }
    for book in [Book::Sliding, Book::Bucket] {
        let policy = Policy::learned().expect("a policy");
        let mut world = World::new(policy, book, (100, 10 * SECOND), Says::RetryAfter, 100);
        world.run(300);
        let (refused, used) = world.judged(30, 300);
        println!("{book:?}: {refused} refused, {used:.3} used");
        // The server announces the wait for one unit, in whole seconds.
        assert!(refused <= 1_080 && used > 0.9, "{book:?}: {refused}, {used}");
    }
}

#[test]
fn a_limit_that_is_never_said_may_change() {
    for (before, after) in [(200, 100), (100, 200)] {
        let policy = Policy::learned().expect("a policy");
        let mut world = World::new(policy, Book::Fixed, (before, 10 * SECOND), Says::RetryAfter, before);
        world.run(100);
        world.server.limit = after;
        world.run(300);
        let ((first, _), (refused, used)) = (world.judged(100, 120), world.judged(120, 300));
        println!("{before} to {after}: {first} at first, then {refused} refused, {used:.3} used");
        assert!(first <= 2 * CALLERS as usize && refused <= 19 && used > 0.9, "{refused}, {used}");
    }
}
