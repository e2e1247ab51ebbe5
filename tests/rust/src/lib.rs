//! The code that the Rust tests of Tidegate share.

pub mod any_limiter;
pub mod budget;
pub mod call_records;
pub mod cluster;
pub mod decision_values;
pub mod faulty_proxy;
pub mod generated;
pub mod hash_slot;
pub mod history;
pub mod history_check;
pub mod lateness;
pub mod memory_limit;
pub mod model;
pub mod mutating_proxy;
pub mod options;
pub mod own_store;
pub mod proxy;
pub mod random;
mod relay_listener;
pub mod reply_proxy;
pub mod servers;
pub mod setting;
pub mod shared_file;
pub mod sockets;
pub mod strategies;
pub mod threads;
pub mod timed_limiter;
pub mod vectors;
pub mod wait;
pub mod wall_clock;

/// The Rust blocks of the READMEs and of the pages in `docs`.
#[cfg(doctest)]
mod snippets {
    include!(concat!(env!("OUT_DIR"), "/snippets.rs"));
}
