//! A limiter's numbers for the facade [`metrics`](https://docs.rs/metrics), behind the feature `metrics`.
//!
//! Call [`publish`] when the application's exporter is scraped, or every few seconds if it pushes. It sets the counters
//! to the counts of the limiter. Between two calls nothing runs. `docs/metrics.md` lists the metrics.
//!
//! ```
//! # let limiter = tidegate::Limiter::builder().policy("login", "5/minute")?.build()?;
//! tidegate::metrics::describe(); // once
//! limiter.check("login", "alice")?;
//! tidegate::metrics::publish(&limiter.stats(), "default"); // before the exporter renders
//! # Ok::<(), tidegate::Error>(())
//! ```

use metrics::{Label, Unit, counter, describe_counter, describe_gauge, gauge};

use super::histogram::Histogram;
use super::metric::{MetricKind, MetricValue, metrics};
use crate::counting::Stats;

/// Describes the metrics to the recorder that is installed.
pub fn describe() {
    for metric in metrics() {
        let (name, help) = (metric.name, metric.help(str::to_owned));
        match metric.kind {
            MetricKind::Counter => describe_counter!(name, help),
            MetricKind::Gauge => describe_gauge!(name, help),
            MetricKind::Histogram => {
                describe_counter!(format!("{name}_bucket"), help.clone());
                describe_counter!(format!("{name}_count"), help.clone());
                let sum = format!("{name}_sum");
                if metric.unit() == "s" {
                    describe_gauge!(sum, Unit::Seconds, help)
                } else {
                    describe_gauge!(sum, help)
                }
            }
        }
    }
}

/// Sets the metrics to the stats of a limiter. Its name is the value of the label `limiter`.
///
/// The facade cannot set a histogram, so the two histograms are published in the form that Prometheus gives them: counters
/// `…_bucket` with the label `le` and `…_count`, and a gauge `…_sum`. `histogram_quantile` reads them like any other.
pub fn publish(stats: &Stats, limiter: &str) {
    for metric in metrics() {
        (metric.samples)(stats, &mut |values, value| {
            let labels = metric.labels.iter().zip(values).map(|(name, value)| Label::new(*name, (*value).to_owned()));
            let labels: Vec<Label> = std::iter::once(Label::new("limiter", limiter.to_owned())).chain(labels).collect();
            match value {
                MetricValue::Histogram(histogram) => publish_histogram(metric.name, histogram, &labels),
                MetricValue::Number(number) if metric.kind == MetricKind::Gauge => {
                    gauge!(metric.name, labels).set(number as f64);
                }
                MetricValue::Number(number) => counter!(metric.name, labels).absolute(number),
            }
        });
    }
}

fn publish_histogram(name: &str, histogram: &Histogram, labels: &[Label]) {
    let bounds = histogram.bounds.iter().map(ToString::to_string).chain(["+Inf".to_owned()]);
    for (bound, total) in bounds.zip(histogram.totals()) {
        counter!(format!("{name}_bucket"), [labels, &[Label::new("le", bound)]].concat()).absolute(total);
    }
    counter!(format!("{name}_count"), labels.to_vec()).absolute(histogram.count);
    gauge!(format!("{name}_sum"), labels.to_vec()).set(histogram.sum);
}
