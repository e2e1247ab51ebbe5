//! The drivers of `protocol`: they move its bytes and pass it the time. `blocking.rs` runs a call on its caller's
//! thread. `engine.rs` has a thread for all other calls. With `host_loop.rs` an event loop reads their replies itself.

mod attempts;
mod blocking;
mod connection;
mod engine;
mod epoll_set;
mod handover;
mod host_loop;
mod name_lookup;
mod pool;
mod socket;
mod stream;
mod sync;
#[cfg_attr(not(feature = "tls"), path = "without_tls.rs")]
mod tls;

pub(super) use blocking::BlockingCalls;
pub(super) use connection::{CommandConnection, Connector};
pub(super) use engine::{Engine, EngineCall};
pub(crate) use epoll_set::EpollSet;
pub(crate) use host_loop::ReaderRegistry;
#[cfg(feature = "postgres")]
pub(crate) use tls::config as tls_config;
