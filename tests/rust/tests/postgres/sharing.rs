//! Processes that share a key: a far one gets its turns, and one that was stopped charges nothing in the past.

use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use tidegate::{OnStoreError, Options, Policy, Source};
use tidegate_tests::call_records::wall;
use tidegate_tests::proxy::{Condition, Proxy};
use tidegate_tests::servers::{Kind, Servers};

use super::{POLICY, builder, strict};

const LENGTH: Duration = Duration::from_secs(2);

/// A policy that notes when each attempt was decided.
fn noting() -> Policy {
    let limits = Policy::parse(POLICY).expect("a notation").limits().to_vec();
    Policy::new(limits, Options { journal: 100, ..Options::default() })
        .and_then(|policy| policy.named("noting"))
        .expect("a policy")
}

/// One of several processes. Its environment names the store.
#[test]
fn process_part() {
    let Ok(url) = std::env::var("TIDEGATE_PART_URL") else { return };
    let limiter = builder(&url).on_store_error(OnStoreError::Local).build().expect("a limiter");
    limiter.check(POLICY, "warm").expect("a decision");
    let noting = std::env::var("TIDEGATE_PART_NOTES").is_ok().then(noting);
    println!("\nbegins");
    let (began, mut answered) = (Instant::now(), 0);
    while began.elapsed() < LENGTH {
        let decision = match &noting {
            // A key that is new is read first.
            Some(policy) => limiter.check(policy, &new_key(std::process::id(), answered)),
            None => limiter.check(POLICY, "hot"),
        };
        let decision = decision.expect("no call fails");
        assert_eq!(decision.source(), Source::Store, "no call falls back");
        answered += 1;
    }
    println!("\nanswered {answered}");
}

struct Part(Child, BufReader<ChildStdout>);

impl Part {
    fn start(url: &str) -> Self {
        Self::start_with(url, &[])
    }

    fn start_with(url: &str, environment: &[(&str, &str)]) -> Self {
        let mut command = Command::new(std::env::current_exe().expect("this program"));
        command.args(["--exact", "postgres::sharing::process_part", "--nocapture"]);
        command.env("TIDEGATE_PART_URL", url).envs(environment.iter().copied()).stdout(Stdio::piped());
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
}

fn new_key(process: u32, number: u64) -> String {
    format!("{process} {number}")
}

/// Sends a signal to each process.
fn signal(name: &str, parts: &[Part]) {
    let numbers = parts.iter().map(|part| part.0.id().to_string());
    assert!(Command::new("kill").arg(name).args(numbers).status().expect("kill runs").success());
}

/// Each process is in a call whenever it is stopped, and some of them between their read and their swap.
#[test]
fn a_process_that_was_stopped_between_its_read_and_its_swap_charges_nothing_in_the_past() {
    let server = Servers::start(Kind::Postgres);
    let url = format!("{}?create=yes", server.url());
    let (limiter, policy) = (strict(&url), noting());
    limiter.check(&policy, "warm").expect("a decision");
    let mut parts: Vec<Part> = (0..8).map(|_| Part::start_with(&url, &[("TIDEGATE_PART_NOTES", "1")])).collect();
    parts.iter_mut().for_each(|part| drop(part.says("begins")));
    std::thread::sleep(Duration::from_millis(300));
    signal("-STOP", &parts);
    // The server still runs the statements that it has.
    std::thread::sleep(Duration::from_millis(500));
    let charged = || {
        let rows = server.command(0, &["SELECT count(*) FROM tidegate"]);
        rows[0].as_str().and_then(|count| count.parse::<usize>().ok()).expect("a number")
    };
    let before = charged();
    std::thread::sleep(Duration::from_secs(3));
    let continued = wall();
    signal("-CONT", &parts);
    // The call of each that was under way is its last one.
    let decided: Vec<u64> = parts
        .iter_mut()
        .map(|part| {
            let last = part.says("answered").parse::<u64>().expect("a number") - 1;
            limiter.journal(&policy, &new_key(part.0.id(), last)).expect("a journal")[0].at
        })
        .collect();
    let since = charged() - before;
    assert!(since > 0, "no call was under way");
    let of_now = decided.iter().filter(|at| **at >= continued).count();
    assert_eq!(of_now, since, "continued at {continued}, and charged then, at the moments {decided:?}");
}

impl Drop for Part {
    fn drop(&mut self) {
        drop((self.0.kill(), self.0.wait()));
    }
}

#[test]
#[ignore = "it needs a machine without other work"]
fn a_process_that_is_far_away_gets_its_share_of_a_key() {
    let server = Servers::start(Kind::Postgres);
    let near = format!("{}?create=yes", server.url());
    strict(&near).check(POLICY, "hot").expect("a decision");
    let proxy = Proxy::to(server.port(0));
    proxy.set(Condition::Slow(Duration::from_millis(5)));
    let far = near.replace(&server.port(0).to_string(), &proxy.port().to_string());
    let run = |urls: &[&str]| {
        let mut parts: Vec<Part> = urls.iter().map(|url| Part::start(url)).collect();
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
