//! Clients that record calls while a test injects faults.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use tidegate_tests::call_records::{
    CallRecord, Client, ClientProgram, FaultRecord, Language, Loss, Schedule, monotonic, own_limits, policies,
    record_calls, wall,
};
use tidegate_tests::history_check::{ClockReadings, Report, check};
use tidegate_tests::proxy::{Condition, Proxy};
use tidegate_tests::random::Random;
use tidegate_tests::servers::Servers;
use tidegate_tests::setting::setting;
use tidegate_tests::wait::{SetOnDrop, wait_until};

pub(crate) fn schedule(run: &str) -> Schedule {
    Schedule {
        run: run.to_owned(),
        slice: Duration::from_secs(1),
        groups: 13,
        across_policies: true,
        policies: policies().iter().map(|policy| policy.name().to_owned()).collect(),
        own: own_limits(),
    }
}

/// Keys that are in use for longer than a failover takes, and less busy.
pub(crate) fn long_schedule(run: &str) -> Schedule {
    Schedule { slice: Duration::from_secs(6), groups: 65, ..schedule(run) }
}

pub(crate) fn sleep(milliseconds: u64) {
    std::thread::sleep(Duration::from_millis(milliseconds));
}

#[track_caller]
pub(crate) fn until(what: &str, holds: impl FnMut() -> bool) {
    wait_until(Duration::from_secs(30), what, holds);
}

/// The faults of a run, as they are caused.
pub(crate) struct FaultLog {
    faults: Mutex<Vec<FaultRecord>>,
    readings: Mutex<ClockReadings>,
}

impl FaultLog {
    /// Causes a fault and records it.
    pub(crate) fn cause<T>(&self, name: &'static str, loss: Loss, fault: impl FnOnce() -> T) -> T {
        self.read_clocks();
        let begin = monotonic();
        let result = fault();
        self.faults.lock().expect("no fault panicked").push(FaultRecord { name, begin, end: monotonic(), loss });
        self.read_clocks();
        result
    }

    /// The network is in a condition for so many milliseconds.
    pub(crate) fn condition(&self, name: &'static str, proxy: &Proxy, condition: Condition, length: u64) {
        self.cause(name, Loss::Nothing, || {
            proxy.set(condition);
            sleep(length);
            proxy.set(Condition::Healthy);
        });
    }

    /// The only server is killed, and starts again.
    pub(crate) fn killed(&self, servers: &Servers, loss: Loss, length: u64) {
        self.cause("killed", loss, || {
            servers.kill(0);
            sleep(length);
            servers.start_again(0);
        });
    }

    /// The only server does nothing.
    pub(crate) fn stopped(&self, servers: &Servers, length: u64) {
        self.cause("stopped", Loss::Nothing, || {
            servers.stop(0);
            sleep(length);
            servers.cont(0);
        });
    }

    fn read_clocks(&self) {
        let readings = (0..5).map(|_| (monotonic(), wall()));
        self.readings.lock().expect("no fault panicked").extend(readings);
    }
}

/// Clients of this process on a store, blocking and async ones.
pub(crate) fn clients(url: &str, schedule: &Schedule, seed: u64, count: u64) -> Vec<Client> {
    let client = |number: u64| Client {
        name: format!("rust-{number}"),
        url: url.to_owned(),
        timeout: Duration::from_millis(200),
        schedule: schedule.clone(),
        pause: Duration::from_millis(6),
        after_error: schedule.slice / 20,
        seed: seed.wrapping_mul(1_000).wrapping_add(number),
        is_async: number % 2 == 1,
    };
    (0..count).map(client).collect()
}

/// Everything that was recorded.
pub(crate) struct Recorded {
    pub(crate) calls: Vec<CallRecord>,
    pub(crate) faults: Vec<FaultRecord>,
    pub(crate) readings: ClockReadings,
}

impl Recorded {
    pub(crate) fn check(&self, slack: u64) -> Report {
        check(&policies(), &self.calls, &self.faults, &self.readings, slack)
    }
}

/// Runs clients while `inject` causes one fault after the other, for so long.
pub(crate) fn record(
    clients: &[Client],
    languages: &[Language],
    length: Duration,
    seed: u64,
    mut inject: impl FnMut(&FaultLog, &mut Random),
) -> Recorded {
    let log = FaultLog { faults: Mutex::default(), readings: Mutex::default() };
    let over = AtomicBool::new(false);
    let mut random = Random::new(seed);
    let end = Instant::now() + length;
    log.read_clocks();
    let programs: Vec<ClientProgram> =
        languages.iter().map(|language| ClientProgram::start(*language, &clients[0])).collect();
    let mut calls: Vec<CallRecord> = std::thread::scope(|scope| {
        let _stop = SetOnDrop(&over);
        let over = &over;
        let running: Vec<_> = clients
            .iter()
            .map(|client| {
                scope.spawn(move || {
                    let _stop = SetOnDrop(over);
                    record_calls(client, over)
                })
            })
            .collect();
        while Instant::now() < end && !over.load(Ordering::Relaxed) {
            inject(&log, &mut random);
            sleep(random.below(500));
        }
        over.store(true, Ordering::Relaxed);
        let join = |client: std::thread::ScopedJoinHandle<'_, _>| {
            client.join().unwrap_or_else(|fault| std::panic::resume_unwind(fault))
        };
        running.into_iter().flat_map(join).collect()
    });
    calls.extend(programs.into_iter().flat_map(ClientProgram::records));
    log.read_clocks();
    Recorded {
        calls,
        faults: log.faults.into_inner().expect("no fault panicked"),
        readings: log.readings.into_inner().expect("no fault panicked"),
    }
}

/// Fails if no order of calls explains the answers, or if too little was proven.
#[track_caller]
pub(crate) fn assert_explained(report: &Report) {
    println!("{}", report.summary());
    if let Some(first) = report.violations.first() {
        panic!("{}\n{}: {}", report.summary(), first.group, first.what);
    }
    assert!(report.decided_calls > 0, "no call was answered, so nothing was compared");
    assert!(report.undecided * 5 <= report.groups, "too little is proven: {}", report.summary());
}

/// One run after the other: faults in random order, each kind once before any comes again.
pub(crate) struct Soak {
    name: String,
    clients: Vec<Client>,
    kinds: u64,
    seed: u64,
    /// See [`check`].
    slack: u64,
}

/// One at a time: their times add up to the time that was set.
static ALONE: Mutex<()> = Mutex::new(());

impl Soak {
    pub(crate) fn new(name: &str, url: &str, schedule: Schedule, kinds: u64) -> Self {
        let seed = setting("TIDEGATE_SEED").unwrap_or_else(|| u64::from(std::process::id()));
        println!("{name}: seed {seed}");
        Self { name: name.to_owned(), clients: clients(url, &schedule, seed, 6), kinds, seed, slack: 0 }
    }

    pub(crate) fn with_slack(self, slack: u64) -> Self {
        Self { slack, ..self }
    }

    /// Runs for the time that was set, a quarter of it for each of the four arrangements of servers, or for `seconds`. Long
    /// runs are cut into pieces, so that records do not fill the memory.
    pub(crate) fn run(&mut self, seconds: u64, mut inject: impl FnMut(u64, &FaultLog, &mut Random)) {
        let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let mut left: Vec<u64> = Vec::new();
        let length = Duration::from_secs(setting("TIDEGATE_SOAK").map_or(seconds, |all| all / 4));
        let end = Instant::now() + length;
        while let rest = end.saturating_duration_since(Instant::now())
            && !rest.is_zero()
        {
            self.seed = self.seed.wrapping_add(1);
            for client in &mut self.clients {
                client.seed = client.seed.wrapping_add(100);
                // Keys of the piece before may have usage that the records of this piece do not show.
                client.schedule.run = format!("{}-{}", self.name, self.seed);
            }
            let piece = rest.min(Duration::from_secs(30));
            let recorded = record(&self.clients, &Language::wanted(), piece, self.seed, |log, random| {
                if left.is_empty() {
                    left = (0..self.kinds).collect();
                }
                let kind = left.swap_remove(random.below(left.len() as u64) as usize);
                inject(kind, log, random);
            });
            let (monotonic, wall) = recorded.readings[0];
            for fault in &recorded.faults {
                let at = |time: u64| wall + (time - monotonic) / 1_000;
                println!("{} to {}: {}", at(fault.begin), at(fault.end), fault.name);
            }
            assert_explained(&recorded.check(self.slack));
        }
    }
}
