//! The keys that a verb wrote for a measurement are gone when it ends, however it ends.

mod support;

use std::process::Stdio;
use std::time::{Duration, Instant};

use tidegate_tests::servers::{Kind, Servers};

use support::{command, ran};

fn keys(redis: &Servers) -> u64 {
    redis.command(0, &["DBSIZE"]).as_u64().expect("a number")
}

/// A policy file in a folder of this process.
fn policies() -> std::path::PathBuf {
    let folder = std::env::temp_dir().join(format!("tidegate-leavings-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let file = folder.join("policies.yaml");
    std::fs::write(&file, "policies: {jobs: {limits: [gcra 1000000/s], journal: 5}}").expect("a file");
    file
}

#[test]
fn a_policy_with_a_journal_leaves_no_journals() {
    let (redis, file) = (Servers::start(Kind::Single), policies());
    let file = file.to_str().expect("UTF-8");
    for verb in [&["bench", "jobs", "--seconds", "0.2"][..], &["size", "jobs", "--rate", "1k/s", "--keys", "1k"]] {
        let ended = ran(command(verb).args(["--policies", file, "--store", redis.url()]));
        assert_eq!((ended.code, keys(&redis)), (0, 0), "{verb:?}: {}", ended.error);
    }
}

#[cfg(unix)]
#[test]
fn a_signal_leaves_nothing() {
    let (redis, file) = (Servers::start(Kind::Single), policies());
    let file = file.to_str().expect("UTF-8");
    let bench = ["bench", "jobs", "--seconds", "600", "--concurrency", "4"];
    let simulate = ["simulate", "fixed-window 5/hour", "--pattern", "steady", "--rate", "1k/s", "--duration", "1h"];
    for (verb, signal, code) in [(&bench[..], "INT", 130), (&bench[..], "TERM", 143), (&simulate[..], "INT", 130)] {
        let mut child = command(verb)
            .args(["--policies", file, "--store", redis.url()])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("the command runs");
        let began = Instant::now();
        while keys(&redis) == 0 {
            assert!(began.elapsed() < Duration::from_secs(60), "{verb:?} writes nothing");
        }
        let kill = std::process::Command::new("kill").args([&format!("-{signal}"), &child.id().to_string()]).status();
        assert!(kill.is_ok_and(|kill| kill.success()));
        let ended = child.wait().expect("it ends");
        assert_eq!((ended.code(), keys(&redis)), (Some(code), 0), "{verb:?}");
    }
}
