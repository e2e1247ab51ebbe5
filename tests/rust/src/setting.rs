//! The numbers that the environment sets for a run.

/// The value of a variable of the environment, if it is set to a number.
#[must_use]
pub fn setting(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}
