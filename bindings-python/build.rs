//! Refuses Python without a global interpreter lock, for which nothing is tested.
//!
//! No wheel is for such a Python, since the stable ABI is not; so `pip` builds the source, and comes here.

fn main() {
    if pyo3_build_config::get().is_free_threaded() {
        println!(
            "cargo::error=Tidegate does not support the free-threaded build of Python yet. Use the usual build: `python3.14` \
             where this one is `python3.14t`"
        );
    }
}
