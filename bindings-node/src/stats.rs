//! What a limiter has counted, as JavaScript reads it: lists where JavaScript has objects with names of the caller's.

use napi_derive::napi;

use crate::counters::Counters;

/// The Decisions of one policy.
#[napi(object)]
pub struct PolicyStats {
    /// Its name.
    pub name: String,
    /// Decisions that allowed.
    pub allowed: f64,
    /// Decisions by which a limit denied.
    pub denied: f64,
    /// Denials because the store failed.
    pub unavailable: f64,
    /// Admitted ones that found 80 % or more of the binding limit used.
    pub near_limit: f64,
    /// Those that a shadow policy would have denied.
    pub shadow_denied: f64,
    /// All of them by source, in the order of `sources()`.
    pub sources: Vec<f64>,
}

/// How many values were at most each bound.
#[napi(object)]
pub struct Histogram {
    /// The upper bounds.
    pub bounds: Vec<f64>,
    /// The values in each bucket; one more than bounds.
    pub counts: Vec<f64>,
    /// The sum of all values.
    pub sum: f64,
    /// How many there are.
    pub count: f64,
}

/// A number with its name.
#[napi(object)]
pub struct NamedCount {
    /// The name.
    pub name: String,
    /// The number.
    pub count: f64,
}

/// A store and its condition.
#[napi(object)]
pub struct StoreCondition {
    /// Its URL without secrets.
    pub store: String,
    /// `ok`, `lost` or `refusing`.
    pub condition: String,
}

/// What was counted.
#[napi(object)]
pub struct Stats {
    /// By policy, in the order of their names.
    pub policies: Vec<PolicyStats>,
    /// How long calls to a shared store took, in seconds.
    pub latency: Histogram,
    /// How many operations a script call carried.
    pub batch_size: Histogram,
    /// Failed calls by code.
    pub errors: Vec<NamedCount>,
    /// Each shared store.
    pub breaker: Vec<StoreCondition>,
    /// What is counted without a policy.
    pub counters: Counters,
}

impl From<tidegate::Histogram> for Histogram {
    fn from(histogram: tidegate::Histogram) -> Self {
        Self {
            counts: histogram.counts.into_iter().map(|count| count as f64).collect(),
            bounds: histogram.bounds,
            sum: histogram.sum,
            count: histogram.count as f64,
        }
    }
}

impl From<(String, tidegate::PolicyStats)> for PolicyStats {
    fn from((name, stats): (String, tidegate::PolicyStats)) -> Self {
        Self {
            name,
            allowed: stats.allowed as f64,
            denied: stats.denied as f64,
            unavailable: stats.unavailable as f64,
            near_limit: stats.near_limit as f64,
            shadow_denied: stats.shadow_denied as f64,
            sources: stats.sources.by_source().map(|(_, count)| count as f64).into(),
        }
    }
}

impl From<tidegate::Stats> for Stats {
    fn from(stats: tidegate::Stats) -> Self {
        let errors = stats.store.errors.into_iter();
        let breaker = stats.breaker.into_iter();
        Self {
            policies: stats.policies.into_iter().map(PolicyStats::from).collect(),
            latency: stats.store.latency.into(),
            batch_size: stats.store.batch_size.into(),
            errors: errors.map(|(code, count)| NamedCount { name: code.to_owned(), count: count as f64 }).collect(),
            breaker: breaker
                .map(|(store, condition)| StoreCondition { store, condition: condition.name().to_owned() })
                .collect(),
            counters: stats.counters.into(),
        }
    }
}
