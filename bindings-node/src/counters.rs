//! Numbers for metrics.

use napi_derive::napi;

/// What the layers have counted.
#[napi(object)]
pub struct Counters {
    /// Operations that were sent to a shared store.
    pub asked: f64,
    /// Denials that were repeated without asking the store.
    pub deny_cache: f64,
    /// Checks and peeks that were answered from units taken in advance.
    pub lease: f64,
    /// Answers that `open` gave because the store failed.
    pub fallback_open: f64,
    /// Answers that `closed` gave.
    pub fallback_closed: f64,
    /// Answers that `local` gave.
    pub fallback_local: f64,
    /// How many times a store was lost.
    pub lost: f64,
    /// Operations that were not sent because the store was lost.
    pub withheld: f64,
    /// Operations that failed with `store_unavailable`.
    pub store_unavailable: f64,
    /// Operations that failed with `store_timeout`.
    pub store_timeout: f64,
    /// Operations that failed with `store_rejected`.
    pub store_rejected: f64,
    /// Denials that the memory of this process forgot before their time, because `max_bytes` left no room for more.
    pub forgotten_denials: f64,
    /// Renewals of holds that the store did not answer.
    pub hold_renewals_failed: f64,
    /// Calls of `acquire` that were denied at once because too many callers waited already.
    pub acquires_refused: f64,
    /// Holds that were lost.
    pub holds_lost: f64,
}

impl From<tidegate::Counters> for Counters {
    fn from(counters: tidegate::Counters) -> Self {
        Self {
            asked: counters.asked as f64,
            deny_cache: counters.deny_cache as f64,
            lease: counters.lease as f64,
            fallback_open: counters.fallback_open as f64,
            fallback_closed: counters.fallback_closed as f64,
            fallback_local: counters.fallback_local as f64,
            lost: counters.lost as f64,
            withheld: counters.withheld as f64,
            store_unavailable: counters.store_unavailable as f64,
            store_timeout: counters.store_timeout as f64,
            store_rejected: counters.store_rejected as f64,
            forgotten_denials: counters.forgotten_denials as f64,
            hold_renewals_failed: counters.hold_renewals_failed as f64,
            acquires_refused: counters.acquires_refused as f64,
            holds_lost: counters.holds_lost as f64,
        }
    }
}
