//! Every metric, declared once. The exporters of all languages loop over the list, which `docs/metrics.md` explains.

use super::histogram::Histogram;
use super::stats::Stats;
use super::store_stats::StoreCondition;

/// The type of a metric in Prometheus.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MetricKind {
    /// A number that only grows.
    Counter,
    /// A number.
    Gauge,
    /// Values in buckets.
    Histogram,
}

/// A value of a metric.
#[derive(Debug, Clone, Copy)]
pub(crate) enum MetricValue<'a> {
    /// The value of a counter or a gauge.
    Number(u64),
    /// The value of a histogram.
    Histogram(&'a Histogram),
}

/// Is called with the values of a metric's labels and with its value.
pub(crate) type Sample<'a, 's> = &'s mut dyn FnMut(&[&str], MetricValue<'a>);

/// A metric, and how its values are read.
#[derive(Debug)]
pub(crate) struct Metric {
    /// Its name in Prometheus.
    pub(crate) name: &'static str,
    pub(crate) kind: MetricKind,
    /// Its labels, beside `limiter`.
    pub(crate) labels: &'static [&'static str],
    /// Its description. Names of options are in backticks, because each host spells them in its own way.
    help: &'static str,
    /// Calls a function with the label values and the value of each sample.
    pub(crate) samples: for<'a> fn(&'a Stats, Sample<'a, '_>),
}

impl Metric {
    /// Its name in OpenTelemetry.
    pub(crate) fn dotted(&self) -> String {
        self.name.replacen('_', ".", 1).trim_end_matches("_total").to_owned()
    }

    /// Its unit, `s` for seconds, or nothing.
    pub(crate) fn unit(&self) -> &'static str {
        if self.name.ends_with("_seconds") { "s" } else { "" }
    }

    /// Its description, with the names of options as a host spells them.
    pub(crate) fn help(&self, spell: impl Fn(&str) -> String) -> String {
        let parts = self.help.split('`').enumerate();
        parts.map(|(index, part)| if index % 2 == 1 { spell(part) } else { part.to_owned() }).collect()
    }
}

/// Every metric.
pub(crate) fn metrics() -> impl Iterator<Item = &'static Metric> {
    OF_STATS.iter().chain(EVENTS)
}

macro_rules! events {
    ($($metric:literal $label:tt $help:literal { $($name:ident $value:tt $doc:tt;)+ })+) => {
        /// The counters.
        static EVENTS: &[Metric] = &[$(Metric {
            name: $metric,
            kind: MetricKind::Counter,
            labels: &$label,
            help: $help,
            samples: |stats, add| {
                $(add(&$value, MetricValue::Number(stats.counters.$name));)+
            },
        },)+];
    };
}

counter_table!(events);

/// The counts by policy and by store.
static OF_STATS: &[Metric] = &[
    Metric {
        name: "tidegate_decisions_total",
        kind: MetricKind::Counter,
        labels: &["policy", "outcome"],
        help: "Decisions by policy and outcome.",
        samples: |stats, add| {
            for (policy, counted) in &stats.policies {
                add(&[policy, "allowed"], MetricValue::Number(counted.allowed));
                add(&[policy, "denied"], MetricValue::Number(counted.denied));
                add(&[policy, "unavailable"], MetricValue::Number(counted.unavailable));
            }
        },
    },
    Metric {
        name: "tidegate_answers_total",
        kind: MetricKind::Counter,
        labels: &["policy", "source"],
        help: "Decisions by policy and what gave the answer.",
        samples: |stats, add| {
            for (policy, counted) in &stats.policies {
                for (source, count) in counted.sources.by_source() {
                    add(&[policy, source.name()], MetricValue::Number(count));
                }
            }
        },
    },
    Metric {
        name: "tidegate_near_limit_total",
        kind: MetricKind::Counter,
        labels: &["policy"],
        help: "Admitted with 80 % or more of the limit used.",
        samples: |stats, add| {
            for (policy, counted) in &stats.policies {
                add(&[policy], MetricValue::Number(counted.near_limit));
            }
        },
    },
    Metric {
        name: "tidegate_shadow_denials_total",
        kind: MetricKind::Counter,
        labels: &["policy"],
        help: "Allowed, and a shadow policy would have denied.",
        samples: |stats, add| {
            for (policy, counted) in &stats.policies {
                add(&[policy], MetricValue::Number(counted.shadow_denied));
            }
        },
    },
    Metric {
        name: "tidegate_store_call_duration_seconds",
        kind: MetricKind::Histogram,
        labels: &[],
        help: "How long calls to shared stores took.",
        samples: |stats, add| add(&[], MetricValue::Histogram(&stats.store.latency)),
    },
    Metric {
        name: "tidegate_store_batch_size",
        kind: MetricKind::Histogram,
        labels: &[],
        help: "How many operations each script call carried.",
        samples: |stats, add| add(&[], MetricValue::Histogram(&stats.store.batch_size)),
    },
    Metric {
        name: "tidegate_store_state",
        kind: MetricKind::Gauge,
        labels: &["store", "state"],
        help: "1 for the state that a shared store is in.",
        samples: |stats, add| {
            for (store, condition) in &stats.breaker {
                for other in StoreCondition::ALL {
                    add(&[store, other.name()], MetricValue::Number((other == *condition).into()));
                }
            }
        },
    },
];
