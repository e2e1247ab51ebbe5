//! The metrics that `tidegate::metrics::publish` gives to the facade `metrics`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use metrics::{
    Counter, CounterFn, Gauge, GaugeFn, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit,
    with_local_recorder,
};
use tidegate::Limiter;

const DOCUMENT: &str = include_str!("../../../docs/metrics.md");

type Values = Arc<Mutex<BTreeMap<String, f64>>>;

/// Keeps the last value of each metric, by its name and labels.
#[derive(Default)]
struct Recorded {
    values: Values,
    described: Mutex<BTreeMap<String, Option<Unit>>>,
}

struct Value(String, Values);

impl CounterFn for Value {
    fn increment(&self, _: u64) {
        panic!("{} is incremented, and would be counted twice", self.0);
    }

    fn absolute(&self, value: u64) {
        self.1.lock().expect("no panic").insert(self.0.clone(), value as f64);
    }
}

impl GaugeFn for Value {
    fn increment(&self, _: f64) {}

    fn decrement(&self, _: f64) {}

    fn set(&self, value: f64) {
        self.1.lock().expect("no panic").insert(self.0.clone(), value);
    }
}

impl Recorded {
    fn value(&self, key: &Key) -> Arc<Value> {
        let labels: Vec<String> = key.labels().map(|label| format!("{}={}", label.key(), label.value())).collect();
        Arc::new(Value(format!("{} {}", key.name(), labels.join(",")), Arc::clone(&self.values)))
    }

    fn describe(&self, name: &KeyName, unit: Option<Unit>) {
        self.described.lock().expect("no panic").insert(name.as_str().to_owned(), unit);
    }
}

impl Recorder for Recorded {
    fn describe_counter(&self, name: KeyName, unit: Option<Unit>, _: SharedString) {
        self.describe(&name, unit);
    }

    fn describe_gauge(&self, name: KeyName, unit: Option<Unit>, _: SharedString) {
        self.describe(&name, unit);
    }

    fn describe_histogram(&self, name: KeyName, unit: Option<Unit>, _: SharedString) {
        self.describe(&name, unit);
    }

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(self.value(key))
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::from_arc(self.value(key))
    }

    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
        panic!("a histogram of the facade cannot be set");
    }
}

/// The metrics of the document, a histogram with its three parts.
fn listed() -> BTreeSet<String> {
    let lines = DOCUMENT.lines().filter_map(|line| line.strip_prefix("| `tidegate_")?.split_once("` | "));
    let names = lines.flat_map(|(name, rest)| match rest.starts_with("histogram") {
        true => ["_bucket", "_count", "_sum"].map(|part| format!("tidegate_{name}{part}")).to_vec(),
        false => vec![format!("tidegate_{name}")],
    });
    names.collect()
}

#[test]
fn the_metrics_are_those_of_the_document_with_the_values_of_the_stats() {
    let builder = Limiter::builder().store("redis://user:secret@127.0.0.1:1").timeout(Duration::from_secs(5));
    let limiter = builder.policy("login", "fixed-window 5/minute").and_then(tidegate::Builder::build);
    let limiter = limiter.expect("a limiter");
    (0..7).for_each(|_| drop(limiter.check("login", "alice").expect("a decision")));
    let recorded = Recorded::default();
    with_local_recorder(&recorded, || {
        tidegate::metrics::describe();
        tidegate::metrics::publish(&limiter.stats(), "web");
        tidegate::metrics::publish(&limiter.stats(), "web");
    });
    let values = recorded.values.lock().expect("no panic").clone();
    let names: BTreeSet<String> = values.keys().filter_map(|key| Some(key.split_once(' ')?.0.to_owned())).collect();
    assert_eq!(names, listed());
    let described = recorded.described.lock().expect("no panic").clone();
    assert_eq!(described.keys().cloned().collect::<BTreeSet<_>>(), listed());
    for (name, unit) in described {
        let is_duration = name.ends_with("_seconds_sum");
        assert_eq!(unit, is_duration.then_some(Unit::Seconds), "{name}");
    }
    let value = |key: &str| values.get(key).copied().unwrap_or_else(|| panic!("{key} in {values:?}")) as i64;
    assert_eq!(value("tidegate_decisions_total limiter=web,policy=login,outcome=allowed"), 5);
    assert_eq!(value("tidegate_decisions_total limiter=web,policy=login,outcome=denied"), 2);
    assert_eq!(value("tidegate_answers_total limiter=web,policy=login,source=fallback"), 7);
    assert_eq!(value("tidegate_store_call_duration_seconds_bucket limiter=web,le=+Inf"), 3);
    assert_eq!(value("tidegate_store_call_duration_seconds_count limiter=web"), 3);
    let lost: Vec<&String> = values.keys().filter(|key| key.ends_with("state=lost")).collect();
    assert_eq!((lost.len(), value(lost[0])), (1, 1));
    assert!(!values.keys().any(|key| key.contains("secret") || key.contains("alice")), "{values:?}");
}
