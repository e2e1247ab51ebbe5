//! An idle limiter lets the machine sleep.

use std::fs;
use std::time::Duration;

use tidegate::Limiter;
use tidegate_tests::servers::{Kind, Servers};
use tidegate_tests::threads;

/// The total number of times that the threads of the limiter have gone to sleep.
fn sleeps() -> u64 {
    let counts = threads::named("tidegate-redis").into_iter().map(|task| {
        let status = fs::read_to_string(task.join("status")).expect("a status");
        let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:")).expect("a count");
        line.trim().parse::<u64>().expect("a number")
    });
    counts.sum()
}

#[tokio::test]
async fn the_thread_sleeps_when_there_is_nothing_to_do() {
    let server = Servers::start(Kind::Single);
    let limiter =
        Limiter::builder().store(server.url()).timeout(Duration::from_secs(10)).build_async().expect("a limiter");
    for polled in [false, true] {
        let _poller = polled.then(|| limiter.reply_poller().expect("a poller"));
        limiter.check("10/minute", "key").await.expect("a decision");
        // After the timeout of the check, nothing of it is left to do.
        tokio::time::sleep(Duration::from_millis(500)).await;
        let before = sleeps();
        assert!(before > 0, "there is a thread");
        tokio::time::sleep(Duration::from_secs(1)).await;
        let during = sleeps() - before;
        assert!(during <= 3, "it woke up {during} times in a second");
    }
}
