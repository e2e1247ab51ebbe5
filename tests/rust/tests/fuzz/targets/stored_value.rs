//! A value that is stored in Redis, as the script returns it: `notation \n operation cost \n moment form \n bytes in
//! hexadecimal`. A value is refused, or it is read into a state. The state is stored as the same bytes, and Decisions
//! and further checks on it stay within the limits.

use tidegate::bench::{BenchForm, BenchStoredReply, answer_of_reply, stored_header};
use tidegate::http::{Headers, headers, problem};
use tidegate::{Algorithm, Decision, Policy};

use crate::fuzz::outcome::{magnitude, shape};

pub(crate) const WORDS: &[&str] = &[
    "5/minute",
    "gcra 7/s burst 9",
    "token-bucket 3/10s",
    "leaky-bucket 1000/h",
    "fixed-window 9/s",
    "calendar-window 9/month",
    "calendar-window 9/3 weeks",
    "calendar-window 9/10 years",
    "sliding-log 5/s",
    "sliding-counter 5/s",
    "concurrency 3 ttl 9s",
    "; ",
    "check 1",
    "hold 2",
    "take 3",
    "peek 9007199254740991",
    "charge 2",
    "refund 1",
    "lease 8",
    "renew 1",
    "clear 1",
    "journal 1",
    "compact",
    "full",
    "narrow",
    "raw",
    "denied",
    "00",
    "ff",
    "ffffffffffffff",
    "00000000000000",
    "ffffffffffff1f",
    "0000000000",
    "000000000000f03f",
    "000000000000f07f",
    "ffffffffffffef7f",
    "000000000000f8ff",
    "\n",
    "2a00",
    "1c000000",
];

/// The largest number of a state, and of a moment.
const MAX_NUMBER: u64 = (1 << 53) - 1;
/// A sliding counter has two numbers.
const MAX_UNITS: u64 = 2 * MAX_NUMBER;
/// The largest moment, and the most that the rules may add: the longest time that a bucket drains, and ten years.
const MAX_MOMENT: u64 = MAX_NUMBER + (1 << 52) + 10 * 366 * 86_400 * 1_000_000;
const NOW: u64 = 1_704_067_200_000_000;

fn hexadecimal(text: &str) -> Vec<u8> {
    let digits: Vec<u32> = text.chars().filter_map(|c| c.to_digit(16)).collect();
    digits.chunks_exact(2).map(|pair| (pair[0] * 16 + pair[1]) as u8).collect()
}

pub(crate) fn run(input: &[u8]) -> String {
    let text = String::from_utf8_lossy(input);
    let mut lines = text.splitn(4, '\n');
    let mut line = || lines.next().unwrap_or_default();
    let (notation, operation, moment, bytes) = (line(), line(), line(), hexadecimal(line()));
    let Ok(policy) = Policy::parse(notation) else { return "no policy".to_owned() };
    let (operation, cost) = operation.split_once(' ').unwrap_or((operation, "1"));
    let cost = cost.trim().parse().unwrap_or(1_u64).clamp(1, MAX_NUMBER);
    let now = moment.split(' ').find_map(|word| word.parse().ok()).unwrap_or(NOW).min(MAX_NUMBER);
    let form = match moment {
        words if words.contains("compact") => Some(BenchForm::Compact),
        words if words.contains("full") => Some(BenchForm::Full),
        words if words.contains("narrow") => Some(BenchForm::Narrow),
        _ => None,
    };
    let value = match form.and_then(|form| stored_header(&policy, form)) {
        Some(header) => [header, bytes].concat(),
        None => bytes,
    };
    let denied = moment.contains("denied");
    let Some(answer) = answer_of_reply(&policy, (operation, cost), (now, denied), &value) else {
        return "no operation".to_owned();
    };
    peeked(&policy, &value, now);
    match answer {
        Err(error) => {
            assert_eq!(error.code(), "store_rejected", "{error}");
            assert!(error.message().len() <= 300, "{error}");
            format!("{operation} {form:?} {}", shape(error.message()))
        }
        Ok(reply) => {
            let plain = ["check", "peek", "charge", "refund"].contains(&operation);
            if plain && value.len() > 1 && form == Some(BenchForm::Compact) {
                round_trip(&reply, &value);
            }
            decided(&policy, &reply.decision());
            let states = checked(&policy, &reply, now, cost);
            let algorithms: Vec<&str> = policy.limits().iter().take(3).map(|limit| limit.algorithm().name()).collect();
            format!("{operation} {form:?} {algorithms:?} {states:?}")
        }
    }
}

/// The Decision that `inspect` and `top` show for a value.
fn peeked(policy: &Policy, value: &[u8], now: u64) {
    if let Some(decision) = tidegate::host::stored_decision(policy, "key", value, now) {
        decided(policy, &decision);
    }
}

fn round_trip(reply: &BenchStoredReply, value: &[u8]) {
    if let Some(encoded) = reply.encoded() {
        assert_eq!(encoded, value, "a state is stored as the bytes that it was read from");
    }
}

fn decided(policy: &Policy, decision: &Decision) {
    assert!(decision.limit() <= 1_000_000_000_000 && decision.remaining() <= decision.limit(), "{decision:?}");
    let latest = u128::from(MAX_MOMENT);
    assert!(decision.reset_after().as_micros() <= latest, "{decision:?}");
    assert!(decision.retry_after().is_none_or(|wait| wait.as_micros() <= latest), "{decision:?}");
    assert!(decision.granted() <= decision.cost() || !decision.allowed(), "{decision:?}");
    for (state, limit) in decision.limits().zip(policy.limits()) {
        assert!(state.remaining <= limit.capacity() && state.limit == limit.capacity(), "{state:?}");
        assert!(state.over <= MAX_UNITS && (state.over == 0 || state.remaining == 0), "{state:?}");
        assert!(state.reset_after.as_micros() <= latest, "{state:?}");
        assert!(state.next_after.is_none_or(|wait| wait.as_micros() <= latest), "{state:?}");
    }
    // Each limit is listed with the name of the policy, which is its notation if it has no other name.
    let most = 2_000 + (500 + decision.policy().len()) * policy.limits().len();
    for (name, value) in headers(decision, Headers::Both) {
        assert!(value.len() < most && value.is_ascii(), "{name}: {value}");
    }
    assert!(problem(decision).starts_with('{'));
    assert!(format!("{decision:?}").len() < 2_000 + most);
}

/// The result of one more check for each limit: the magnitude of its used units, and true if it admits.
fn checked(policy: &Policy, reply: &BenchStoredReply, now: u64, cost: u64) -> Vec<(u32, bool)> {
    let checks = reply.check(now, cost);
    for (check, limit) in checks.iter().zip(policy.limits()) {
        assert!(check.used <= MAX_UNITS && check.charged <= MAX_UNITS, "{limit}: {check:?}");
        assert_eq!(check.capacity, limit.capacity(), "{limit}");
        assert_eq!(check.admits, check.used + cost <= check.capacity, "{limit}: {check:?}");
        if check.admits {
            assert_eq!(check.charged, check.used + cost, "{limit}: {check:?}");
            let drains = limit.algorithm() == Algorithm::SlidingCounter;
            assert!(check.refunded == check.used || drains, "{limit}: {check:?}");
        }
        assert!(check.ends <= MAX_MOMENT, "{limit}: {check:?}");
    }
    checks.iter().take(3).map(|check| (magnitude(check.used), check.admits)).collect()
}
