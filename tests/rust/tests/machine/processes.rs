//! Processes share a file, and are killed or stopped at random instants. Each notes its admissions after every one, so
//! that a kill loses at most the last one.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tidegate::{AsyncLimiter, Limiter, OnStoreError};
use tidegate_tests::lateness::LatenessProbe;
use tidegate_tests::random::Random;
use tidegate_tests::setting::setting;
use tidegate_tests::shared_file::{SharedFile, examined_keys};

use super::seal::Salt;

const PROCESSES: usize = 3;
/// Kills and stops in a normal run. `TIDEGATE_KILLS` and `TIDEGATE_STOPS` set other numbers.
const KILLS: u64 = 100;
const STOPS: u64 = 12;
const KEYS: u64 = 12;
/// Limits that nothing reaches and that give no units back: one block, several blocks, and lists that grow.
const COUNTED: [&str; 3] = [
    "fixed-window 1000000000/year",
    "fixed-window 1000000000/year; calendar-window 1000000000/year; fixed-window 999999999/month; gcra 10/s burst 1000000000",
    "sliding-window 1000000000/year",
];
const TIMEOUT: Duration = Duration::from_millis(200);

/// Numbers of a process in its file: the admissions of each key, then the longest call in microseconds.
const LONGEST: u64 = KEYS;

fn limiter(url: &str) -> Limiter {
    let builder = Limiter::builder().store(url).timeout(TIMEOUT).deny_cache(Duration::ZERO);
    builder.on_store_error(OnStoreError::Raise).build().expect("a limiter")
}

/// The part of one process: it checks until it is killed.
#[test]
#[ignore = "a part of the tests below"]
fn process_part() {
    let of = |name: &str| std::env::var(name).unwrap_or_else(|_| panic!("{name} is missing"));
    let (limiter, seed) = (limiter(&of("TIDEGATE_MACHINE_URL")), setting("TIDEGATE_MACHINE_SEED").expect("a seed"));
    let notes = OpenOptions::new().read(true).write(true).open(of("TIDEGATE_MACHINE_NOTES")).expect("a file");
    let (mut random, mut longest) = (Random::new(seed), 0);
    let number = |at: u64| {
        let mut bytes = [0; 8];
        notes.read_exact_at(&mut bytes, 8 * at).expect("a number");
        u64::from_le_bytes(bytes)
    };
    let set = |at: u64, number: u64| notes.write_all_at(&number.to_le_bytes(), 8 * at).expect("written");
    let mut admitted: Vec<u64> = (0..KEYS).map(number).collect();
    let end = Instant::now() + Duration::from_secs(900);
    while Instant::now() < end {
        let key = random.below(KEYS);
        let began = Instant::now();
        let answer = limiter.check(COUNTED[key as usize % COUNTED.len()], &format!("key {key}"));
        let took = began.elapsed().as_micros() as u64;
        match answer {
            Ok(decision) => {
                assert!(decision.allowed());
                admitted[key as usize] += 1;
                set(key, admitted[key as usize]);
            }
            Err(error) => assert_eq!(error.code(), "store_timeout", "{error}"),
        }
        if took > longest {
            longest = took;
            set(LONGEST, longest);
        }
    }
}

struct Part {
    child: Child,
    notes: PathBuf,
}

impl Part {
    fn start(url: &str, notes: &Path, seed: u64) -> Self {
        File::create(notes).and_then(|file| file.set_len(8 * (LONGEST + 1))).expect("a file");
        let child = Command::new(std::env::current_exe().expect("this program"))
            .args(["machine::processes::process_part", "--exact", "--ignored", "--nocapture"])
            .env("TIDEGATE_MACHINE_URL", url)
            .env("TIDEGATE_MACHINE_NOTES", notes)
            .env("TIDEGATE_MACHINE_SEED", seed.to_string())
            .stdout(Stdio::null())
            .spawn()
            .expect("a process");
        Self { child, notes: notes.to_owned() }
    }

    fn numbers(&self) -> Vec<u64> {
        let bytes = std::fs::read(&self.notes).expect("its file");
        bytes.chunks_exact(8).map(|bytes| u64::from_le_bytes(bytes.try_into().expect("8 bytes"))).collect()
    }

    /// Sends a signal by its name.
    fn signal(&self, name: &str) {
        let id = self.child.id().to_string();
        let status = Command::new("kill").args([&format!("-{name}"), &id]).status().expect("kill runs");
        assert!(status.success());
        if name == "STOP" {
            // The process goes on until each of its threads has taken the signal.
            let is_stopped = |task: io::Result<fs::DirEntry>| {
                let stat = fs::read_to_string(task.expect("a thread").path().join("stat"));
                stat.is_ok_and(|stat| stat.contains(") T "))
            };
            let tasks = format!("/proc/{id}/task");
            let has_stopped = || fs::read_dir(&tasks).expect("its threads").all(is_stopped);
            tidegate_tests::wait::wait_until(Duration::from_secs(20), "it is stopped", has_stopped);
        }
    }

    /// Kills it, and returns its numbers.
    fn kill(mut self) -> Vec<u64> {
        assert!(self.child.try_wait().expect("its state").is_none(), "a process ended by itself");
        self.child.kill().expect("killed");
        self.child.wait().expect("it ended");
        let numbers = self.numbers();
        std::fs::remove_file(&self.notes).expect("its file");
        numbers
    }
}

/// The used units of each key, by the file.
fn used(url: &str) -> Vec<u64> {
    let limiter = limiter(url);
    let of = |key: u64| {
        let decision =
            limiter.peek(COUNTED[key as usize % COUNTED.len()], &format!("key {key}"), 1).expect("a decision");
        let first = decision.limits().next().expect("a limit");
        first.limit - first.remaining
    };
    (0..KEYS).map(of).collect()
}

#[test]
fn what_was_admitted_stays_counted_when_processes_are_killed() {
    let shared = SharedFile::new();
    let url = shared.url("max_bytes=1MB");
    let folder = shared.path().parent().expect("a folder").to_owned();
    let (mut random, mut number) = (Random::new(29), 0);
    let mut start = || {
        number += 1;
        Part::start(&url, &folder.join(number.to_string()), number)
    };
    let mut parts: Vec<Part> = (0..PROCESSES).map(|_| start()).collect();
    let mut admitted = vec![0; KEYS as usize];
    let mut add = |numbers: Vec<u64>| admitted.iter_mut().zip(numbers).for_each(|(all, one)| *all += one);
    let kills = setting("TIDEGATE_KILLS").unwrap_or(KILLS);
    for _ in 0..kills {
        std::thread::sleep(Duration::from_millis(10 + random.below(30)));
        let part = std::mem::replace(&mut parts[random.below(PROCESSES as u64) as usize], start());
        add(part.kill());
        examined_keys(&url, Duration::from_secs(5)).expect("the file is whole");
    }
    parts.into_iter().for_each(|part| add(part.kill()));
    let (used, most_lost) = (used(&url), kills + PROCESSES as u64);
    let (noted, counted): (u64, u64) = (admitted.iter().sum(), used.iter().sum());
    println!("{noted} admissions were noted, {counted} are counted, {most_lost} processes were killed");
    for (key, (noted, used)) in admitted.iter().zip(&used).enumerate() {
        assert!(used >= noted, "key {key}: {noted} were admitted, and {used} are counted");
    }
    assert!(counted <= noted + most_lost, "{counted} are counted, and {noted} were admitted");
    assert!(noted > 10 * kills, "only {noted} admissions");
}

#[test]
fn a_process_that_is_stopped_delays_no_call_past_its_deadline() {
    let shared = SharedFile::new();
    let url = shared.url("max_bytes=1MB");
    let folder = shared.path().parent().expect("a folder").to_owned();
    let start = |number: usize| Part::start(&url, &folder.join(number.to_string()), number as u64);
    let parts: Vec<Part> = (0..PROCESSES).map(start).collect();
    let mut random = Random::new(30);
    // Each process has begun.
    tidegate_tests::wait::wait_until(Duration::from_secs(20), "each process is admitted", || {
        parts.iter().all(|part| part.numbers()[..KEYS as usize].iter().sum::<u64>() > 100)
    });
    let probe = LatenessProbe::start();
    let (stops, longest) = setting("TIDEGATE_STOPS").map_or((STOPS, 400), |stops| (stops, 2_900));
    for _ in 0..stops {
        let part = &parts[0];
        part.signal("STOP");
        std::thread::sleep(Duration::from_millis(100 + random.below(longest)));
        part.signal("CONT");
        std::thread::sleep(Duration::from_millis(random.below(50)));
    }
    let late = probe.worst();
    let mut admitted = vec![0; KEYS as usize];
    let mut longest = Duration::ZERO;
    for (number, part) in parts.into_iter().enumerate() {
        let numbers = part.kill();
        admitted.iter_mut().zip(&numbers).for_each(|(all, one)| *all += one);
        // The calls of the stopped process took as long as its stops.
        if number > 0 {
            longest = longest.max(Duration::from_micros(numbers[LONGEST as usize]));
        }
    }
    println!("the longest call of the others took {longest:?}; the machine was late by {late:?}");
    assert!(
        longest <= TIMEOUT + Duration::from_millis(20) + 2 * late,
        "{longest:?}, on a machine that was late by {late:?}"
    );
    examined_keys(&url, Duration::from_secs(5)).expect("the file is whole");
    let used = used(&url);
    for (key, (noted, used)) in admitted.iter().zip(&used).enumerate() {
        assert!(
            (*noted..=noted + PROCESSES as u64).contains(used),
            "key {key}: {noted} were admitted, and {used} are counted"
        );
    }
}

#[test]
fn a_lock_of_a_living_process_is_waited_for_and_never_taken() {
    let shared = SharedFile::new();
    let url = shared.url("max_bytes=200kB");
    let limiter = limiter(&url);
    limiter.check("5/hour", "k").expect("a decision");
    // The file has one shard: its lock is the first number after the header.
    let file = OpenOptions::new().read(true).write(true).open(shared.path()).expect("the file");
    let mut free = [0; 8];
    file.read_exact_at(&mut free, 4096).expect("a number");
    assert_eq!(free, [0; 8], "no process holds the lock");
    let parent = Part::start(&shared.url("max_bytes=200kB"), &shared.path().with_extension("notes"), 1);
    tidegate_tests::wait::wait_until(Duration::from_secs(20), "the other one is admitted", || parent.numbers()[0] > 0);
    // Only now, because a process that has just been started shows no program yet.
    let mark = mark_of(parent.child.id());
    parent.signal("STOP");
    file.write_all_at(&mark.to_ne_bytes(), 4096).expect("written");
    let began = Instant::now();
    let error = limiter.check("5/hour", "k").expect_err("it is locked");
    assert_eq!(error.code(), "store_timeout", "{error}");
    assert!(error.to_string().contains("may be stopped"), "{error}");
    assert!(began.elapsed() >= TIMEOUT);
    // A call that changes nothing needs no lock.
    assert_eq!(limiter.peek("5/hour", "k", 1).expect("a decision").remaining(), 4);
    parent.kill();
    assert_eq!(limiter.check("5/hour", "k").expect("its lock is free").remaining(), 3);
    examined_keys(&url, Duration::from_secs(5)).expect("the file is whole");
}

#[tokio::test]
async fn a_task_that_waits_for_a_lock_delays_no_other() {
    let shared = SharedFile::new();
    let url = shared.url("max_bytes=200kB");
    let limiter = limiter(&url).to_async();
    limiter.check("5/hour", "k").await.expect("a decision");
    let holder = Part::start(&url, &shared.path().with_extension("notes"), 1);
    let began = || holder.numbers()[..KEYS as usize].iter().sum::<u64>() > 0;
    tidegate_tests::wait::wait_until(Duration::from_secs(20), "the other one is admitted", began);
    let mark = mark_of(holder.child.id());
    holder.signal("STOP");
    let file = OpenOptions::new().read(true).write(true).open(shared.path()).expect("the file");
    file.write_all_at(&mark.to_ne_bytes(), 4096).expect("written");

    // This runtime has one thread: it goes on while the calls wait, and none of them waits for another.
    let began = Instant::now();
    let one = |limiter: AsyncLimiter| async move { limiter.check("5/hour", "k").await };
    let all = |limiter: AsyncLimiter| async move { limiter.check_all([("5/hour", "k", 1), ("6/hour", "k", 1)]).await };
    let mut waiting: Vec<_> = (0..10).map(|_| tokio::spawn(all(limiter.clone()))).collect();
    waiting.push(tokio::spawn(one(limiter.clone())));
    let mut turns = 0;
    while waiting.iter().any(|call| !call.is_finished()) {
        assert_eq!(limiter.peek("5/hour", "k", 1).await.expect("it needs no lock").remaining(), 4);
        tokio::time::sleep(Duration::from_millis(5)).await;
        turns += 1;
    }
    for call in waiting {
        assert_eq!(call.await.expect("a task").expect_err("it is locked").code(), "store_timeout");
    }
    assert!(turns > 2, "{turns} turns of the loop");
    assert!(began.elapsed() < 8 * TIMEOUT, "one after the other: {:?}", began.elapsed());

    // The waiting tasks get the lock of a process that ends.
    let long = Limiter::builder().store(&url).timeout(Duration::from_secs(20)).build_async().expect("a limiter");
    let waiting = [tokio::spawn(one(long.clone())), tokio::spawn(all(long))];
    tokio::time::sleep(Duration::from_millis(20)).await;
    assert!(waiting.iter().all(|call| !call.is_finished()));
    holder.kill();
    for call in waiting {
        assert!(call.await.expect("a task").expect("a decision").allowed());
    }
    assert_eq!(limiter.peek("5/hour", "k", 1).await.expect("a decision").remaining(), 2);
}

/// A thread of a process may hold a lock when another thread begins a program in its place.
#[test]
fn a_lock_is_free_when_its_process_has_become_another_program() {
    let shared = SharedFile::new();
    let limiter = limiter(&shared.url("max_bytes=200kB"));
    limiter.check("5/hour", "k").expect("a decision");
    let mut shell = Command::new("sh")
        .args(["-c", "echo begins; read line; exec sleep 60"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("a shell");
    let mut said = [0; 7];
    shell.stdout.take().expect("a pipe").read_exact(&mut said).expect("it has begun");
    let file = OpenOptions::new().read(true).write(true).open(shared.path()).expect("the file");
    file.write_all_at(&mark_of(shell.id()).to_ne_bytes(), 4096).expect("written");
    let error = limiter.check("5/hour", "k").expect_err("it is locked");
    assert_eq!(error.code(), "store_timeout", "{error}");
    shell.stdin.take().expect("a pipe").write_all(b"go on\n").expect("it reads");
    let program = || fs::read_to_string(format!("/proc/{}/comm", shell.id())).expect("its name");
    tidegate_tests::wait::wait_until(Duration::from_secs(20), "it is another program", || program() == "sleep\n");
    let served = limiter.check("5/hour", "k");
    shell.kill().and_then(|()| shell.wait()).expect("it ends");
    assert_eq!(served.expect("no thread of this program has the lock").remaining(), 3);
    examined_keys(&shared.url("max_bytes=200kB"), Duration::from_secs(5)).expect("the file is whole");
}

/// The mark of a process in the lock of the first shard: a bit, its id, the moment of its start, its program, and its
/// namespace, in a sealed number.
fn mark_of(id: u32) -> u64 {
    let text = fs::read_to_string(format!("/proc/{id}/stat")).expect("its state");
    let fields: Vec<&str> = text.rsplit_once(')').expect("its name").1.split_whitespace().collect();
    let number = |at: usize| fields[at].parse::<u64>().expect("a number");
    let (began, code, stack) = (number(19), number(23), number(25));
    let program = (code.rotate_left(32) ^ stack).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    let link = fs::read_link("/proc/self/ns/pid").expect("a namespace");
    let digits: String = link.to_str().expect("text").chars().filter(char::is_ascii_digit).collect();
    let namespace = digits.parse::<u64>().expect("a number") % 511;
    Salt::at(4096 / 8)
        .seal(1 | u64::from(id) << 1 | (1 + began % 0xff) << 23 | (1 + program % 0xfff) << 31 | namespace << 43)
}
