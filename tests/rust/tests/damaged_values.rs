//! Stored values with changed bytes, on a real server. Whatever a value contains, the script does bounded work. It
//! answers by the meaning of the bytes, or that the state is broken.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tidegate::{Algorithm, ErrorKind, Limiter, ManualClock, OnStoreError, Options, Policy};
use tidegate_tests::budget::{is_full, within};
use tidegate_tests::random::Random;
use tidegate_tests::servers::{Kind, Servers};
use tidegate_tests::setting::setting;

const POLICIES: [&str; 12] = [
    "fixed-window 5/2s",
    "calendar-window 5/2s",
    "calendar-window 5/day in Asia/Tokyo",
    "sliding-log 5/2s",
    "sliding-log 200/2s",
    "sliding-window 5/2s",
    "sliding-counter 5/2s",
    "token-bucket 5/2s",
    "gcra 7/3s",
    "leaky-bucket 5/2s",
    "concurrency 5 ttl 2s",
    "sliding-log 9/2s; sliding-window 9/2s; gcra 9/2s; concurrency 9 ttl 2s",
];
/// The number of changed values for each policy. `TIDEGATE_DAMAGES` sets another number.
const DAMAGES: u64 = 400;
/// The bytes that `each_byte_of_a_value_may_be_any` puts into a value.
const BYTES: [u8; 6] = [0, 1, 0x20, 0x40, 0x80, 0xff];
/// The clock of a server may jump back 30 days before the script calls moments broken, plus half a second, plus four of
/// the longest periods here. A window of a custom calendar may end two periods later, and its key lives two more.
const LATEST: Duration = Duration::from_secs((30 + 4 * 31) * 86_400 + 1);
/// The longest lease of a hold. Its limit alone does not bound it.
const LONGEST_TTL: Duration = Duration::from_secs(3_660 * 86_400);
/// The longest that a limit of another release may count. Its policy is not known.
const LONGEST_DRAIN: Duration = Duration::from_micros(1 << 52);
/// The bit in the first byte of a value that marks the full form.
const FULL: u8 = 0x10;
/// The most that a call on one small value may take. The machine may be busy with other tests too.
const LONGEST: Duration = Duration::from_secs(5);

fn manual_clock() -> Arc<ManualClock> {
    Arc::new(ManualClock::new(Duration::from_secs(1_800_000_000)))
}

struct Damaged {
    servers: Servers,
    limiter: Limiter,
    /// The clock of the limiter, unless it uses the clock of the server.
    clock: Option<Arc<ManualClock>>,
    policy: Policy,
}

impl Damaged {
    fn new(notation: &str) -> Self {
        Self::with_clock(Policy::parse(notation).expect("a policy"), Some(manual_clock()))
    }

    fn with_clock(policy: Policy, clock: Option<Arc<ManualClock>>) -> Self {
        let servers = Servers::start(Kind::Single);
        let limiter = Limiter::builder()
            .store(servers.url())
            .timeout(Duration::from_secs(30))
            .deny_cache(Duration::ZERO)
            .on_store_error(OnStoreError::Raise);
        let limiter = match &clock {
            Some(clock) => limiter.clock(Arc::clone(clock)),
            None => limiter,
        };
        let limiter = limiter.build().expect("a limiter");
        Self { servers, limiter, clock, policy: policy.named("p").expect("a name") }
    }

    fn advance(&self, millis: u64) {
        match &self.clock {
            Some(clock) => clock.advance(Duration::from_millis(millis)),
            None => std::thread::sleep(Duration::from_millis(millis)),
        }
    }

    fn takes_holds(&self) -> bool {
        self.policy.limits().iter().any(|limit| limit.algorithm() == Algorithm::Concurrency)
    }

    fn get(&self, key: &[u8]) -> Vec<u8> {
        redis::cmd("GET").arg(key).query(&mut self.servers.connection(0)).expect("a value")
    }

    /// Values of several forms: hardly used, with a list, beyond the limit, blocked, with traces.
    fn values(&self) -> Vec<Vec<u8>> {
        let mut connection = self.servers.connection(0);
        let steps: [&dyn Fn(); 6] = [
            &|| drop(self.limiter.charge(&self.policy, "k", 1).expect("a charge")),
            &|| {
                for _ in 0..90 {
                    self.advance(3);
                    self.limiter.charge(&self.policy, "k", 1).expect("a charge");
                }
            },
            &|| drop(self.limiter.charge(&self.policy, "k", 400).expect("a charge")),
            &|| drop(self.limiter.refund(&self.policy, "k", 60).expect("a refund")),
            &|| self.limiter.block(&self.policy, "k", Duration::from_secs(1)).expect("a block"),
            &|| {
                drop(
                    self.limiter
                        .check(Policy::parse("gcra 3/9s").expect("a policy").named("p").expect("a name"), "k")
                        .expect("a check"),
                )
            },
        ];
        steps
            .iter()
            .map(|step| {
                step();
                redis::cmd("GET").arg(self.key()).query(&mut connection).expect("a value")
            })
            .collect()
    }

    fn key(&self) -> Vec<u8> {
        let mut connection = self.servers.connection(0);
        let keys: Vec<Vec<u8>> = redis::cmd("KEYS").arg("tg*").query(&mut connection).expect("keys");
        // The chunks of a log have a longer name.
        keys.into_iter().min_by_key(Vec::len).expect("a key")
    }

    /// One call on a value. It must be fast, and leave no more units than the limit has.
    fn call(&self, key: &[u8], value: &[u8], number: u64) {
        let mut connection = self.servers.connection(0);
        let () = redis::cmd("SET").arg(key).arg(value).query(&mut connection).expect("it is stored");
        let began = Instant::now();
        let result = match number % 4 {
            0 => self.limiter.peek(&self.policy, "k", 1),
            1 => self.limiter.refund(&self.policy, "k", 3),
            // The units of the hold stay charged until the next value takes their place.
            2 | 3 if self.takes_holds() => {
                self.limiter.hold(&self.policy, "k", 1).map(|answer| answer.decision().clone())
            }
            2 => self.limiter.check_all([(&self.policy, "k", 1)]),
            _ => self.limiter.check(&self.policy, "k"),
        };
        let took = began.elapsed();
        assert!(took < LONGEST, "{took:?} for {value:?} of {}", self.policy.name());
        match result {
            Ok(decision) => {
                let consumed = u64::from(number % 4 >= 2 && decision.allowed());
                let entries = if decision.decisions().is_empty() {
                    std::slice::from_ref(&decision)
                } else {
                    decision.decisions()
                };
                for limit in entries.iter().flat_map(|entry| entry.limits().collect::<Vec<_>>()) {
                    assert!(limit.remaining + consumed <= limit.limit, "{limit:?} after {value:?}");
                }
            }
            Err(error) => {
                assert_is_broken(&error, value);
            }
        }
    }

    /// A call on a value with any bytes. It answers by their meaning, or it answers that the state is broken. Then it
    /// writes nothing, and a clear makes the key usable.
    fn judge(&self, key: &[u8], value: &[u8], number: usize) {
        let mut connection = self.servers.connection(0);
        let () = redis::cmd("SET").arg(key).arg(value).query(&mut connection).expect("it is stored");
        let (limiter, policy) = (&self.limiter, &self.policy);
        let held = std::cell::RefCell::new(Vec::new());
        let one_more = || match self.takes_holds() {
            true => limiter.hold(policy, "k", 1).map(|answer| {
                let allowed = answer.decision().allowed();
                held.borrow_mut().push(answer);
                allowed
            }),
            false => limiter.check(policy, "k").map(|decision| decision.allowed()),
        };
        let result = match number {
            0 => one_more(),
            1 => limiter.peek(policy, "k", 1).map(|decision| decision.allowed()),
            2 => limiter.charge(policy, "k", 1).map(|_| true),
            3 => limiter.refund(policy, "k", 1).map(|_| true),
            _ => limiter.block(policy, "k", Duration::from_millis(1)).map(|()| true),
        };
        let what = || format!("call {number} on {value:?} of {}", policy.limits()[0]);
        match result {
            Ok(allowed) => {
                let ttl: i64 = redis::cmd("PTTL").arg(key).query(&mut connection).expect("a TTL");
                let most = LATEST
                    + match self.get(key).first() {
                        Some(head) if head & FULL > 0 => LONGEST_DRAIN,
                        _ if self.takes_holds() => LONGEST_TTL,
                        _ => Duration::ZERO,
                    };
                assert!(i128::from(ttl) <= most.as_millis() as i128, "a TTL of {ttl} ms after {}", what());
                let mut admitted = u64::from(number == 0 && allowed);
                // With the clock of a server, a window may end between two calls.
                let most = policy.limits()[0].capacity() * if self.clock.is_some() { 1 } else { 2 };
                let one_more_later = || match one_more() {
                    Ok(allowed) => allowed,
                    // When a hold expires, its units leave the total. Only then is a damaged number of units found.
                    Err(error) if self.clock.is_none() && self.takes_holds() => {
                        assert_is_broken(&error, value);
                        false
                    }
                    Err(error) => panic!("{error} later, after {}", what()),
                };
                while one_more_later() {
                    admitted += 1;
                    assert!(admitted <= most, "{admitted} were admitted after {}", what());
                }
            }
            Err(error) => {
                assert_is_broken(&error, value);
                assert_eq!(self.get(key), value, "{error} after {}", what());
                limiter.clear(policy, "k").expect("a clear");
                assert!(one_more().expect("a usable key"), "refused after a clear, after {}", what());
            }
        }
    }
}

#[track_caller]
fn assert_is_broken(error: &tidegate::Error, value: &[u8]) {
    assert_eq!(error.kind(), ErrorKind::StoreRejected, "{error}");
    let expected = ["holds a broken state", "is no state of this version"];
    assert!(expected.iter().any(|part| error.message().contains(part)), "{error} after {value:?}");
}

/// All of the bytes in a full run, otherwise one, and another one for the next position.
fn bytes(at: usize) -> &'static [u8] {
    if is_full() { &BYTES } else { &BYTES[at % 6..][..1] }
}

/// Judges the values of a policy: each byte of them changed, one byte more and one less.
fn judge_each_byte(damaged: &Damaged) {
    let (values, key) = (damaged.values(), damaged.key());
    let mut seen = std::collections::HashSet::new();
    let mut number = 0;
    for value in values.iter().filter(|value| seen.insert(value.len())) {
        // The middle of a long list is like its beginning.
        let positions = (0..value.len()).filter(|at| *at < 60 || at + 60 > value.len());
        for at in positions {
            for byte in bytes(at) {
                let mut changed = value.clone();
                changed[at] = *byte;
                damaged.judge(&key, &changed, 0);
                damaged.judge(&key, &changed, 1 + number % 4);
                number += 1;
            }
        }
        let longer = [value.as_slice(), &[7]].concat();
        for changed in [longer.as_slice(), &value[..value.len() - 1]] {
            (0..5).for_each(|number| damaged.judge(&key, changed, number));
        }
    }
}

/// A policy of each algorithm.
fn each() -> impl Iterator<Item = Policy> {
    let notations = [
        "fixed-window 5/20s",
        "calendar-window 5/day",
        "calendar-window 5/month",
        "calendar-window 5/month from day 15 at 06:00",
        "sliding-log 5/20s",
        "sliding-window 5/20s",
        "sliding-counter 5/20s",
        "token-bucket 5/20s",
        "gcra 7/20s burst 7",
        "leaky-bucket 5/20s",
        "concurrency 5 ttl 20s",
    ];
    let bucket = Policy::parse("token-bucket 5/20s").expect("a policy").limits()[0].clone();
    let bucket =
        Policy::new(vec![bucket.with_initial(2).expect("initial tokens")], Options::default()).expect("a policy");
    notations.into_iter().map(|notation| Policy::parse(notation).expect("a policy")).chain([bucket])
}

#[test]
fn each_byte_of_a_value_may_be_any() {
    each().for_each(|policy| judge_each_byte(&Damaged::with_clock(policy, Some(manual_clock()))));
}

#[test]
fn each_byte_of_a_value_may_be_any_by_the_clock_of_the_server() {
    each().for_each(|policy| judge_each_byte(&Damaged::with_clock(policy, None)));
}

#[test]
fn a_log_that_names_chunks_without_number_is_answered_at_once() {
    let damaged = Damaged::new("sliding-log 5/2s");
    damaged.limiter.check(&damaged.policy, "k").expect("a check");
    let key = damaged.key();
    let value: Vec<u8> = redis::cmd("GET").arg(&key).query(&mut damaged.servers.connection(0)).expect("a value");
    for position in 0..value.len() {
        for byte in [0x2d, 0xff] {
            let mut changed = value.clone();
            changed[position] = byte;
            for number in 0..4 {
                damaged.advance(2_200);
                damaged.call(&key, &changed, number);
            }
        }
    }
}

#[test]
fn whatever_stands_in_a_value_the_work_is_bounded() {
    let damages = setting("TIDEGATE_DAMAGES").unwrap_or(DAMAGES);
    for notation in POLICIES {
        let damaged = Damaged::new(notation);
        let (values, key) = (damaged.values(), damaged.key());
        let mut random = Random::new(setting("TIDEGATE_SEED").unwrap_or(7));
        for number in within(1, 0..damages) {
            let mut value = values[random.below(values.len() as u64) as usize].clone();
            for _ in 0..1 + random.below(3) {
                let (at, byte) = (random.below(value.len() as u64) as usize, random.below(256) as u8);
                match random.below(6) {
                    0 => value.truncate(at.max(1)),
                    1 => value.insert(at, byte),
                    2 => drop(value.remove(at)),
                    _ => value[at] = random.pick(&[0, 1, 0x2d, 0x7f, 0xff, byte]),
                }
                if value.is_empty() {
                    value.push(0x41);
                }
            }
            if random.one_in(3) {
                damaged.advance(random.below(2_500));
            }
            damaged.call(&key, &value, number);
        }
    }
}
