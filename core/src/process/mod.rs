//! The parts that concern this process: its clocks, its log, its children, the ways to wait, and the files that it reads.

pub(crate) mod alarm;
pub(crate) mod clock;
pub(crate) mod fork;
pub(crate) mod lock;
pub(crate) mod log;
pub(crate) mod pending_count;
#[cfg(any(feature = "files", feature = "redis"))]
pub(crate) mod regular_file;
pub(crate) mod waits;
