//! The figures equal those that a brute force finds in the decisions.

use std::collections::BTreeMap;
use std::fs;

use serde_json::Value;
use tidegate::Policy;

use crate::running::{Scratch, done};

/// A line of the file of decisions. Times are microseconds.
struct Line {
    at: u64,
    key: String,
    cost: u64,
    allowed: bool,
    delay: u64,
}

/// The decisions of each policy.
fn decisions(path: &str) -> BTreeMap<String, Vec<Line>> {
    let text = fs::read_to_string(path).expect("the decisions");
    let mut lines = text.lines();
    assert_eq!(
        lines.next(),
        Some("policy,time,key,cost,allowed,shadow_denied,remaining,retry_after,delay,units,priority")
    );
    let mut found: BTreeMap<String, Vec<Line>> = BTreeMap::new();
    let micros = |text: &str| -> u64 { text.replace('.', "").parse().expect("a time") };
    for line in lines {
        let fields: Vec<&str> = line.split(',').collect();
        let [policy, at, key, cost, allowed, _, _, _, delay, _, _] = fields[..] else { panic!("{line}") };
        found.entry(policy.to_owned()).or_default().push(Line {
            at: micros(at),
            key: key.to_owned(),
            cost: cost.parse().expect("a cost"),
            allowed: allowed == "true",
            delay: micros(delay),
        });
    }
    found
}

/// The most units of one key in any window, by looking at every window that ends with a unit.
fn worst(lines: &[Line], period: u64, moment: impl Fn(&Line) -> u64) -> u64 {
    let mut keys: BTreeMap<&str, Vec<(u64, u64)>> = BTreeMap::new();
    for line in lines.iter().filter(|line| line.allowed) {
        keys.entry(&line.key).or_default().push((moment(line), line.cost));
    }
    let in_window = |units: &[(u64, u64)], end: u64| -> u64 {
        units.iter().filter(|(at, _)| *at <= end && at + period > end).map(|(_, cost)| cost).sum()
    };
    keys.values().flat_map(|units| units.iter().map(|(end, _)| in_window(units, *end))).max().unwrap_or(0)
}

fn by_key(lines: &[Line]) -> BTreeMap<&str, Vec<&Line>> {
    let mut keys: BTreeMap<&str, Vec<&Line>> = BTreeMap::new();
    lines.iter().for_each(|line| keys.entry(&line.key).or_default().push(line));
    keys
}

/// The longest time from the first refusal after an admission to the next admission.
fn longest_wait(lines: &[Line]) -> Option<u64> {
    let of_key = |lines: &Vec<&Line>| {
        let waits = lines.iter().enumerate().filter(|(_, line)| line.allowed).filter_map(|(index, line)| {
            let refused = lines[..index].iter().rev().take_while(|line| !line.allowed).last()?;
            Some(line.at - refused.at)
        });
        waits.max()
    };
    by_key(lines).values().filter_map(of_key).max()
}

fn jain(lines: &[Line]) -> (f64, f64, f64) {
    let share = |lines: &Vec<&Line>| lines.iter().filter(|line| line.allowed).count() as f64 / lines.len() as f64;
    let shares: Vec<f64> = by_key(lines).values().map(share).collect();
    let (sum, squares): (f64, f64) = (shares.iter().sum(), shares.iter().map(|share| share * share).sum());
    let index = if squares == 0.0 { 1.0 } else { sum * sum / (shares.len() as f64 * squares) };
    (index, shares.iter().copied().fold(1.0, f64::min), shares.iter().copied().fold(0.0, f64::max))
}

#[track_caller]
fn near(value: &Value, wanted: f64, what: &str) {
    let value = value.as_f64().unwrap_or_else(|| panic!("{what}: {value}"));
    assert!((value - wanted).abs() < 2e-6, "{what}: {value} is stated, {wanted} is true");
}

const POLICIES: [&str; 6] = [
    "fixed-window 20/minute",
    "20/minute; 5/3s",
    "gcra 20/minute burst 5",
    "leaky-bucket 20/minute; 100/hour",
    "sliding-counter 20/minute; token-bucket 1/s burst 7",
    "calendar-window 20/minute",
];

#[track_caller]
fn figures_are_true(name: &str, traffic: &[&str]) {
    let scratch = Scratch::new(name);
    let file = scratch.file("decisions.csv");
    let mut arguments = POLICIES.to_vec();
    arguments.extend(traffic);
    arguments.extend(["--json", "--decisions", &file]);
    let stated = done(&arguments).json();
    let decisions = decisions(&file);
    assert_eq!(decisions.len(), POLICIES.len());
    for policy in stated["policies"].as_array().expect("policies") {
        let name = policy["policy"].as_str().expect("a name");
        let lines = &decisions[name];
        let count = |allowed: bool| lines.iter().filter(|line| line.allowed == allowed).count() as u64;
        assert_eq!(policy["asked"], lines.len() as u64, "{name}");
        assert_eq!((policy["admitted"].as_u64(), policy["refused"].as_u64()), (Some(count(true)), Some(count(false))));
        let units: u64 = lines.iter().filter(|line| line.allowed).map(|line| line.cost).sum();
        assert_eq!(policy["units_admitted"], units, "{name}");
        let limits = Policy::parse(name).expect("a notation").limits().to_vec();
        for (index, limit) in limits.iter().enumerate() {
            let period = limit.period().micros();
            assert_eq!(policy["worst"][index]["worst"], worst(lines, period, |line| line.at), "{name}: {limit}");
            let after = &policy["delay"]["worst"][index]["worst"];
            assert_eq!(after.is_null(), !name.contains("leaky"), "{name}");
            if !after.is_null() {
                assert_eq!(
                    *after,
                    worst(lines, period, |line| line.at + line.delay),
                    "{name}: {limit} after its delay"
                );
            }
        }
        match longest_wait(lines) {
            Some(wait) => near(&policy["longest_wait"], wait as f64 / 1e6, "the longest wait"),
            None => assert!(policy["longest_wait"].is_null(), "{name}"),
        }
        let (index, least, most) = jain(lines);
        near(&policy["fairness"]["jain"], index, "Jain's index");
        near(&policy["fairness"]["least"], least, "the least share");
        near(&policy["fairness"]["most"], most, "the largest share");
        assert_eq!(policy["turn"].is_null(), !traffic.contains(&"outgoing"), "{name}");
        if !policy["turn"].is_null() {
            // All calls were made at the start.
            let turns: Vec<f64> =
                lines.iter().filter(|line| line.allowed).map(|line| (line.at - lines[0].at) as f64 / 1e6).collect();
            near(&policy["turn"]["mean"], turns.iter().sum::<f64>() / turns.len() as f64, "the mean turn");
            near(&policy["turn"]["longest"], turns.iter().copied().fold(0.0, f64::max), "the longest turn");
        }
    }
}

#[test]
fn of_a_boundary_attack() {
    figures_are_true("boundary", &["--pattern", "boundary", "--keys", "3"]);
}

#[test]
fn of_bursts() {
    figures_are_true("bursts", &["--pattern", "bursts", "--window", "7s", "--keys", "5", "--duration", "3m"]);
}

#[test]
fn of_a_retry_storm() {
    figures_are_true("storm", &["--pattern", "retry-storm", "--rate", "3/s", "--keys", "4", "--retry", "backoff"]);
}

#[test]
fn of_a_backlog() {
    figures_are_true("backlog", &["--pattern", "outgoing", "--rate", "30/minute", "--keys", "2"]);
}

#[test]
fn of_a_daily_curve() {
    figures_are_true("daily", &["--pattern", "daily", "--rate", "2/minute", "--keys", "7", "--seed", "5"]);
}

#[test]
fn each_call_of_a_backlog_asks_when_its_turn_has_come() {
    let scratch = Scratch::new("turns");
    let file = scratch.file("decisions.csv");
    let policies = scratch.file("policies.yaml");
    fs::write(&policies, "policies: {blocking: {limits: gcra 10/s burst 1, block_for: 1m}}\n").expect("policies");
    let mut arguments =
        vec!["fixed-window 10/s", "gcra 10/s burst 1", "blocking", "--policies", &policies, "--decisions", &file];
    arguments.extend(["--pattern", "outgoing", "--rate", "10/s", "--duration", "2s", "--json"]);
    let stated = done(&arguments).json();
    let decisions = decisions(&file);
    for (name, turns, asked) in [
        // Ten at once, and ten after a second, which find the window full when they come.
        ("fixed-window 10/s", (0..20).map(|call| call / 10 * 1_000_000).collect::<Vec<u64>>(), 20 + 10),
        // One each tenth of a second. All but the first find it taken when they come, and most once more in the line.
        ("gcra 10/s burst 1", (0..20).map(|call| call * 100_000).collect(), 20 + 19 + 18),
    ] {
        let lines = &decisions[name];
        let admitted: Vec<u64> = lines.iter().filter(|line| line.allowed).map(|line| line.at - lines[0].at).collect();
        assert_eq!(admitted, turns, "{name}");
        assert_eq!(lines.len(), asked, "{name}");
    }
    // A call that waits for its turn is not denied, so that nothing is blocked.
    assert_eq!(stated["policies"][2]["admitted"], 20);
}

#[test]
fn the_attack_passes_only_fixed_windows() {
    let stated = done(&[
        "fixed-window 20/minute",
        "calendar-window 20/minute",
        "20/minute",
        "sliding-log 20/minute",
        "--pattern",
        "boundary",
        "--json",
    ])
    .json();
    let worst = |policy: usize| stated["policies"][policy]["worst"][0]["worst"].as_u64().expect("a count");
    assert_eq!([worst(0), worst(1), worst(2), worst(3)], [39, 39, 20, 20]);
}
