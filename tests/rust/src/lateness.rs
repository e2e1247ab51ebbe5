//! Controls for tests that judge time: how late this machine wakes a sleeping thread, and how late a server answers a bare
//! socket, both while the code under test runs. A busy machine adds a tenth of a second at times, which is no property of that
//! code.

use std::collections::{HashMap, VecDeque};
use std::ffi::OsString;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::wait::wait_until;

/// Threads that measure: each sleeps for a short time, again and again, and notes how much longer it slept.
const THREADS: usize = 4;
const SLEEP: Duration = Duration::from_millis(2);

/// The interval at which the probe asks the kernel how long threads have waited for a processor, and the number of
/// intervals in a window. A thread that has used its share of a busy processor waits for up to a fifth of a second,
/// while threads that only sleep wake in time.
const WAITS: Duration = Duration::from_millis(50);
const WINDOW: usize = 6;

/// Measures from its start on.
pub struct LatenessProbe {
    over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<Vec<Duration>>>,
    waits: Option<JoinHandle<Vec<(Instant, Duration)>>>,
}

impl LatenessProbe {
    /// Starts to measure.
    #[must_use]
    pub fn start() -> Self {
        let over = Arc::new(AtomicBool::new(false));
        let threads = (0..THREADS).map(|_| {
            let over = Arc::clone(&over);
            std::thread::spawn(move || {
                let mut late = Vec::new();
                while !over.load(Ordering::Relaxed) {
                    let began = Instant::now();
                    std::thread::sleep(SLEEP);
                    late.push(began.elapsed().saturating_sub(SLEEP));
                }
                late
            })
        });
        let is_over = Arc::clone(&over);
        Self { threads: threads.collect(), waits: Some(std::thread::spawn(move || longest_waits(&is_over))), over }
    }

    /// Every measured lateness, and for each window its end and the longest time that a thread of this process has
    /// waited for a processor.
    #[must_use]
    pub fn all(mut self) -> (Vec<Duration>, Vec<(Instant, Duration)>) {
        self.over.store(true, Ordering::Relaxed);
        let late = self.threads.drain(..).flat_map(|thread| thread.join().expect("no panic")).collect();
        let wait = self.waits.take().map(|thread| thread.join().expect("no panic"));
        (late, wait.unwrap_or_default())
    }

    /// The largest lateness that was measured.
    #[must_use]
    pub fn worst(self) -> Duration {
        let (late, waits) = self.all();
        late.into_iter().chain(waits.into_iter().map(|(_, wait)| wait)).max().unwrap_or_default()
    }
}

impl Drop for LatenessProbe {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
    }
}

/// The longest that a thread of this process has waited for a processor within each window.
fn longest_waits(is_over: &AtomicBool) -> Vec<(Instant, Duration)> {
    let (mut longest, mut samples) = (Vec::new(), VecDeque::from([waited()]));
    loop {
        let ends = is_over.load(Ordering::Relaxed);
        let now = waited();
        let grown = |(thread, waited): (&OsString, &Duration)| {
            waited.saturating_sub(samples[0].get(thread).copied().unwrap_or_default())
        };
        longest.push((Instant::now(), now.iter().map(grown).max().unwrap_or_default()));
        if ends {
            return longest;
        }
        samples.push_back(now);
        if samples.len() > WINDOW {
            samples.pop_front();
        }
        std::thread::sleep(WAITS);
    }
}

/// The time that each thread has waited for a processor. Empty if the kernel does not count it.
fn waited() -> HashMap<OsString, Duration> {
    let Ok(threads) = std::fs::read_dir("/proc/self/task") else { return HashMap::new() };
    let waited = |thread: std::fs::DirEntry| {
        let counted = std::fs::read_to_string(thread.path().join("schedstat")).ok()?;
        let nanoseconds = counted.split_whitespace().nth(1)?.parse().ok()?;
        Some((thread.file_name(), Duration::from_nanos(nanoseconds)))
    };
    threads.flatten().filter_map(waited).collect()
}

/// A bare client of a server: a socket on which it sends PING again and again, and connects again when no answer comes.
/// A client of a healthy server waits as long as this one does at the same moment.
pub struct BareClient {
    over: Arc<AtomicBool>,
    exchanges: Arc<Mutex<Vec<Exchange>>>,
    thread: Option<JoinHandle<()>>,
}

/// One PING, with the connection that it may need.
#[derive(Clone, Copy)]
struct Exchange {
    began: Instant,
    ended: Instant,
    answered: bool,
}

impl BareClient {
    /// Starts to send to a port of this machine. An answer that takes longer than `patience` does not come any more.
    #[must_use]
    pub fn start(port: u16, patience: Duration) -> Self {
        let (over, exchanges) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(Vec::new())));
        let (is_over, noted) = (Arc::clone(&over), Arc::clone(&exchanges));
        let thread = std::thread::spawn(move || {
            let mut connection = None;
            while !is_over.load(Ordering::Relaxed) {
                let began = Instant::now();
                connection = exchange(connection, port, patience).ok();
                let exchange = Exchange { began, ended: Instant::now(), answered: connection.is_some() };
                noted.lock().expect("no panic").push(exchange);
                std::thread::sleep(SLEEP);
            }
        });
        Self { over, exchanges, thread: Some(thread) }
    }

    /// The longest exchange that was under way in this time.
    #[must_use]
    pub fn longest(&self, from: Instant, to: Instant) -> Duration {
        let exchanges = self.exchanges.lock().expect("no panic");
        let overlapping = exchanges.iter().filter(|one| one.began <= to && one.ended >= from);
        overlapping.map(|one| one.ended - one.began).max().unwrap_or_default()
    }

    /// The time from a moment to the answer to an exchange that began after it. It waits for such an answer.
    #[must_use]
    pub fn first_answer(&self, since: Instant) -> Duration {
        let answer = || {
            let exchanges = self.exchanges.lock().expect("no panic");
            exchanges.iter().find(|one| one.answered && one.began >= since).map(|one| one.ended)
        };
        wait_until(Duration::from_secs(30), "a bare client is answered", || answer().is_some());
        answer().expect("an answer").duration_since(since)
    }
}

impl Drop for BareClient {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}

fn exchange(connection: Option<TcpStream>, port: u16, patience: Duration) -> std::io::Result<TcpStream> {
    let mut connection = match connection {
        Some(connection) => connection,
        None => TcpStream::connect(("127.0.0.1", port))?,
    };
    connection.set_read_timeout(Some(patience))?;
    connection.write_all(b"PING\r\n")?;
    // Any answer will do, because the server may want a password first.
    let mut answer = [0; 512];
    match connection.read(&mut answer)? {
        0 => Err(ErrorKind::UnexpectedEof.into()),
        _ => Ok(connection),
    }
}

/// Judges a recovery by a bare client and by bare threads on this machine at the same moment.
pub struct RecoveryControl {
    since: Instant,
    probe: LatenessProbe,
    client: BareClient,
}

impl RecoveryControl {
    /// Begins when a server is well again, or just before.
    #[must_use]
    pub fn start(port: u16) -> Self {
        let (probe, client) = (LatenessProbe::start(), BareClient::start(port, Duration::from_millis(250)));
        Self { since: Instant::now(), probe, client }
    }

    /// Checks that a recovery that is over now took at most a second longer than that of the bare client.
    ///
    /// # Panics
    /// When it took longer.
    #[track_caller]
    pub fn judge(self, what: &str) {
        let took = self.since.elapsed();
        let (bare, late) = (self.client.first_answer(self.since), self.probe.worst());
        println!("{what}: back after {took:?}, a bare client after {bare:?}; threads were late by {late:?}");
        assert!(
            took < Duration::from_secs(1) + bare + 2 * late,
            "{what}: {took:?}, where a bare client took {bare:?} and threads were late by {late:?}"
        );
    }
}
