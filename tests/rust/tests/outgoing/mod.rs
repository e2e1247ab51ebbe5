//! Calls that go out of Rust, to real servers on loopback: one contract for the layer of tower, over a client of hyper, and for the
//! middleware of reqwest.

mod bodies;
mod clients;
mod options;
mod redirects;
mod retries;
mod service;
mod turns;

use std::time::Duration;

use tidegate::{AsyncLimiter, Limiter};

fn limiter() -> AsyncLimiter {
    Limiter::builder().build_async().expect("a limiter")
}

const SECOND: Duration = Duration::from_secs(1);

/// The tests of outgoing calls, for each client.
macro_rules! contract {
    ($($name:ident)+) => {
        mod tower_layer {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $name() {
                    super::$name::<crate::outgoing::clients::TowerClient>().await;
                }
            )+
        }

        mod reqwest_middleware {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $name() {
                    super::$name::<crate::outgoing::clients::ReqwestClient>().await;
                }
            )+
        }
    };
}
pub(crate) use contract;
