//! The numbers that the environment sets for a run.

/// What a number of the environment says, if it is set.
#[must_use]
pub fn setting(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}
