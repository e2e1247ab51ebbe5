//! Leases on a real server: the same operations as in memory, and processes that share a limit and are killed.

mod agreement;
mod processes;
mod state_space;
mod unspent;
