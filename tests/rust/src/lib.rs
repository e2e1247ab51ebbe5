//! What the Rust tests of Tidegate share.

pub mod history;
pub mod servers;
