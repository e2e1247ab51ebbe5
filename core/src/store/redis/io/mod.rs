//! The drivers of `protocol`: they move its bytes and tell it the time. `blocking.rs` runs a call on its caller's thread;
//! `background.rs` is the engine's thread, and `host_loop.rs` an event loop that reads replies itself: both move the router
//! through `driver.rs`.

mod background;
mod blocking;
mod connection;
mod discover;
mod driver;
mod engine_call;
mod epoll_set;
mod handover;
mod host_loop;
mod name_lookup;
mod panics;
mod pool;
mod socket;
mod stream;
mod sync;
#[cfg_attr(not(feature = "tls"), path = "without_tls.rs")]
mod tls;

pub(super) use background::Engine;
pub(super) use blocking::BlockingCalls;
pub(super) use connection::{CommandConnection, Connector};
pub(super) use engine_call::EngineCall;
pub(crate) use epoll_set::EpollSet;
pub(crate) use host_loop::ReaderRegistry;
pub(super) use panics::{Caller, guarded};
