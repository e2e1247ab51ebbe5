//! The core for Node. The exports are private to the npm package. Its public interface is written by hand, in `lib`.
//!
//! Every call converts its arguments, calls the core, and converts the answer. Errors travel as values: the TypeScript side
//! throws an [`error_value::ErrorValue`] as the class that belongs to its code. Answers travel as numbers (see
//! `answer_record`), many at a time.

pub mod answer_record;
pub mod array_layout;
mod batch_codec;
pub mod clock;
pub mod command;
mod costs;
pub mod error_value;
pub mod http;
pub mod limit;
pub mod limiter_builder;
pub mod lint;
pub mod llm;
mod loop_reader;
pub mod native_limiter;
mod number;
pub mod observation;
pub mod options;
pub mod own_store;
pub mod policy;
mod refused_job;
pub mod stats;
mod store_change;
#[cfg(target_os = "linux")]
mod uv;
