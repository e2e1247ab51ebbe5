//! `tidegate simulate`: what it prints, what it draws, and whether its figures are true.

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
