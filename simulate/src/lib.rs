#![doc = include_str!("../README.md")]

mod calendar;
mod errors;
mod figures;
mod plot;
mod replay;
mod report;
mod simulation;
mod table;
pub mod text;
mod timeline;
mod traffic;
mod waiting_callers;

pub use calendar::{date, time_of_day};
pub use errors::{invalid, unwritable};
pub use plot::{Theme, check_plots};
pub use replay::SharedStore;
pub use report::Report;
pub use simulation::Simulation;
pub use table::table;
pub use traffic::moment::LATEST;
pub use traffic::pattern::{Plan, Shape, usual_duration};
pub use traffic::trace_line::{TraceFormat, TraceOptions};
pub use traffic::{Event, Traffic, value_name};
pub use waiting_callers::{Retries, Retry};
