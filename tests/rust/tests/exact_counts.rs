//! Concurrent checks of threads, tasks and processes: together they are admitted exactly up to the limit.

use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tidegate::{AsyncLimiter, Limiter};
use tidegate_tests::servers::{Kind, Servers};
use tidegate_tests::shared_file::SharedFile;

/// Limits of 1,000 units. No unit comes back within a test.
const POLICIES: [&str; 4] = [
    "fixed-window 1000/hour",
    "1000/day",
    "gcra 1000/year; sliding-log 1000/day; sliding-counter 2000/year",
    "token-bucket 1000/year; leaky-bucket 1200/year; fixed-window 1000/day",
];
const TRIES: u64 = 1_600;

fn limiter(url: &str) -> Limiter {
    // This test counts the answers of the store, not those of a cache.
    Limiter::builder()
        .store(url)
        .timeout(Duration::from_secs(10))
        .deny_cache(Duration::ZERO)
        .build()
        .expect("a limiter")
}

fn tasks(url: &str) -> AsyncLimiter {
    Limiter::builder()
        .store(url)
        .timeout(Duration::from_secs(10))
        .deny_cache(Duration::ZERO)
        .build_async()
        .expect("a limiter")
}

/// Eight threads make all tries together. Returns the number of admitted checks.
fn threads(limiter: &Limiter, policy: &str, key: &str) -> u64 {
    let admitted = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..TRIES / 8 {
                    let allowed = limiter.check(policy, key).expect("a decision").allowed();
                    admitted.fetch_add(u64::from(allowed), Ordering::Relaxed);
                }
            });
        }
    });
    admitted.into_inner()
}

#[test]
fn threads_share_a_limit_in_memory() {
    for policy in POLICIES {
        assert_eq!(threads(&limiter("memory://"), policy, "k"), 1_000, "{policy}");
    }
}

#[test]
fn threads_share_a_limit_in_redis() {
    let redis = Servers::start(Kind::Single);
    for policy in POLICIES {
        assert_eq!(threads(&limiter(redis.url()), policy, "k"), 1_000, "{policy}");
    }
}

#[tokio::test]
async fn tasks_that_fold_share_a_limit() {
    let redis = Servers::start(Kind::Single);
    let limiter = tasks(redis.url());
    for policy in POLICIES {
        let mut waiting = tokio::task::JoinSet::new();
        for number in 0..2 * TRIES {
            let limiter = limiter.clone();
            // Two keys, so that one script call has entries of both.
            let key = if number % 2 == 0 { "even" } else { "odd" };
            waiting.spawn(async move { (key, limiter.check(policy, key).await.expect("a decision").allowed()) });
        }
        let mut admitted = [0, 0];
        while let Some(done) = waiting.join_next().await {
            let (key, allowed) = done.expect("a task ends");
            admitted[usize::from(key == "odd")] += u64::from(allowed);
        }
        assert_eq!(admitted, [1_000, 1_000], "{policy}");
    }
}

/// The part of one process. Its environment names the check, and it prints the number of admitted checks.
#[test]
fn process_part() {
    let Ok(url) = std::env::var("TIDEGATE_PART_URL") else { return };
    let policy = std::env::var("TIDEGATE_PART_POLICY").expect("a policy");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let limiter = tasks(&url);
    let blocking = self::limiter(&url);
    let admitted = runtime.block_on(async {
        let mut waiting = tokio::task::JoinSet::new();
        for _ in 0..TRIES / 2 {
            let (limiter, policy) = (limiter.clone(), policy.clone());
            waiting.spawn(async move { limiter.check(&policy, "k").await.expect("a decision").allowed() });
        }
        waiting.join_all().await.into_iter().map(u64::from).sum::<u64>()
    });
    println!("admitted {}", admitted + threads(&blocking, &policy, "k"));
}

#[test]
fn threads_share_a_limit_in_a_file() {
    let shared = SharedFile::new();
    for policy in POLICIES {
        assert_eq!(threads(&limiter(&shared.url("max_bytes=4MB")), policy, "k"), 1_000, "{policy}");
    }
}

#[test]
fn processes_share_a_limit() {
    let (redis, shared) = (Servers::start(Kind::Single), SharedFile::new());
    processes(redis.url(), &POLICIES, || drop(redis.command(0, &["FLUSHALL"])));
    let file = shared.url("max_bytes=4MB");
    processes(&file, &POLICIES, || limiter(&file).clear_all().expect("cleared"));
}

#[test]
fn processes_share_a_limit_in_postgres() {
    let postgres = Servers::start(Kind::Postgres);
    let url = format!("{}?create=yes", postgres.url());
    processes(&url, &POLICIES, || limiter(&url).clear_all().expect("cleared"));
}

/// The processes give different statements the same names, and share sessions of the server.
#[test]
fn processes_share_a_limit_behind_a_pooler() {
    let servers = Servers::start(Kind::PgBouncer);
    let url = format!("{}?create=yes", servers.url());
    processes(&url, &POLICIES[2..3], || limiter(&url).clear_all().expect("cleared"));
}

fn processes(url: &str, policies: &[&str], clear: impl Fn()) {
    let program = std::env::current_exe().expect("this program");
    for policy in policies {
        clear();
        let start = || {
            let mut command = Command::new(&program);
            command.args(["--exact", "exact_counts::process_part", "--nocapture"]);
            command.env("TIDEGATE_PART_URL", url).env("TIDEGATE_PART_POLICY", policy);
            command.stdout(std::process::Stdio::piped()).spawn().expect("a process")
        };
        let parts = [start(), start(), start()];
        let admitted: u64 = parts.map(|part| part.wait_with_output().expect("it ends")).iter().map(admitted_by).sum();
        assert_eq!(admitted, 1_000, "{policy}");
    }
}

fn admitted_by(output: &std::process::Output) -> u64 {
    let text = String::from_utf8_lossy(&output.stdout);
    let number = text.lines().find_map(|line| line.split_once("admitted ")?.1.trim().parse().ok());
    number.unwrap_or_else(|| panic!("the process printed: {text}"))
}

#[test]
fn several_keys_are_charged_together_or_not_at_all() {
    let (redis, shared, postgres) = (Servers::start(Kind::Single), SharedFile::new(), Servers::start(Kind::Postgres));
    let table = format!("{}?create=yes", postgres.url());
    for url in ["memory://", &shared.url("max_bytes=4MB"), redis.url(), &table] {
        let limiter = Arc::new(limiter(url));
        let admitted = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for thread in 0..8 {
                let (limiter, admitted) = (&limiter, &admitted);
                scope.spawn(move || {
                    let own = format!("user {thread}");
                    for _ in 0..200 {
                        let entries =
                            [("fixed-window 180/hour", own.as_str(), 1), ("fixed-window 1000/hour", "all", 1)];
                        let allowed = limiter.check_all(entries).expect("a decision").allowed();
                        admitted.fetch_add(u64::from(allowed), Ordering::Relaxed);
                    }
                });
            }
        });
        assert_eq!(admitted.into_inner(), 1_000, "{url}");
        let used: u64 = (0..8)
            .map(|thread| {
                180 - limiter.peek("fixed-window 180/hour", &format!("user {thread}"), 1).expect("a peek").remaining()
            })
            .sum();
        assert_eq!(used, 1_000, "a denial by the shared limit charged nothing to the others ({url})");
    }
}
