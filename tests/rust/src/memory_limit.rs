//! Runs a test in a separate process with a limit on its memory.

use std::env;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::servers::{Kind, Servers};
use crate::wait::wait_until;

/// The variable that marks the process with the limit. Its value is the store that the test uses.
const STORE: &str = "TIDEGATE_FLOODED_STORE";

/// Runs a test in a process with an address space of at most that many megabytes, and gives it the store. The caller must be
/// the whole test, because that process runs it anew. A process that needs more memory ends, and the test fails.
///
/// # Panics
/// When the process fails.
#[track_caller]
pub fn within_megabytes(megabytes: u64, store: &str, test: impl FnOnce(&str)) {
    match env::var(STORE) {
        Ok(store) => test(&store),
        Err(_) => run_limited(megabytes, store),
    }
}

/// The same with its own Redis server.
///
/// # Panics
/// When the process fails.
#[track_caller]
pub fn with_redis_within_megabytes(megabytes: u64, test: impl FnOnce(&str)) {
    match env::var(STORE) {
        Ok(store) => test(&store),
        Err(_) => run_limited(megabytes, Servers::start(Kind::Single).url()),
    }
}

#[track_caller]
fn run_limited(megabytes: u64, store: &str) {
    let name = std::thread::current().name().expect("a test has the name of its thread").to_owned();
    let program = env::current_exe().expect("the path of this program");
    let began = Instant::now();
    let output = Command::new("sh")
        .args(["-c", "ulimit -v \"$1\" && exec \"$0\" --exact --nocapture \"$2\""])
        .arg(program)
        .args([(megabytes * 1_000).to_string(), name])
        .env(STORE, store)
        // Each arena reserves address space that is never used.
        .env("MALLOC_ARENA_MAX", "1")
        .output()
        .expect("a process");
    let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{:?} after {:?}:\n{said}", output.status, began.elapsed());
    assert!(said.contains("1 passed"), "the test was not found:\n{said}");
}

/// The megabytes of memory that this process has now.
///
/// # Panics
/// If `/proc` does not give it.
#[must_use]
pub fn resident_megabytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("the status of this process");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("its memory");
    line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") / 1_000
}

/// Waits until this process has at most that much memory, while `calls` are made.
///
/// # Panics
/// When it has more for a minute.
#[track_caller]
pub fn wait_until_given_back(megabytes: u64, mut calls: impl FnMut()) {
    wait_until(Duration::from_secs(60), "the memory is given back", || {
        (0..200).for_each(|_| calls());
        resident_megabytes() <= megabytes
    });
}
