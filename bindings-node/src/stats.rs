//! The metrics, and the type of the counters.

use napi_derive::napi;

use crate::error_value::camel_case;

/// Every metric, as JSON.
#[napi(catch_unwind)]
pub fn metrics() -> String {
    tidegate::host::metrics_json(camel_case)
}

macro_rules! counters {
    ($($metric:literal $label:tt $help:literal { $($name:ident $value:tt $doc:tt;)+ })+) => {
        /// The counts of the layers since the limiter was made. For `memory://`, the counts of a shared store are zero.
        #[napi(object, object_from_js = false)]
        pub struct Counters {
            $($(#[doc = $doc] pub $name: f64,)+)+
        }
    };
}

tidegate::counter_table!(counters);
