//! What the Rust tests of Tidegate share.

pub mod cluster;
pub mod history;
pub mod machine;
pub mod model;
pub mod proxy;
pub mod random;
pub mod said;
pub mod servers;
pub mod sockets;
pub mod speaker;
pub mod threads;
pub mod vectors;
pub mod wall_clock;
