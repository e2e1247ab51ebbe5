//! The events that are counted without a policy. The table below has each of them once: the metrics, and below each
//! metric its counters.

use std::sync::atomic::{AtomicU64, Ordering};

/// Passes the table of counters to a macro, of the core or of a host with a type checker that has to know their names.
///
/// A metric has its name, its label if its counters differ in one, and its help text. A counter has its name, which all
/// languages share, its value of the label, and its documentation.
#[doc(hidden)]
#[macro_export]
macro_rules! counter_table {
    ($then:ident) => {
        $then! {
            "tidegate_store_operations_total" [] "Operations that were sent to shared stores." {
                asked [] "Operations that were sent to a shared store.";
            }
            "tidegate_deny_cache_answers_total" [] "Denials that were repeated in process." {
                deny_cache [] "Denials that were repeated without asking the store.";
            }
            "tidegate_lease_answers_total" [] "Answers from units taken in advance." {
                lease [] "Checks and peeks that were answered from units taken in advance.";
            }
            "tidegate_fallback_answers_total" ["choice"] "Answers of `on_store_error`." {
                fallback_open ["open"] "Answers that `open` gave because the store failed.";
                fallback_closed ["closed"] "Answers that `closed` gave.";
                fallback_local ["local"] "Answers that `local` gave.";
            }
            "tidegate_store_losses_total" [] "How often a shared store was lost." {
                lost [] "How often a store was lost.";
            }
            "tidegate_store_withheld_total" [] "Operations that were not sent to a lost store." {
                withheld [] "Operations that were not sent because the store was lost.";
            }
            "tidegate_store_errors_total" ["code"] "Calls to shared stores that failed, by error code." {
                store_unavailable ["store_unavailable"] "Operations that failed with `store_unavailable`.";
                store_timeout ["store_timeout"] "Operations that failed with `store_timeout`.";
                store_rejected ["store_rejected"] "Operations that failed with `store_rejected`.";
            }
            "tidegate_forgotten_denials_total" [] "Denials forgotten for lack of max_bytes." {
                forgotten_denials [] "Denials that were forgotten before their time, because `max_bytes` left no room for more.";
            }
            "tidegate_policy_reloads_total" ["outcome"] "Reloads of the policy file, by outcome." {
                reloads ["taken"] "Changed policy files that were taken.";
                reloads_refused ["refused"] "Changed policy files that were refused, so that the policies before them stayed in force.";
            }
            "tidegate_hold_renewals_failed_total" [] "Renewals of holds that failed." {
                hold_renewals_failed [] "Renewals of holds that the store did not answer.";
            }
            "tidegate_acquires_refused_total" [] "Calls of acquire that found no place to wait." {
                acquires_refused [] "Calls of `acquire` that were denied at once because too many callers waited already.";
            }
            "tidegate_holds_lost_total" [] "Holds that were lost." {
                holds_lost [] "Holds that were lost: the units of such a hold cannot be relied on any more.";
            }
        }
    };
}

macro_rules! counters {
    ($($metric:literal $label:tt $help:literal { $($name:ident $value:tt $doc:tt;)+ })+) => {
        /// The counts of the layers since the limiter was made.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
        #[non_exhaustive]
        pub struct Counters {
            $($(#[doc = $doc] pub $name: u64,)+)+
        }

        impl Counters {
            /// Every counter, by its name.
            pub(crate) fn by_name(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$($((stringify!($name), self.$name),)+)+].into_iter()
            }
        }

        /// The counters while they are counted. Those that holds, queues and the deny cache count by themselves stay zero here.
        #[derive(Debug, Default)]
        pub(crate) struct SharedCounters {
            $($(pub(crate) $name: Counter,)+)+
        }

        impl SharedCounters {
            pub(crate) fn read(&self) -> Counters {
                Counters { $($($name: self.$name.get(),)+)+ }
            }

            /// Starts again at zero.
            pub(crate) fn reset(&self) {
                $($(self.$name.0.store(0, Ordering::Relaxed);)+)+
            }
        }
    };
}

counter_table!(counters);

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
