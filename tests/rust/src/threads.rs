//! The threads of this process, as Linux lists them.

use std::path::PathBuf;

/// The folders in `/proc` of the threads with names that begin like that.
#[must_use]
pub fn named(name: &str) -> Vec<PathBuf> {
    let tasks = std::fs::read_dir("/proc/self/task").expect("Linux").flatten().map(|task| task.path());
    let is_called = |task: &PathBuf| std::fs::read_to_string(task.join("comm")).is_ok_and(|its| its.starts_with(name));
    tasks.filter(is_called).collect()
}
