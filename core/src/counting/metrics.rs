//! A limiter's numbers for the facade [`metrics`](https://docs.rs/metrics), behind the feature `metrics`.
//!
//! Call [`publish`] when the application's exporter is scraped, or every few seconds where it pushes. It sets counters to what
//! the limiter has counted; between two calls nothing runs. `docs/metrics.md` lists the metrics.
//!
//! ```
//! # let limiter = tidegate::Limiter::builder().policy("login", "5/minute")?.build()?;
//! tidegate::metrics::describe(); // once
//! limiter.check("login", "alice")?;
//! tidegate::metrics::publish(&limiter.stats(), "default"); // before the exporter renders
//! # Ok::<(), tidegate::Error>(())
//! ```

use metrics::{Label, Unit, counter, describe_counter, describe_gauge, gauge};

use super::counters::COUNTERS;
use super::histogram::Histogram;
use super::store_stats::StoreCondition;
use crate::counting::Stats;

/// The counters of each policy, and what they count.
const OF_POLICIES: [(&str, &str); 4] = [
    ("tidegate_decisions_total", "Decisions by policy and outcome."),
    ("tidegate_answers_total", "Decisions by policy and what gave the answer."),
    ("tidegate_near_limit_total", "Admitted with 80 % or more of the limit used."),
    ("tidegate_shadow_denials_total", "Allowed, and a shadow policy would have denied."),
];
const DURATION: &str = "tidegate_store_call_duration_seconds";
const BATCH_SIZE: &str = "tidegate_store_batch_size";
const STATE: &str = "tidegate_store_state";

/// Describes the metrics to the recorder that is installed.
pub fn describe() {
    for (name, help) in OF_POLICIES.into_iter().chain(COUNTERS.iter().map(|counter| (counter.metric, counter.help))) {
        describe_counter!(name, help);
    }
    describe_gauge!(STATE, "1 for the state that a shared store is in.");
    for (name, help) in [
        (DURATION, "How long calls to shared stores took."),
        (BATCH_SIZE, "How many operations each script call carried."),
    ] {
        describe_counter!(format!("{name}_bucket"), help);
        describe_counter!(format!("{name}_count"), help);
        let sum = format!("{name}_sum");
        if name == DURATION { describe_gauge!(sum, Unit::Seconds, help) } else { describe_gauge!(sum, help) }
    }
}

/// Sets the metrics to the stats of a limiter, whose name is the value of the label `limiter`.
///
/// The facade cannot set a histogram, so the two histograms are published as what Prometheus makes of one: counters
/// `…_bucket` with the label `le` and `…_count`, and a gauge `…_sum`. `histogram_quantile` reads them as any other.
pub fn publish(stats: &Stats, limiter: &str) {
    let labels = |more: &[(&'static str, &str)]| -> Vec<Label> {
        let more = more.iter().map(|(name, value)| Label::new(*name, (*value).to_owned()));
        std::iter::once(Label::new("limiter", limiter.to_owned())).chain(more).collect()
    };
    for (policy, counted) in &stats.policies {
        for (outcome, count) in
            [("allowed", counted.allowed), ("denied", counted.denied), ("unavailable", counted.unavailable)]
        {
            counter!("tidegate_decisions_total", labels(&[("policy", policy), ("outcome", outcome)])).absolute(count);
        }
        for (source, count) in counted.sources.by_source() {
            let labels = labels(&[("policy", policy), ("source", source.name())]);
            counter!("tidegate_answers_total", labels).absolute(count);
        }
        counter!("tidegate_near_limit_total", labels(&[("policy", policy)])).absolute(counted.near_limit);
        counter!("tidegate_shadow_denials_total", labels(&[("policy", policy)])).absolute(counted.shadow_denied);
    }
    publish_histogram(DURATION, &stats.store.latency, labels);
    publish_histogram(BATCH_SIZE, &stats.store.batch_size, labels);
    for (store, condition) in &stats.breaker {
        for other in StoreCondition::ALL {
            let value = if other == *condition { 1.0 } else { 0.0 };
            gauge!(STATE, labels(&[("store", store), ("state", other.name())])).set(value);
        }
    }
    for counter in COUNTERS {
        counter!(counter.metric, labels(counter.labels)).absolute((counter.value)(&stats.counters));
    }
}

fn publish_histogram(name: &str, histogram: &Histogram, labels: impl Fn(&[(&'static str, &str)]) -> Vec<Label>) {
    let bounds = histogram.bounds.iter().map(ToString::to_string).chain(["+Inf".to_owned()]);
    let mut total = 0;
    for (bound, count) in bounds.zip(&histogram.counts) {
        total += count;
        counter!(format!("{name}_bucket"), labels(&[("le", &bound)])).absolute(total);
    }
    counter!(format!("{name}_count"), labels(&[])).absolute(histogram.count);
    gauge!(format!("{name}_sum"), labels(&[])).set(histogram.sum);
}
