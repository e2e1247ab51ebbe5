//! The Decision that refused a job of a queue.

use std::time::Duration;

use napi_derive::napi;
use tidegate::{Policy, Result, host};

use crate::number::{count, milliseconds};

/// A denial, as TypeScript shows it.
#[napi(object)]
pub struct Denial {
    /// Its key.
    pub key: String,
    /// True if the store failed and the policy refuses calls then.
    pub unavailable: bool,
    /// The wait that it names.
    pub retry_after_ms: Option<f64>,
    /// Its limits.
    pub limits: Vec<DeniedLimit>,
}

/// A limit of a denial.
#[napi(object)]
pub struct DeniedLimit {
    /// True if it refused.
    pub exceeded: bool,
    /// The time until it admits the cost.
    pub retry_after_ms: Option<f64>,
    /// The time until it is as if unused.
    pub reset_after_ms: f64,
    /// The units that were asked of it.
    pub cost: f64,
    /// The most units that it admits at once.
    pub limit: f64,
}

impl Denial {
    pub(crate) fn of_job(
        self,
        policy: Policy,
        came_back: bool,
        usual_length_ms: Option<f64>,
    ) -> Result<host::RefusedJob> {
        let limit = |limit: DeniedLimit| {
            Ok(host::RefusingLimit {
                exceeded: limit.exceeded,
                retry_after: length(limit.retry_after_ms)?,
                reset_after: milliseconds("resetAfterMs", limit.reset_after_ms)?,
                cost: count("cost", limit.cost)?,
                limit: count("limit", limit.limit)?,
            })
        };
        Ok(host::RefusedJob {
            policy,
            key: self.key,
            unavailable: self.unavailable,
            retry_after: length(self.retry_after_ms)?,
            limits: self.limits.into_iter().map(limit).collect::<Result<_>>()?,
            came_back,
            usual_length: length(usual_length_ms)?,
        })
    }
}

fn length(ms: Option<f64>) -> Result<Option<Duration>> {
    ms.map(|ms| milliseconds("the wait of a job", ms)).transpose()
}
