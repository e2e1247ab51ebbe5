//! Values of version 1, as the last release that wrote them left them on a server. They mean the same, and the next
//! write makes them values of version 2.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tidegate::{Decision, Limiter, ManualClock};
use tidegate_tests::servers::{Kind, Servers};

/// The values that the release stored, and its answers about them.
const RECORDED: &str = include_str!("version_1.json");

fn bytes(hex: &Value) -> Vec<u8> {
    let hex = hex.as_str().expect("hexadecimal digits");
    let digits = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).expect("hexadecimal digits");
    (0..hex.len()).step_by(2).map(digits).collect()
}

fn seconds(number: &Value) -> Duration {
    Duration::from_secs_f64(number.as_f64().expect("a number"))
}

/// The answer of a limiter, in whole microseconds.
fn said(decision: &Decision) -> Vec<(u64, u64, i64)> {
    let micros = |length: Duration| length.as_micros() as i64;
    decision.limits().map(|limit| (limit.remaining, limit.over, micros(limit.reset_after))).collect()
}

#[test]
fn values_of_version_1_are_read_and_written_anew() {
    let redis = Servers::start(Kind::Single);
    let recorded: Value = serde_json::from_str(RECORDED).expect("JSON");
    let start = seconds(&recorded["start"]);
    let cases = recorded["cases"].as_array().expect("cases");
    assert_eq!(cases.len(), 43);
    for case in cases {
        let name = case["name"].as_str().expect("a name");
        redis.command(0, &["FLUSHALL"]);
        let mut connection = redis.connection(0);
        let mut values = Vec::new();
        for key in case["keys"].as_array().expect("keys") {
            let name = bytes(&key["key"]);
            if key.get("value").is_some() {
                let value = bytes(&key["value"]);
                assert_eq!(value[0] >> 5, 1, "it is of version 1");
                let () = redis::cmd("SET").arg(&name).arg(value).query(&mut connection).expect("it is stored");
                values.push(name);
            } else {
                for field in key["fields"].as_array().expect("fields") {
                    let (field, body) = (bytes(&field[0]), bytes(&field[1]));
                    let () = redis::cmd("HSET").arg(&name).arg(field).arg(body).query(&mut connection).expect("stored");
                }
            }
        }
        let clock = Arc::new(ManualClock::new(start));
        let limiter = Limiter::builder().store(redis.url()).timeout(Duration::from_secs(10)).deny_cache(Duration::ZERO);
        let limiter = limiter.clock(Arc::clone(&clock)).policy("p", case["policy"].as_str().expect("a policy"));
        let limiter = limiter.expect("a policy").build().expect("a limiter");
        for says in case["says"].as_array().expect("answers") {
            clock.set(start + seconds(&says["at"]));
            let decision = limiter.peek("p", "k", 1).expect("a peek");
            let at = &says["at"];
            assert_eq!(decision.allowed(), says["allowed"], "{name} at {at}");
            let number = |field: &str, index: usize| says[field][index].as_f64().expect("a number");
            for (index, (remaining, over, reset)) in said(&decision).into_iter().enumerate() {
                assert_eq!(
                    (remaining, over),
                    (number("remaining", index) as u64, number("over", index) as u64),
                    "{name} at {at}"
                );
                let expected = (number("reset_after", index) * 1e6).round() as i64;
                assert!((reset - expected).abs() <= 1, "{name} at {at}: {reset} in place of {expected}");
            }
        }
        // The next write makes it a value of version 2.
        let first = &case["says"][0];
        clock.set(start + seconds(&first["at"]));
        limiter.charge("p", "k", 1).expect("a charge");
        for key in &values {
            let value: Vec<u8> = redis::cmd("GET").arg(key).query(&mut connection).expect("a value");
            assert_eq!(value[0] >> 5, 2, "{name}");
        }
        let left = said(&limiter.peek("p", "k", 1).expect("a peek"));
        for (index, (remaining, over, _)) in left.into_iter().enumerate() {
            let number = |field: &str| first[field][index].as_i64().expect("a number");
            let before = number("remaining") - number("over");
            assert_eq!(remaining as i64 - over as i64, before - 1, "{name}");
        }
    }
}
