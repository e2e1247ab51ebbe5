//! The core for Node. What is exported here is private to the npm package: its face is written by hand, in `lib`.
//!
//! Every call converts, asks the core, and converts the answer. Errors travel as values: a [`failure::Failure`] is thrown
//! by the TypeScript side, as the class its code belongs to. Answers travel as numbers (see [`record`]), many at a time.

pub mod change;
pub mod channel;
pub mod clock;
pub mod counters;
mod exchange;
pub mod failure;
pub mod http;
mod inbox;
pub mod limit;
pub mod lint;
mod number;
pub mod opening;
pub mod policy;
mod record;
mod subject;
#[cfg(target_os = "linux")]
mod uv;
mod watching;
