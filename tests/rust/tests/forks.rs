//! A child of a fork waits for no lock that a thread of its parent held. The test stops a thread at each of its locks in turn, as a
//! fork stops the threads of the parent for the child. For the core, a new process then begins, and it makes every call.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tidegate::host::stepping;
use tidegate::{KeyOverride, Limiter, ManualClock, Result};
use tidegate_tests::servers::{Kind, Servers};
use tidegate_tests::shared_file::SharedFile;
use tidegate_tests::wait::wait_closely;

const PATIENCE: Duration = Duration::from_secs(60);

fn limiter(url: &str, clock: Option<Arc<ManualClock>>) -> Result<Limiter> {
    let builder =
        Limiter::builder().store(url).timeout(Duration::from_secs(20)).policy("held", "concurrency 9 ttl 60s")?;
    clock.into_iter().fold(builder, tidegate::Builder::clock).build()
}

/// Makes calls of every kind, and each is admitted.
fn call_all(limiter: &Limiter, clock: Option<&ManualClock>, key: &str) -> Result<()> {
    let decision = limiter.check_n("90000/hour", key, 2)?;
    assert!(decision.allowed());
    limiter.settle(&decision, 1)?;
    assert!(limiter.check("calendar-window 90000/day in Europe/Berlin; 80000/hour", key)?.allowed());
    assert!(limiter.check_all([("90000/hour", key, 1), ("80000/minute", key, 1)])?.allowed());
    assert!(limiter.peek("90000/hour", key, 1)?.allowed());
    limiter.charge("90000/hour", key, 1)?;
    limiter.refund("90000/hour", key, 1)?;
    assert!(limiter.acquire("gcra 90000/s burst 1000", key, 1, Some(PATIENCE))?.allowed());
    assert!(limiter.acquire("sliding-window 90000/s", key, 1, Some(PATIENCE))?.allowed());
    drop(limiter.hold("held", key, 1)?.held().expect("there is room"));
    let own = KeyOverride::parse("70000/hour").expect("numbers");
    limiter.set_override("held", key, None, None)?;
    limiter.set_override("90000/hour", key, Some(&own), Some(PATIENCE))?;
    assert!(limiter.check("90000/hour", key)?.overridden());
    assert!(limiter.overrides("90000/hour")?.iter().any(|own| own.key == key));
    limiter.set_override("90000/hour", key, None, None)?;
    limiter.block("90000/hour", key, PATIENCE)?;
    limiter.unblock("90000/hour", key)?;
    limiter.clear("90000/hour", key)?;
    limiter.ping()?;
    drop(limiter.use_policy("held", "a test")?);
    assert!(limiter.waiting("held", key) == 0 && !limiter.stats().policies.is_empty());
    let task = async {
        let limiter = limiter.to_async();
        assert!(limiter.check("90000/hour", key).await?.allowed());
        assert!(limiter.check_all([("90000/hour", key, 1), ("80000/minute", key, 1)]).await?.allowed());
        assert!(limiter.acquire("gcra 90000/s burst 1000", key, 1, Some(PATIENCE)).await?.allowed());
        limiter.hold("held", key, 1).await?.held().expect("there is room").release().await;
        Ok(())
    };
    tokio::runtime::Builder::new_current_thread().build().expect("a runtime").block_on(task)?;
    if let Some(clock) = clock {
        clock.advance(Duration::from_millis(1));
    }
    Ok(())
}

/// Stops a thread at the lock after `number` others, and makes all calls beside it. Returns false if it takes no more locks.
fn stops_with_lock(url: &str, number: usize, with_clock: bool) -> bool {
    let clock = with_clock.then(|| Arc::new(ManualClock::new(Duration::from_secs(1_800_000_000))));
    let limiter = limiter(url, clock.clone()).expect("a limiter");
    let flag = || Arc::new(AtomicBool::new(false));
    let (is_stopped, may_go_on, has_ended) = (flag(), flag(), flag());
    let is = |flag: &AtomicBool| flag.load(Ordering::SeqCst);
    let parents = {
        let (limiter, clock) = (limiter.clone(), clock.clone());
        let (is_stopped, may_go_on, has_ended) = (is_stopped.clone(), may_go_on.clone(), has_ended.clone());
        std::thread::spawn(move || {
            stepping::stop_after(number, move || {
                is_stopped.store(true, Ordering::SeqCst);
                stepping::wait_until(|| may_go_on.load(Ordering::SeqCst));
            });
            // The locks that it holds when it is stopped stay held.
            let made = call_all(&limiter, clock.as_deref(), &format!("of parent {number}"));
            let was_stopped = stepping::end().is_none();
            has_ended.store(true, Ordering::SeqCst);
            // In a real fork, a stopped thread would never go on.
            assert!(was_stopped || made.is_ok(), "{made:?}");
        })
    };
    wait_closely(PATIENCE, "it stops or ends", || is(&is_stopped) || is(&has_ended) || parents.is_finished());
    let stopped = is(&is_stopped);
    if stopped {
        tidegate::after_fork_in_child();
        let (limiter, clock) = (limiter.clone(), clock.clone());
        let child = std::thread::spawn(move || {
            call_all(&limiter, clock.as_deref(), "of the child").expect("every call");
            limiter.close();
        });
        let what = format!("a child has made its calls, whose parent held lock {number} of a limiter on {url}");
        wait_closely(PATIENCE, &what, || child.is_finished());
        child.join().expect("every call admits");
    }
    may_go_on.store(true, Ordering::SeqCst);
    wait_closely(PATIENCE, "the other ends", || parents.is_finished());
    // Its calls may have failed, because the child has closed the limiter.
    drop(parents.join());
    stopped
}

#[track_caller]
fn every_lock(url: &str, with_clock: bool) {
    let taken = (0..).take_while(|number| stops_with_lock(url, *number, with_clock)).count();
    assert!(taken > 20, "it took {taken} locks");
}

#[test]
fn a_child_waits_for_no_lock_of_its_parent_in_memory() {
    every_lock("memory://", false);
    every_lock("memory://", true);
}

#[test]
fn a_child_waits_for_no_lock_of_its_parent_on_a_file() {
    let file = SharedFile::new();
    every_lock(&file.url("max_bytes=1MB"), false);
}

#[test]
fn a_child_waits_for_no_lock_of_its_parent_on_redis() {
    let redis = Servers::start(Kind::Single);
    every_lock(redis.url(), false);
}
