//! Events that no caller may notice.

use std::sync::PoisonError;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tidegate::{Limiter, OnStoreError};
use tidegate_tests::any_limiter::runtime;
use tidegate_tests::proxy::{Condition, Proxy};
use tidegate_tests::servers::{Kind, Servers};

use super::{ALONE, LOAD, POLICY};

/// Runs checks while something happens. Every check must succeed.
fn unnoticed(url: &str, timeout: Duration, happens: impl Fn()) {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let limiter = Limiter::builder().store(url).timeout(timeout).on_store_error(OnStoreError::Raise);
    let limiter = limiter.build().expect("a limiter");
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    assert!(limiter.check(POLICY, "key").expect("nothing is wrong").allowed());
                    std::thread::sleep(Duration::from_millis(1));
                }
            });
        }
        let runtime = runtime();
        let tasks = limiter.to_async();
        let over = &over;
        scope.spawn(move || {
            runtime.block_on(async {
                while !over.load(Ordering::Relaxed) {
                    let mut each = tokio::task::JoinSet::new();
                    for _ in 0..LOAD {
                        let tasks = tasks.clone();
                        each.spawn(async move { tasks.check(POLICY, "key").await });
                    }
                    for decision in each.join_all().await {
                        assert!(decision.expect("nothing is wrong").allowed());
                    }
                    tokio::time::sleep(Duration::from_millis(2)).await;
                }
            });
        });
        happens();
        over.store(true, Ordering::Relaxed);
    });
}

#[test]
fn scripts_are_flushed() {
    let servers = Servers::start(Kind::Single);
    unnoticed(servers.url(), Duration::from_secs(10), || {
        for _ in 0..20 {
            let _ = servers.command(0, &["SCRIPT", "FLUSH"]);
            std::thread::sleep(Duration::from_millis(20));
        }
    });
}

#[test]
fn a_slow_link_is_no_fault() {
    let servers = Servers::start(Kind::Single);
    let proxy = Proxy::to(servers.port(0));
    let timeout = Duration::from_millis(4_500);
    unnoticed(&format!("redis://127.0.0.1:{}/0", proxy.port()), timeout, || {
        proxy.set(Condition::Healthy);
        // Over such a link the timeout suffices for one round trip, but not for a connection as well.
        std::thread::sleep(Duration::from_millis(300));
        proxy.set(Condition::Slow(Duration::from_millis(2_500)));
        std::thread::sleep(Duration::from_secs(8));
    });
}
