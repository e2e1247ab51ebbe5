//! The types that `reader_choice.rs` and `wake_flag.rs` are built on. The test that searches their interleavings replaces them.

#[cfg(target_os = "linux")]
pub(crate) use std::sync::atomic::AtomicU64;
pub(crate) use std::sync::atomic::{AtomicBool, Ordering};
