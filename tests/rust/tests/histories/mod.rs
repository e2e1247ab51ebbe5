//! Clients record every call while servers fail, and a checker finds out whether any order of the calls explains the answers.
//!
//! `TIDEGATE_SOAK` sets the seconds of each run, `TIDEGATE_SEED` the order of faults.

mod cluster;
mod run;
mod seeded;
mod sentinel;
mod simulated;
mod single;
mod table;
