//! The events that are counted without a policy. Each is declared once, in the table below: its field, its metric with its
//! labels, and what the metric's description says.

use std::sync::atomic::{AtomicU64, Ordering};

/// A counter of [`Counters`], for those who convert or export them all.
#[derive(Debug)]
pub struct CounterDeclaration {
    /// The name of its field, which all languages share.
    pub name: &'static str,
    /// The name of its metric. Counters of one metric differ in a label.
    pub metric: &'static str,
    /// The label that tells it from others of its metric, with its value.
    pub labels: &'static [(&'static str, &'static str)],
    /// What the metric counts.
    pub help: &'static str,
    /// Reads its value.
    pub value: fn(&Counters) -> u64,
}

macro_rules! counters {
    ($($(#[$doc:meta])+ $name:ident: $metric:literal [$($label:expr)?] $help:literal;)+) => {
        /// What the layers have counted since the limiter was made.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
        #[non_exhaustive]
        pub struct Counters {
            $($(#[$doc])+ pub $name: u64,)+
        }

        /// The counters while they are counted. What holds, queues and the deny cache count by themselves stays zero here.
        #[derive(Debug, Default)]
        pub(crate) struct SharedCounters {
            $(pub(crate) $name: Counter,)+
        }

        impl SharedCounters {
            pub(crate) fn read(&self) -> Counters {
                Counters { $($name: self.$name.get(),)+ }
            }

            /// Starts again at zero.
            pub(crate) fn reset(&self) {
                $(self.$name.0.store(0, Ordering::Relaxed);)+
            }
        }

        /// Every counter.
        pub static COUNTERS: &[CounterDeclaration] = &[$(CounterDeclaration {
            name: stringify!($name),
            metric: $metric,
            labels: &[$($label)?],
            help: $help,
            value: |counters| counters.$name,
        },)+];
    };
}

counters! {
    /// Operations that were sent to a shared store.
    asked: "tidegate_store_operations_total" [] "Operations that were sent to shared stores.";
    /// Denials that were repeated without asking the store.
    deny_cache: "tidegate_deny_cache_answers_total" [] "Denials that were repeated in process.";
    /// Checks and peeks that were answered from units taken in advance.
    lease: "tidegate_lease_answers_total" [] "Answers from units taken in advance.";
    /// Answers of `on_store_error: open` …
    fallback_open: "tidegate_fallback_answers_total" [("choice", "open")] "Answers of on_store_error.";
    /// … of `closed` …
    fallback_closed: "tidegate_fallback_answers_total" [("choice", "closed")] "Answers of on_store_error.";
    /// … and of `local`.
    fallback_local: "tidegate_fallback_answers_total" [("choice", "local")] "Answers of on_store_error.";
    /// How often a store was lost.
    lost: "tidegate_store_losses_total" [] "How often a shared store was lost.";
    /// Operations that were not sent because the store was lost.
    withheld: "tidegate_store_withheld_total" [] "Operations that were not sent to a lost store.";
    /// Operations that failed with `store_unavailable` …
    store_unavailable: "tidegate_store_errors_total" [("code", "store_unavailable")]
        "Calls to shared stores that failed, by error code.";
    /// … with `store_timeout` …
    store_timeout: "tidegate_store_errors_total" [("code", "store_timeout")]
        "Calls to shared stores that failed, by error code.";
    /// … and with `store_rejected`.
    store_rejected: "tidegate_store_errors_total" [("code", "store_rejected")]
        "Calls to shared stores that failed, by error code.";
    /// Denials that the memory of this process forgot before their time, because `max_bytes` left no room for more.
    forgotten_denials: "tidegate_forgotten_denials_total" [] "Denials forgotten for lack of max_bytes.";
    /// Renewals of holds that the store did not answer.
    hold_renewals_failed: "tidegate_hold_renewals_failed_total" [] "Renewals of holds that failed.";
    /// Calls of `acquire` that were denied at once because too many callers waited already.
    acquires_refused: "tidegate_acquires_refused_total" [] "Calls of acquire that found no place to wait.";
    /// Holds that were lost. See [`Hold::lost`](crate::Hold::lost).
    holds_lost: "tidegate_holds_lost_total" [] "Holds that were lost.";
}

/// A counter of several threads.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    #[inline]
    pub(crate) fn add(&self, number: u64) {
        self.0.fetch_add(number, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
