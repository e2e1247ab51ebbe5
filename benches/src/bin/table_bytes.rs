//! Measures the memory of a key in each table, as the growth of a process. Pass the URL of a Redis server, which is not
//! emptied: `cargo run --release -p tidegate-benches --bin table-bytes redis://127.0.0.1:6379/0`.

use std::time::Duration;

use tidegate::{Limiter, Policy};

const UNREACHABLE: &str = "redis://127.0.0.1:1/0";

fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("the status of this process");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("its memory");
    line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") * 1_024
}

/// Prints the growth of a process for each key of a table. Each table has a new process, so that none uses memory that
/// another one has freed.
fn measure(table: &str) {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let output = std::process::Command::new(std::env::current_exe().expect("the path of this program"))
        .args(&arguments)
        .env("TABLE", table)
        .output()
        .expect("a process");
    print!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
}

fn limiter(store: &str, deny_cache: u64) -> Limiter {
    let builder = Limiter::builder().store(store).prefix(format!("bytes{}", std::process::id()));
    let builder = builder.timeout(Duration::from_secs(5)).deny_cache(Duration::from_secs(deny_cache));
    builder.build().expect("a limiter")
}

fn run(table: &str, redis: &str) {
    let (name, what) = table.split_once(", ").expect("a table and what is in it");
    let (length, count) = match what {
        "keys of 16 bytes" => (16, 50_000),
        "keys of 64 bytes" => (64, 50_000),
        "keys of 60 kB" => (60_000, 10_000),
        _ => (16, 3_000),
    };
    let (limiter, notation, checks) = match name {
        "memory" => (limiter("memory://", 0), "gcra 1/hour", 1),
        "memory of sliding windows" => (limiter("memory://", 0), "1000/hour", 1),
        "usage snapshots" => (limiter(redis, 0), "gcra 1/hour", 1),
        "snapshots and deny cache" => (limiter(redis, 60), "gcra 1/hour", 2),
        "snapshots and memory of an outage" => (limiter(UNREACHABLE, 0), "gcra 1/hour", 2),
        _ => (limiter("memory://", 0), "", 1),
    };
    let policy = Policy::parse(if notation.is_empty() { "1/hour" } else { notation }).expect("a policy");
    let check = |number: usize| {
        let key = format!("{number:0length$}");
        for _ in 0..checks {
            if notation.is_empty() {
                let (blanks, daily) = (if what.contains("60 kB") { 60_000 } else { 0 }, number + 1);
                limiter.peek(&*format!("{:blanks$}1/hour;{daily}/day", ""), "k", 1).expect("a Decision");
            } else {
                limiter.check(&policy, &key).expect("a Decision");
            }
        }
    };
    (0..100).for_each(check);
    let before = resident_bytes();
    (100..count).for_each(check);
    println!("{table}: {} bytes for each", (resident_bytes() - before) / (count as u64 - 100));
}

fn main() {
    let redis = std::env::args().nth(1).unwrap_or_else(|| "redis://127.0.0.1:6379/0".to_owned());
    if let Ok(table) = std::env::var("TABLE") {
        return run(&table, &redis);
    }
    for name in [
        "memory",
        "memory of sliding windows",
        "usage snapshots",
        "snapshots and deny cache",
        "snapshots and memory of an outage",
    ] {
        for what in ["keys of 16 bytes", "keys of 64 bytes", "keys of 60 kB"] {
            measure(&format!("{name}, {what}"));
        }
    }
    for what in ["of 14 bytes", "of 60 kB"] {
        measure(&format!("parsed notations, {what}"));
    }
}
