//! Random lives of keys with turns, against a model that counts what was used, and when, by brute force.

use std::time::Duration;

use tidegate::{Cost, Policy};
use tidegate_tests::random::Random;
use tidegate_tests::setting::setting;

use super::{Caller, START, limiters, seconds};

/// A bucket as one number, the moment at which it is empty, in parts of a microsecond of which `count` make one.
struct Bucket {
    count: i128,
    period: i128,
    burst: i128,
    empty: i128,
}

impl Bucket {
    fn admits_at(&self, now: i128, cost: i128) -> i128 {
        // Rounded up to a microsecond.
        let at = (self.empty + (cost - self.burst) * self.period).div_euclid(self.count)
            + i128::from((self.empty + (cost - self.burst) * self.period).rem_euclid(self.count) > 0);
        at.max(now)
    }

    fn charge(&mut self, at: i128, cost: i128) {
        self.empty = self.empty.max(at * self.count) + cost * self.period;
    }
}

/// Units that were used, by whom and when.
#[derive(Debug, Clone, Copy)]
struct Used {
    at: i128,
    units: i128,
}

const BUCKETS: [(&str, i128, i128, i128); 5] = [
    ("gcra 3/10s burst 3", 3, 10_000_000, 3),
    ("gcra 1/s burst 1", 1, 1_000_000, 1),
    ("token-bucket 7/s burst 20", 7, 1_000_000, 20),
    ("leaky-bucket 5/s burst 3", 5, 1_000_000, 3),
    ("gcra 200/s burst 2", 200, 1_000_000, 2),
];

#[test]
fn turns_are_where_a_brute_force_has_them_and_no_bucket_is_overdrawn() {
    let (_redis, limiters) = limiters();
    let histories = setting("TIDEGATE_HISTORIES").unwrap_or(10_000) / 50;
    for history in 0..histories {
        let random = &mut Random::new(history);
        let chosen: Vec<_> = (0..1 + random.below(3)).map(|_| random.pick(&BUCKETS)).collect();
        let mut distinct = chosen.clone();
        distinct.dedup_by_key(|bucket| bucket.0);
        let notation = distinct.iter().map(|bucket| bucket.0).collect::<Vec<_>>().join("; ");
        let policy = Policy::parse(&notation).expect("a policy");
        let (limiter, clock) = &limiters[(history % 2) as usize];
        clock.set(START);
        limiter.to_blocking().clear_all().expect("nothing is left");
        let mut buckets: Vec<Bucket> =
            distinct.iter().map(|&(_, count, period, burst)| Bucket { count, period, burst, empty: 0 }).collect();
        let burst = buckets.iter().map(|bucket| bucket.burst).min().expect("a bucket");
        let (mut used, mut sleeping): (Vec<Used>, Vec<(i128, Caller)>) = (Vec::new(), Vec::new());
        for _ in 0..40 {
            let now = clock.now().as_micros() as i128;
            let cost = 1 + i128::from(random.below(burst as u64));
            let at = buckets.iter().map(|bucket| bucket.admits_at(now, cost)).max().expect("a bucket");
            match random.below(4) {
                0 => {
                    let decision = limiter.to_blocking().check_n(&policy, "k", cost as u64).expect("a decision");
                    assert_eq!(decision.allowed(), at == now, "{notation}, history {history}");
                    if at == now {
                        buckets.iter_mut().for_each(|bucket| bucket.charge(now, cost));
                        used.push(Used { at: now, units: cost });
                    }
                }
                1 | 2 => {
                    let timeout = seconds(random.below(8_000) as f64 / 1_000.0);
                    let in_time = at - now <= timeout.as_micros() as i128;
                    if in_time && at > now {
                        let waiting = limiter.waiting(&policy, "k");
                        let mut caller = Caller::asks(limiter, &policy, "k", Cost::from(cost as u64), Some(timeout));
                        tidegate_tests::wait::wait_until(Duration::from_secs(10), "it has a turn", || {
                            assert!(caller.polled().is_none(), "{notation}, history {history}");
                            limiter.waiting(&policy, "k") > waiting
                        });
                        sleeping.push((at, caller));
                    } else {
                        let call = limiter.to_blocking().acquire(&policy, "k", cost as u64, Some(timeout));
                        let decision = call.expect("a decision");
                        assert_eq!(decision.allowed(), in_time, "{notation}, history {history}");
                        let wait = Duration::from_micros((at - now) as u64);
                        assert_eq!(decision.retry_after(), Some(wait), "{notation}, history {history}");
                    }
                    if in_time {
                        buckets.iter_mut().for_each(|bucket| bucket.charge(at, cost));
                        used.push(Used { at, units: cost });
                    }
                }
                _ => {
                    // To a turn or by any time, so that a turn is seen at its moment.
                    let next = sleeping.first().map_or(now, |(at, _)| *at);
                    let by = if next > now && random.one_in(2) { next - now } else { random.below(900_000).into() };
                    let to = (now + by).min(if next > now { next } else { i128::MAX });
                    clock.set(Duration::from_micros(to as u64));
                }
            }
            let now = clock.now().as_micros() as i128;
            while sleeping.first().is_some_and(|(at, _)| *at <= now) {
                let (at, mut caller) = sleeping.remove(0);
                let decision = caller.decision();
                assert!(decision.allowed());
                assert_eq!(decision.at().as_micros() as i128, at, "{notation}, history {history}");
            }
        }
        // What was used when is within each bucket, whatever it was that decided.
        used.sort_by_key(|used| used.at);
        for &(name, count, period, burst) in &distinct {
            let mut bucket = Bucket { count, period, burst, empty: 0 };
            for used in &used {
                assert_eq!(
                    bucket.admits_at(used.at, used.units),
                    used.at,
                    "{name} in {notation}, history {history}: {used:?}"
                );
                bucket.charge(used.at, used.units);
            }
        }
    }
}
