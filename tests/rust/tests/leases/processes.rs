//! Processes that share a limit.
