//! Holders and waiters in processes that are killed at any moment.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use tidegate::{CheckOptions, Limiter};
use tidegate_tests::random::Random;
use tidegate_tests::servers::{Kind, Servers};

const POLICY: &str = "concurrency 3 ttl 500ms";
const MOST: usize = 3;
const KILLS: usize = 100;

/// The clock that all processes of the machine share, in microseconds.
fn micros() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000 + now.tv_nsec as u64 / 1_000
}

/// A process that takes holds, one after the other, in several threads.
#[test]
#[ignore = "it is a process of the other test here"]
fn a_process_of_holders() {
    let url = std::env::var("TIDEGATE_HOLDS").expect("the other test starts it");
    let limiter = Limiter::builder().store(&url).timeout(Duration::from_secs(5)).build().expect("a limiter");
    let say = |words: String| {
        // One write for each line: the process may be killed in between.
        let mut out = std::io::stdout().lock();
        out.write_all(words.as_bytes()).and_then(|()| out.flush()).expect("the other test reads it");
    };
    std::thread::scope(|scope| {
        for number in 0..4 {
            let (limiter, say) = (&limiter, &say);
            scope.spawn(move || {
                loop {
                    let timeout = Some(Duration::from_secs(5));
                    let answer = limiter.hold_within(POLICY, "k", &CheckOptions::default(), timeout);
                    let Some(hold) = answer.expect("an answer").held() else { continue };
                    say(format!("\nenter {number} {}\n", micros()));
                    std::thread::sleep(Duration::from_millis(5));
                    // A process that the machine did not run for the ttl has lost its hold.
                    let lost = if hold.lost() { "lost" } else { "leave" };
                    say(format!("\n{lost} {number} {}\n", micros()));
                    drop(hold);
                }
            });
        }
    });
}

/// The first and the last moment of a unit's use, for certain.
type Use = (u64, u64);

/// Reads the output of a process until it is killed.
fn read(child: &mut Child, uses: Arc<Mutex<Vec<Use>>>, killed_at: Arc<AtomicU64>) -> JoinHandle<()> {
    let out = BufReader::new(child.stdout.take().expect("its output"));
    std::thread::spawn(move || {
        let mut entered = [None; 4];
        for line in out.lines().map_while(Result::ok) {
            let words: Vec<&str> = line.split(' ').collect();
            let [word, number, at] = words[..] else { continue };
            let (Ok(number), Ok(at)) = (number.parse::<usize>(), at.parse::<u64>()) else { continue };
            match word {
                "enter" => entered[number] = Some(at),
                "leave" => uses.lock().expect("no panic").extend(entered[number].take().map(|from| (from, at))),
                _ => entered[number] = None,
            }
        }
        // The units that it held when it was killed were in use until then.
        let killed_at = killed_at.load(Ordering::Relaxed);
        uses.lock().expect("no panic").extend(entered.into_iter().flatten().map(|from| (from, killed_at.max(from))));
    })
}

#[test]
fn never_more_than_the_limit_when_processes_are_killed() {
    let redis = Servers::start(Kind::Single);
    let uses = Arc::new(Mutex::new(Vec::new()));
    let random = &mut Random::new(28);
    let start = || {
        let mut child = Command::new(std::env::current_exe().expect("this program"))
            .args(["lines::kills::a_process_of_holders", "--exact", "--ignored", "--nocapture"])
            .env("TIDEGATE_HOLDS", redis.url())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("a process");
        let killed_at = Arc::new(AtomicU64::new(0));
        let reads = read(&mut child, Arc::clone(&uses), Arc::clone(&killed_at));
        (child, reads, killed_at)
    };
    let kill = |(mut child, reads, killed_at): (Child, JoinHandle<()>, Arc<AtomicU64>)| {
        killed_at.store(micros(), Ordering::Relaxed);
        child.kill().expect("it runs");
        child.wait().expect("it ends");
        reads
    };
    let mut processes: Vec<_> = (0..3).map(|_| start()).collect();
    let (mut readers, began) = (Vec::new(), Instant::now());
    for _ in 0..KILLS {
        std::thread::sleep(Duration::from_millis(20 + random.below(60)));
        readers.push(kill(std::mem::replace(&mut processes[random.below(3) as usize], start())));
    }
    // The units of the killed processes come back.
    let before = uses.lock().expect("no panic").len();
    tidegate_tests::wait::wait_until(Duration::from_secs(20), "the others go on", || {
        uses.lock().expect("no panic").len() > before + 20
    });
    readers.extend(processes.into_iter().map(kill));
    readers.into_iter().for_each(|reads| reads.join().expect("it ends"));
    let uses = uses.lock().expect("no panic");
    let mut edges: Vec<(u64, i64)> = uses.iter().flat_map(|(from, to)| [(*from, 1), (*to, -1)]).collect();
    // At equal moments, ends come before begins.
    edges.sort_unstable();
    let (mut now, mut most) = (0_i64, 0_i64);
    for (_, change) in edges {
        now += change;
        most = most.max(now);
    }
    println!("{} uses in {:?}, at most {most} at once", uses.len(), began.elapsed());
    assert!(most as usize <= MOST, "{most} at once");
    assert!(uses.len() > MOST, "only {} uses", uses.len());
}
