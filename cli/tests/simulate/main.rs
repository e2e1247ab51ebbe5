//! `tidegate simulate`: its output, its plots, and the truth of its figures.

#[path = "../support/mod.rs"]
mod support;

mod errors;
mod examples;
mod figures;
mod golden;
mod plots;
mod running;
mod shared_store;
mod speed;
mod units;
