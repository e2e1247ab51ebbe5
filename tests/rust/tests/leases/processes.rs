//! Processes share a limit on a real server, and are killed while they hold units. Brute force counts their admissions.
//!
//! A process appends each admission to a file, so that a kill loses at most the last one.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tidegate::{Algorithm, Lease, Limiter, Options, Policy, Source};
use tidegate_tests::any_limiter::runtime;
use tidegate_tests::budget::is_full;
use tidegate_tests::random::Random;
use tidegate_tests::servers::{Kind, Servers};

const PROCESSES: u64 = 3;
/// How long the processes of one policy run.
fn run_time() -> Duration {
    Duration::from_millis(if is_full() { 2_500 } else { 700 })
}

/// The time from one kill to the next, about.
const BETWEEN_KILLS: u64 = 200;

const POLICIES: [&str; 6] = [
    "calendar-window 30000/s",
    "sliding-window 40000/s",
    "sliding-log 20000/s",
    "gcra 20000/s burst 6000",
    "token-bucket 30000/s burst 3000; calendar-window 25000/s",
    "fixed-window 60000/hour",
];

fn policy(notation: &str) -> Policy {
    let limits = Policy::parse(notation).expect("a notation").limits().to_vec();
    let lease = Some(Lease::percent(5.0).expect("a lease"));
    Policy::new(limits, Options { lease, ..Options::default() }).expect("a policy")
}

fn limiter(url: &str) -> Limiter {
    let builder = Limiter::builder().store(url).timeout(Duration::from_secs(10));
    builder.deny_cache(Duration::from_millis(5)).build().expect("a limiter")
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_micros() as u64
}

/// The begin and the end of a check, and true if it spent units of a lease.
#[derive(Clone, Copy)]
struct Admission {
    began: u64,
    ended: u64,
    leased: bool,
}

/// The part of one process: it checks until it is killed or its time is over.
#[test]
fn process_part() {
    let Ok(url) = std::env::var("TIDEGATE_LEASES_URL") else { return };
    let of = |name: &str| std::env::var(name).unwrap_or_else(|_| panic!("{name} is missing"));
    let policy = policy(&of("TIDEGATE_LEASES_POLICY"));
    let mut file = OpenOptions::new().append(true).open(of("TIDEGATE_LEASES_FILE")).expect("a file");
    let (limiter, runtime) = (limiter(&url), runtime());
    let tasks = limiter.to_async();
    let waits = of("TIDEGATE_LEASES_TASKS") == "1";
    let end = Instant::now() + run_time() * 2;
    while Instant::now() < end {
        let began = now();
        let decision = if waits {
            runtime.block_on(tasks.check(&policy, "k")).expect("a decision")
        } else {
            limiter.check(&policy, "k").expect("a decision")
        };
        if decision.allowed() {
            let leased = u64::from(decision.source() == Source::Lease);
            let record = [began, now(), leased].map(u64::to_le_bytes).concat();
            file.write_all(&record).expect("a write");
        }
    }
}

fn start(url: &str, notation: &str, file: &Path, tasks: bool) -> Child {
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command.args(["--exact", "leases::processes::process_part", "--nocapture"]).stdout(Stdio::null());
    command.env("TIDEGATE_LEASES_URL", url).env("TIDEGATE_LEASES_POLICY", notation);
    command.env("TIDEGATE_LEASES_FILE", file).env("TIDEGATE_LEASES_TASKS", if tasks { "1" } else { "0" });
    command.spawn().expect("a process")
}

/// Runs processes that are killed and started again. Returns their admissions, and the number of kills.
fn run(url: &str, notation: &str, file: &Path, random: &mut Random) -> (Vec<Admission>, u64) {
    File::create(file).expect("a file");
    let mut processes: Vec<Child> = (0..PROCESSES).map(|number| start(url, notation, file, number == 0)).collect();
    let (end, mut killed) = (Instant::now() + run_time(), 0);
    while Instant::now() < end {
        std::thread::sleep(Duration::from_millis(1 + random.below(2 * BETWEEN_KILLS)));
        let number = random.below(PROCESSES);
        let process = &mut processes[number as usize];
        process.kill().expect("killed");
        process.wait().expect("it ended");
        killed += 1;
        *process = start(url, notation, file, number == 0);
    }
    for mut process in processes {
        process.kill().expect("killed");
        process.wait().expect("it ended");
        killed += 1;
    }
    let bytes = std::fs::read(file).expect("the file");
    let admissions = bytes.chunks_exact(24).map(|record| {
        let number = |index: usize| u64::from_le_bytes(record[8 * index..8 * index + 8].try_into().expect("8 bytes"));
        Admission { began: number(0), ended: number(1), leased: number(2) == 1 }
    });
    (admissions.collect(), killed)
}

/// The largest excess over a limit: the units that were certainly admitted within one window, beyond the limit.
fn beyond(limit: &tidegate::Limit, admissions: &[Admission]) -> i64 {
    let sorted = |of: fn(&Admission) -> u64| {
        let mut times: Vec<u64> = admissions.iter().map(of).collect();
        times.sort_unstable();
        times
    };
    let (began, ended) = (sorted(|one| one.began), sorted(|one| one.ended));
    let (count, period) = (limit.count() as i64, limit.period().micros());
    // Those that ended by `until` without those that began before `from`: they were all admitted in between.
    let within = |from: u64, until: u64| {
        ended.partition_point(|at| *at <= until) as i64 - began.partition_point(|at| *at < from) as i64
    };
    match limit.algorithm() {
        Algorithm::CalendarWindow => {
            let starts = began.iter().map(|at| at - at % period);
            starts.map(|start| within(start, start + period - 1) - count).max().unwrap_or(0)
        }
        Algorithm::SlidingWindow | Algorithm::SlidingLog => {
            ended.iter().map(|until| within(until - period + 1, *until) - count).max().unwrap_or(0)
        }
        Algorithm::FixedWindow => ended.len() as i64 - count,
        _ => {
            let burst = limit.capacity() as i64;
            let drained = |from: u64, until: u64| ((until - from) * limit.count() / period) as i64 + 1;
            // Every hundredth moment: the whole square of them would take long.
            let from = began.iter().step_by(100);
            let intervals = from.flat_map(|from| {
                ended.iter().step_by(997).filter(move |until| *until > from).map(move |until| (*from, *until))
            });
            intervals.map(|(from, until)| within(from, until) - burst - drained(from, until)).max().unwrap_or(0)
        }
    }
}

#[test]
fn processes_that_are_killed_never_pass_a_limit() {
    let redis = Servers::start(Kind::Single);
    let mut random = Random::new(7);
    let file = std::env::temp_dir().join(format!("tidegate-leases-{}", std::process::id()));
    for notation in POLICIES {
        let (admissions, killed) = run(redis.url(), notation, &file, &mut random);
        let policy = policy(notation);
        let leased = admissions.iter().filter(|one| one.leased).count();
        println!("{notation}: {} admitted, {leased} of them leased, {killed} processes killed", admissions.len());
        for limit in policy.limits() {
            let beyond = beyond(limit, &admissions);
            assert!(beyond <= 0, "{notation}: {limit} was passed by {beyond}");
        }
        // A bucket in full use has hardly anything left to lease.
        assert!(leased > 100, "{notation}: leases are tried: {leased} of {}", admissions.len());
        if let [limit] = policy.limits()
            && limit.algorithm() == Algorithm::FixedWindow
        {
            // The units of the killed processes stay charged until the window ends, at most one share for each.
            let rest = limiter(redis.url());
            let plain = Policy::parse(notation).and_then(|policy| policy.named(notation)).expect("a policy");
            let found =
                (0..limit.count()).take_while(|_| rest.check(&plain, "k").expect("a decision").allowed()).count();
            let least = limit.count().saturating_sub(killed * (limit.count() / 20 + 1));
            let all = (admissions.len() + found) as u64;
            println!("{notation}: {found} units were left; {} were lost with the processes", limit.count() - all);
            assert!((least..=limit.count()).contains(&all), "{notation}: {all} of {}", limit.count());
        }
    }
    std::fs::remove_file(&file).expect("the file");
}
