//! The counts of a limiter as JSON, which each host reads into its objects.

use std::fmt::Display;

use crate::counting::histogram::Histogram;
use crate::counting::{Counters, MetricKind, MetricValue, PolicyStats, Stats, metric_list};

/// Spells the name of a field as a host does.
type Spell = fn(&str) -> String;

/// The stats, in the shape that all languages share.
#[must_use]
pub fn stats_json(stats: &Stats, spell: Spell) -> String {
    let policy = |policy: &PolicyStats| {
        object([
            (spell("allowed"), number(policy.allowed)),
            (spell("denied"), number(policy.denied)),
            (spell("unavailable"), number(policy.unavailable)),
            (spell("near_limit"), number(policy.near_limit)),
            (spell("shadow_denied"), number(policy.shadow_denied)),
            (
                spell("sources"),
                object(policy.sources.by_source().map(|(source, count)| (source.name(), number(count)))),
            ),
        ])
    };
    let store = object([
        (spell("calls"), number(stats.store.calls)),
        (spell("latency"), object(histogram(&stats.store.latency))),
        (spell("batch_size"), object(histogram(&stats.store.batch_size))),
        (spell("errors"), object(stats.store.errors.iter().map(|(code, count)| (code, number(count))))),
    ]);
    object([
        (spell("policies"), object(stats.policies.iter().map(|(name, counted)| (name, policy(counted))))),
        (spell("store"), store),
        (spell("breaker"), object(stats.breaker.iter().map(|(store, condition)| (store, text(condition.name()))))),
        (spell("counters"), counters_json(&stats.counters, spell)),
    ])
}

/// The counters by their names.
#[must_use]
pub fn counters_json(counters: &Counters, spell: Spell) -> String {
    object(counters.by_name().map(|(name, count)| (spell(name), number(count))))
}

/// Every metric as an object with its `name`, `dotted` (the name in OpenTelemetry), `kind`, `unit`, `help`, and
/// `labels` beside `limiter`.
#[must_use]
pub fn metrics_json(spell: Spell) -> String {
    list(metric_list().map(|metric| {
        let kind = match metric.kind {
            MetricKind::Counter => "counter",
            MetricKind::Gauge => "gauge",
            MetricKind::Histogram => "histogram",
        };
        object([
            ("name", text(metric.name)),
            ("dotted", text(&metric.dotted())),
            ("kind", text(kind)),
            ("unit", text(metric.unit())),
            ("help", text(&metric.help(spell))),
            ("labels", list(metric.labels.iter().map(|label| text(label)))),
        ])
    }))
}

/// The values of one metric, or of all: lists of the name, the label values, and the value. The value of a histogram is an object
/// with its `bounds`, `counts`, `sum`, `count` and `totals`, which are the numbers of values up to each bound.
#[must_use]
pub fn samples_json(stats: &Stats, name: Option<&str>) -> String {
    let mut samples = Vec::new();
    for metric in metric_list().filter(|metric| name.is_none_or(|name| name == metric.name)) {
        (metric.samples)(stats, &mut |labels, value| {
            let value = match value {
                MetricValue::Number(value) => number(value),
                MetricValue::Histogram(values) => {
                    object(histogram(values).into_iter().chain([("totals", list(values.totals().map(number)))]))
                }
            };
            samples.push(list([text(metric.name), list(labels.iter().map(|label| text(label))), value]));
        });
    }
    list(samples)
}

fn histogram(histogram: &Histogram) -> [(&'static str, String); 4] {
    [
        ("bounds", list(histogram.bounds.iter().copied().map(real))),
        ("counts", list(histogram.counts.iter().map(number))),
        ("sum", real(histogram.sum)),
        ("count", number(histogram.count)),
    ]
}

/// Keeps the given order, unlike a map of `serde_json`.
fn object(fields: impl IntoIterator<Item = (impl AsRef<str>, String)>) -> String {
    let field = |(name, value): (_, String)| format!("{}:{value}", text(AsRef::as_ref(&name)));
    format!("{{{}}}", fields.into_iter().map(field).collect::<Vec<_>>().join(","))
}

fn list(items: impl IntoIterator<Item = String>) -> String {
    format!("[{}]", items.into_iter().collect::<Vec<_>>().join(","))
}

fn text(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

fn number(number: impl Display) -> String {
    number.to_string()
}

/// Always with a point, because hosts distinguish the types.
fn real(number: f64) -> String {
    serde_json::Value::from(number).to_string()
}
