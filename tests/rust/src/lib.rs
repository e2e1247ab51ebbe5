//! What the Rust tests of Tidegate share.

pub mod servers;
