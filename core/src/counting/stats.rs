//! The stats that users read.

use std::collections::BTreeMap;

use super::counters::Counters;
use super::decision_counts::PolicyStats;
use super::store_stats::{StoreCondition, StoreStats};

/// The counts of a limiter since it was made, or since its process was forked. No key is part of them.
///
/// ```
/// let limiter = tidegate::Limiter::builder().policy("login", "5/minute")?.build()?;
/// (0..6).try_for_each(|_| limiter.check("login", "alice").map(drop))?;
/// let stats = limiter.stats();
/// let login = &stats.policies["login"];
/// assert_eq!((login.allowed, login.denied, login.sources.store), (5, 1, 6));
/// assert_eq!(login.near_limit, 2); // the fourth and the fifth
/// # Ok::<(), tidegate::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Default)]
#[non_exhaustive]
pub struct Stats {
    /// The Decisions by policy: of `check`, also a partial one, each entry of `check_all`, `charge` (which is always
    /// allowed), `hold`, and the final one of `acquire`. `peek`, `refund` and `settle` decide nothing. The first 1,000
    /// policies have separate entries, those with a name first. All others count as `(other)`.
    pub policies: BTreeMap<String, PolicyStats>,
    /// The calls to shared stores. All zero for `memory://`.
    pub store: StoreStats,
    /// Each shared store, by its URL without secrets.
    pub breaker: BTreeMap<String, StoreCondition>,
    /// The events that are counted without a policy.
    pub counters: Counters,
}
