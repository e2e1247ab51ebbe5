//! Stored values of which bytes were changed, on a real server: whatever stands in a value, the script does bounded work, and says
//! that the state is broken or answers what the bytes mean.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tidegate::{Algorithm, ErrorKind, Limiter, ManualClock, Policy};
use tidegate_tests::random::Random;
use tidegate_tests::servers::{Kind, Servers};
use tidegate_tests::setting::setting;

const POLICIES: [&str; 11] = [
    "fixed-window 5/2s",
    "calendar-window 5/2s",
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
/// Changed values for each policy; `TIDEGATE_DAMAGES` sets another number.
const DAMAGES: u64 = 400;
/// The most that a call on one small value may take, on a machine that is busy with other tests too.
const LONGEST: Duration = Duration::from_secs(5);

struct Damaged {
    servers: Servers,
    limiter: Limiter,
    clock: Arc<ManualClock>,
    policy: Policy,
}

impl Damaged {
    fn new(notation: &str) -> Self {
        let (servers, clock) =
            (Servers::start(Kind::Single), Arc::new(ManualClock::new(Duration::from_secs(1_800_000_000))));
        let limiter =
            Limiter::builder().store(servers.url()).timeout(Duration::from_secs(30)).deny_cache(Duration::ZERO);
        let limiter = limiter.clock(Arc::clone(&clock)).build().expect("a limiter");
        let policy = Policy::parse(notation).expect("a policy").named("p").expect("a name");
        Self { servers, limiter, clock, policy }
    }

    /// Values of several forms: hardly used, with a list, beyond the limit, blocked, with traces.
    fn values(&self) -> Vec<Vec<u8>> {
        let mut connection = self.servers.connection(0);
        let steps: [&dyn Fn(); 6] = [
            &|| drop(self.limiter.charge(&self.policy, "k", 1).expect("a charge")),
            &|| {
                for _ in 0..90 {
                    self.clock.advance(Duration::from_millis(3));
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

    /// One call on a value; it must be fast, and answer what can be.
    fn call(&self, key: &[u8], value: &[u8], number: u64) {
        let mut connection = self.servers.connection(0);
        let () = redis::cmd("SET").arg(key).arg(value).query(&mut connection).expect("it is stored");
        let began = Instant::now();
        let result = match number % 4 {
            0 => self.limiter.peek(&self.policy, "k", 1),
            1 => self.limiter.refund(&self.policy, "k", 3),
            // Its units stay charged until the next value takes their place.
            2 | 3 if self.policy.limits().iter().any(|limit| limit.algorithm() == Algorithm::Concurrency) => {
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
                assert_eq!(error.kind(), ErrorKind::StoreRejected, "{error}");
                let expected = ["holds a broken state", "is no state of this version", "a state that cannot be read"];
                let said = expected.iter().any(|part| error.message().contains(part));
                assert!(said, "{error} after {value:?}");
            }
        }
    }
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
                damaged.clock.advance(Duration::from_millis(2_200));
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
        let mut random = Random::new(7);
        for number in 0..damages {
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
                damaged.clock.advance(Duration::from_millis(random.below(2_500)));
            }
            damaged.call(&key, &value, number);
        }
    }
}
