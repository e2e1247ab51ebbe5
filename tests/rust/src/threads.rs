//! The threads of this process, as Linux tells of them.

use std::path::PathBuf;

/// Where it tells of those whose names begin like that.
#[must_use]
pub fn named(name: &str) -> Vec<PathBuf> {
    let tasks = std::fs::read_dir("/proc/self/task").expect("Linux").flatten().map(|task| task.path());
    let is_called = |task: &PathBuf| std::fs::read_to_string(task.join("comm")).is_ok_and(|its| its.starts_with(name));
    tasks.filter(is_called).collect()
}
