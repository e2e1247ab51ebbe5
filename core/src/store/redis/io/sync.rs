//! The types that `handover.rs` is built on. The test that searches its interleavings replaces them.

pub(crate) use std::sync::atomic::{AtomicBool, Ordering};

pub(crate) use crate::process::lock::Mutex;
