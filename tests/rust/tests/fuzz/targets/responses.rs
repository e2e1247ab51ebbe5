//! The response of another service: `status and the longest wait in seconds \n a field each \n\n a line of body`. No wait is
//! longer than the longest wait, which changes nothing else. The clock of this machine does not count beside a `Date`.

use std::time::Duration;

use tidegate::http::{MAX_OBSERVATIONS, Observation, ObservationScope, ObservedResponse, ResponseReader};
use tidegate::policy::{MAX_COUNT, Period};

use crate::fuzz::outcome::magnitude;

pub(crate) const WORDS: &[&str] = &[
    "\n",
    "\n\n",
    ": ",
    ", ",
    ";",
    "=",
    "429",
    "403",
    "503",
    "200",
    "Date: Mon, 01 Jan 2024 00:00:00 GMT",
    "Retry-After: ",
    "retry-after-ms: ",
    "RateLimit: ",
    "RateLimit-Policy: ",
    "RateLimit-Limit: ",
    "RateLimit-Reset: ",
    "X-RateLimit-Limit",
    "X-RateLimit-Remaining",
    "X-RateLimit-Reset",
    "X-RateLimit-Reset-After: ",
    "X-RateLimit-Global: true",
    "X-RateLimit-Bucket: ",
    "anthropic-ratelimit-",
    "-tokens",
    "-minute",
    "-limit: ",
    "X-Shopify-Shop-Api-Call-Limit: 32/40",
    "x-amz-request-id: 1",
    "\"burst\";q=100;w=60",
    "\"burst\";r=0;t=30",
    "limit=100, remaining=0, reset=5",
    "Mon, 01 Jan 2024 00:02:00 GMT",
    "Monday, 01-Jan-24 00:02:00 GMT",
    "2024-01-01T00:02:00Z",
    "1704067242",
    "1704067242000",
    "31536000",
    "6m0s",
    "20ms",
    "17\u{b5}s",
    "NaN",
    "-1",
    "{\"retry_after\": 64.57, \"global\": true}",
    "{\"error\": {\"details\": [{\"retryDelay\": \"34.07s\"}]}}",
    "{\"message\": \"You have exceeded a secondary rate limit.\"}",
    "[",
    "\u{ff}",
];

/// 2024.
const NOW: Duration = Duration::from_secs(1_704_067_200);
/// The line that the promise about clocks adds.
const DATE: (&str, &[u8]) = ("Date", b"Mon, 01 Jan 2024 00:00:00 GMT");

/// The same response, as it is read with another longest wait.
fn cut(mut read: ObservedResponse, longest: Duration) -> ObservedResponse {
    for observation in &mut read.observations {
        observation.reset_after = observation.reset_after.map(|wait| wait.min(longest));
        observation.retry_after = observation.retry_after.map(|wait| wait.min(longest));
    }
    read
}

fn holds(index: usize, observation: &Observation, longest: Duration) {
    let Observation { limit, window, remaining, reset_after, retry_after, scope, .. } = observation;
    for wait in [reset_after, retry_after].into_iter().flatten() {
        assert!(*wait <= longest, "{wait:?} is longer than {longest:?}: {observation:?}");
    }
    assert!(limit.iter().chain(remaining).all(|count| *count <= MAX_COUNT), "{observation:?}");
    assert!(limit.zip(*remaining).is_none_or(|(limit, remaining)| remaining <= limit), "{observation:?}");
    let is_period = |window: &Duration| Period::from_micros(window.as_micros() as u64).is_ok();
    assert!(window.as_ref().is_none_or(is_period), "{observation:?}");
    assert!(index == 0 || retry_after.is_none(), "the wait is in {index}");
    assert!(*scope == ObservationScope::Key || retry_after.is_some(), "{observation:?}");
}

pub(crate) fn run(input: &[u8]) -> String {
    let mut parts = input.split(|byte| *byte == b'\n');
    let mut lines = parts.by_ref().take_while(|line| !line.is_empty());
    let first = String::from_utf8_lossy(lines.next().unwrap_or_default()).into_owned();
    let (status, longest) = first.split_once(' ').unwrap_or((&first, ""));
    let status = status.parse::<u16>().ok();
    let longest = Duration::from_secs(longest.parse().unwrap_or(3_600));
    let fields: Vec<(String, &[u8])> = lines
        .filter_map(|line| {
            let colon = line.iter().position(|byte| *byte == b':')?;
            Some((String::from_utf8_lossy(&line[..colon]).into_owned(), &line[colon + 1..]))
        })
        .collect();
    let body = parts.next().unwrap_or_default();
    let given = || fields.iter().map(|(name, value)| (name.as_str(), *value));
    let reader = |now: Duration| {
        let reader = ResponseReader::new(now).max_learned_wait(longest);
        status.map_or(reader, |status| reader.status(status))
    };
    let read = reader(NOW).read(given(), body);
    assert!(read.observations.len() <= MAX_OBSERVATIONS, "{} Observations", read.observations.len());
    for (index, observation) in read.observations.iter().enumerate() {
        holds(index, observation, longest);
    }
    // The checks below read again, so an eighth of the inputs is enough.
    if input.len().is_multiple_of(8) {
        let second = Duration::from_secs(1);
        if longest >= second {
            let shorter = reader(NOW).max_learned_wait(second).read(given(), body);
            assert_eq!(shorter, cut(read.clone(), second), "the longest wait only cuts");
        }
        let shouted = fields.iter().map(|(name, value)| (name.to_ascii_uppercase(), *value));
        assert_eq!(reader(NOW).read(shouted, body), read, "names count in any case");
        let at = |now: Duration| reader(now).read(given().chain([DATE]), body);
        if fields.len() < 64 {
            assert_eq!(at(NOW / 2), at(NOW), "the clock of this machine does not count beside a Date");
        }
    }
    let said = |observation: &Observation| {
        let Observation { name, limit, window, unit, remaining, reset_after, retry_after, .. } = observation;
        let parts = [name.is_some(), limit.is_some(), window.is_some(), unit.is_some(), remaining.is_some()];
        let bits = parts.iter().fold(0, |bits, part| bits * 2 + u32::from(*part));
        let size = |wait: &Option<Duration>| wait.map(|wait| magnitude(wait.as_micros() as u64));
        format!("{bits} {:?} {:?}", size(reset_after), size(retry_after))
    };
    let kinds: Vec<String> = read.observations.iter().take(3).map(said).collect();
    format!("{kinds:?} {}", read.ignored.min(3))
}
