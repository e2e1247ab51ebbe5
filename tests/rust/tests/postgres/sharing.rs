//! Processes that share a key: a far one gets its turns, and a stopped one charges nothing in the past.

use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use tidegate::{OnStoreError, Options, Policy, Source};
use tidegate_tests::budget::is_full;
use tidegate_tests::proxy::{Condition, Proxy};
use tidegate_tests::servers::{Kind, Servers};
use tidegate_tests::wait::wait_until;

use super::{PATIENCE, POLICY, builder, strict};

/// One of several processes. Its environment names the store and what to do.
#[test]
fn process_part() {
    let Ok(url) = std::env::var("TIDEGATE_PART_URL") else { return };
    let milliseconds = std::env::var("TIDEGATE_PART_LENGTH").ok().and_then(|text| text.parse().ok());
    let Some(length) = milliseconds.map(Duration::from_millis) else {
        let decision = strict(&url).check(&journaled(), "alice").expect("a decision");
        return println!("\nended {}", decision.allowed());
    };
    let limiter = builder(&url).on_store_error(OnStoreError::Local).build().expect("a limiter");
    limiter.check(POLICY, "warm").expect("a decision");
    let (began, mut answered) = (Instant::now(), 0);
    while began.elapsed() < length {
        let decision = limiter.check(POLICY, "hot").expect("no call fails");
        assert_eq!(decision.source(), Source::Store, "nobody falls back");
        answered += 1;
    }
    println!("\nanswered {answered}");
}

struct Part(Child, BufReader<ChildStdout>);

impl Part {
    fn start(url: &str, length: Option<Duration>) -> Self {
        let mut command = Command::new(std::env::current_exe().expect("this program"));
        command.args(["--exact", "postgres::sharing::process_part", "--nocapture"]);
        command.env("TIDEGATE_PART_URL", url).stdout(Stdio::piped());
        if let Some(length) = length {
            command.env("TIDEGATE_PART_LENGTH", length.as_millis().to_string());
        }
        let mut child = command.spawn().expect("a process");
        let lines = BufReader::new(child.stdout.take().expect("a pipe"));
        Self(child, lines)
    }

    /// The rest of the next line that begins with this word.
    fn says(&mut self, word: &str) -> String {
        let mut line = String::new();
        while !line.starts_with(word) {
            line.clear();
            assert_ne!(self.1.read_line(&mut line).expect("a line"), 0, "it ended before it was {word}");
        }
        line[word.len()..].trim().to_owned()
    }

    fn signal(&self, name: &str) {
        let sent = Command::new("kill").args([name, &self.0.id().to_string()]).status().expect("kill runs");
        assert!(sent.success());
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        drop((self.0.kill(), self.0.wait()));
    }
}

#[test]
fn a_process_that_is_far_away_gets_its_share_of_a_key() {
    if !is_full() {
        return;
    }
    let server = Servers::start(Kind::Postgres);
    let near = format!("{}?create=yes", server.url());
    strict(&near).check(POLICY, "hot").expect("a decision");
    let proxy = Proxy::to(server.port(0));
    proxy.set(Condition::Slow(Duration::from_millis(5)));
    let far = near.replace(&server.port(0).to_string(), &proxy.port().to_string());
    let run = |urls: &[&str]| {
        let mut parts: Vec<Part> = urls.iter().map(|url| Part::start(url, Some(Duration::from_secs(2)))).collect();
        let rates = parts.iter_mut().map(|part| part.says("answered").parse::<u64>().expect("a number"));
        rates.collect::<Vec<u64>>()
    };
    // A busy machine may give the far process little time once.
    let mut seen = Vec::new();
    let is_fair = (0..3).any(|_| {
        let alone = run(&[&far])[0];
        let rates = run(&[&far, &near, &near, &near, &near, &near]);
        seen.push((alone, rates.clone()));
        rates[0] * 3 >= alone
    });
    println!("alone, and beside five others: {seen:?}");
    assert!(is_fair, "alone, and beside five others: {seen:?}");
}

fn journaled() -> Policy {
    let limits = Policy::parse("1000/day").expect("a notation").limits().to_vec();
    Policy::new(limits, Options { journal: 10, ..Options::default() }).expect("a policy")
}

#[test]
fn a_process_that_was_stopped_between_read_and_swap_charges_nothing_in_the_past() {
    let server = Servers::start(Kind::Postgres);
    let url = format!("{}?create=yes", server.url());
    let limiter = strict(&url);
    limiter.check(POLICY, "warm").expect("a decision");
    let proxy = Proxy::to(server.port(0));
    proxy.set(Condition::Slow(Duration::from_millis(250)));
    let far = url.replace(&server.port(0).to_string(), &proxy.port().to_string());
    let mut part = Part::start(&format!("{far}&application_name=stopped"), None);
    let has_read = "SELECT count(*) FROM pg_stat_activity \
                    WHERE application_name = 'stopped' AND state = 'idle' AND query LIKE '%stored.version%'";
    wait_until(PATIENCE, "it has read", || server.command(0, &[has_read])[0] == "1");
    part.signal("-STOP");
    std::thread::sleep(Duration::from_secs(3));
    let clock = server.command(0, &["SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint"]);
    let resumed: u64 = clock[0].as_str().and_then(|text| text.parse().ok()).expect("a clock");
    part.signal("-CONT");
    assert_eq!(part.says("ended"), "true");
    let attempts = limiter.journal(&journaled(), "alice").expect("a journal");
    assert_eq!(attempts.len(), 1);
    assert!(attempts[0].at >= resumed, "{} us before it went on", resumed - attempts[0].at);
}
