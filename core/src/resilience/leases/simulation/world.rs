//! One history: processes, a store, and a virtual time that only events move.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::process::lock::Mutex;
use crate::random::Random;

use super::Leases;
use crate::error::{Error, ErrorKind, Result};
use crate::plan::Plan;
use crate::process::clock::ManualClock;
use crate::process::log::Log;
use crate::resilience::layer::Layered;
use crate::resilience::layer::submit_then;
use crate::resilience::stub_store::{Message, StubStore};
use crate::store::ForgottenDenials;
use crate::store::Store;
use crate::store::call_context::CallContext;
use crate::store::completion::{Completion, wake};
use crate::store::memory::Memory;
use crate::store::request::{Answer, Entry, Operation, OwnedEntry, Source};
use crate::store::url::MemoryBounds;

/// When a history begins: the store's time in microseconds.
const START: u64 = 1_700_000_000_000_000;
/// The timeout of a call.
const TIMEOUT: u64 = 150_000;
/// A clock is wrong by at most so many ten thousandths of a time that it measures.
const DRIFT: i64 = 100;

/// Units that a caller was admitted for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Admission {
    pub(super) at: u64,
    pub(super) units: u64,
}

/// The result of a history.
#[derive(Default)]
pub(super) struct Report {
    pub(super) admissions: Vec<Admission>,
    /// For each limit, the times when the store opened a window.
    pub(super) windows: Vec<Vec<u64>>,
    pub(super) checks: u64,
    pub(super) admitted: u64,
    pub(super) leased: u64,
    pub(super) given_back: u64,
    pub(super) lost: u64,
    pub(super) killed: u64,
}

impl Report {
    pub(super) fn add(&mut self, other: Self) {
        self.checks += other.checks;
        self.admitted += other.admitted;
        self.leased += other.leased;
        self.given_back += other.given_back;
        self.lost += other.lost;
        self.killed += other.killed;
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { checks, admitted, leased, given_back, lost, killed, .. } = self;
        write!(f, "{checks} checks, {admitted} admitted, {leased} of them leased, {given_back} blocks given back, ")?;
        write!(f, "{lost} messages lost, {killed} processes killed")
    }
}

struct Process {
    network: Arc<StubStore>,
    leases: Arc<Leases>,
    store: Arc<dyn Store>,
    clock: Arc<ManualClock>,
    /// When it was started, its clock then, and how much faster it is, in ten thousandths.
    started: u64,
    shown: u64,
    faster: i64,
    /// It does nothing until then.
    paused_until: u64,
    killed: bool,
}

impl Process {
    fn new(now: u64, random: &mut Random) -> Self {
        let shown = START - 1_000_000_000 + random.below(2_000_000_000);
        let clock = Arc::new(ManualClock::new(Duration::from_micros(shown)));
        let network = Arc::new(StubStore::default());
        let below = Arc::clone(&network) as Arc<dyn Store>;
        let leases = Leases::new(Arc::clone(&below), Duration::ZERO, Some(Arc::clone(&clock)));
        let store = Layered::around(Arc::clone(&leases), below);
        let faster = random.below(2 * DRIFT as u64 + 1) as i64 - DRIFT;
        Self { network, leases, store, clock, started: now, shown, faster, paused_until: 0, killed: false }
    }

    fn set_clock(&self, now: u64) {
        let elapsed = (now - self.started) as i64;
        let shown = self.shown.saturating_add_signed(elapsed + elapsed * self.faster / 10_000);
        self.clock.set(Duration::from_micros(shown));
        self.leases.expire();
    }
}

enum Event {
    /// A process makes a check.
    Check(usize),
    /// A message arrives at the store.
    Arrives(usize, OwnedEntry, Option<Completion<Answer>>),
    /// A reply arrives at its process.
    Replies(usize, Completion<Answer>, Result<Answer>),
    /// Time passes for a process that makes no check.
    Tick(usize),
}

pub(super) struct World {
    plan: Arc<Plan>,
    random: Random,
    now: u64,
    memory: Memory,
    processes: Vec<Process>,
    events: BTreeMap<u64, Event>,
    order: BinaryHeap<Reverse<(u64, u64)>>,
    numbered: u64,
    /// About how many microseconds pass between two checks of a process.
    pace: u64,
    report: Report,
}

impl World {
    pub(super) fn new(plan: &Arc<Plan>, seed: u64) -> Self {
        let mut random = Random::new(seed.wrapping_mul(0x2545_f491_4f6c_dd1d));
        let memory = Memory::new(MemoryBounds::default(), ForgottenDenials::shared(&Log::new(None)));
        let count = 1 + random.below(4);
        let now = START + random.below(10_000_000);
        let processes = (0..count).map(|_| Process::new(now, &mut random)).collect();
        let pace = [200, 800, 3_000][random.below(3) as usize];
        let report = Report { windows: vec![Vec::new(); plan.rules.len()], ..Report::default() };
        Self {
            plan: Arc::clone(plan),
            random,
            now,
            memory,
            processes,
            events: BTreeMap::new(),
            order: BinaryHeap::new(),
            numbered: 0,
            pace,
            report,
        }
    }

    fn schedule(&mut self, after: u64, event: Event) {
        self.numbered += 1;
        self.events.insert(self.numbered, event);
        self.order.push(Reverse((self.now + after, self.numbered)));
    }

    pub(super) fn run(mut self) -> Report {
        let end = self.now + 4_000_000;
        for process in 0..self.processes.len() {
            self.schedule(0, Event::Check(process));
        }
        while let Some(Reverse((at, number))) = self.order.pop() {
            if at > end {
                break;
            }
            self.now = at;
            if let Some(event) = self.events.remove(&number) {
                self.happen(event);
            }
        }
        self.report
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Check(process) => self.check(process),
            Event::Tick(process) => self.turn(process, |_| ()),
            Event::Arrives(process, entry, completion) => self.arrives(process, &entry, completion),
            Event::Replies(process, completion, result) => {
                let paused_until = self.processes[process].paused_until;
                if paused_until > self.now {
                    return self.schedule(paused_until - self.now, Event::Replies(process, completion, result));
                }
                if !self.processes[process].killed {
                    self.turn(process, |_| wake(completion(result)));
                }
            }
        }
    }

    /// A process runs for a moment, and its messages leave.
    fn turn(&mut self, process: usize, run: impl FnOnce(&Process)) {
        let its = &self.processes[process];
        its.set_clock(self.now);
        run(its);
        let messages: Vec<Message> = its.network.outgoing.lock().drain(..).collect();
        for Message { entry, completion } in messages {
            let delay =
                if self.random.below(100) < 3 { self.random.below(2_000_000) } else { 100 + self.random.below(2_000) };
            if self.random.below(100) < 3 {
                self.report.lost += 1;
                self.schedule(TIMEOUT, Event::Replies(process, completion, Err(lost())));
            } else {
                self.schedule(delay, Event::Arrives(process, entry, Some(completion)));
            }
        }
    }

    fn check(&mut self, process: usize) {
        let pace = self.pace;
        if self.processes[process].killed {
            // Another one takes its place.
            self.processes[process] = Process::new(self.now, &mut self.random);
        }
        if self.processes[process].paused_until > self.now {
            let after = self.processes[process].paused_until - self.now;
            return self.schedule(after, Event::Check(process));
        }
        match self.random.below(4_000) {
            0 => {
                self.report.killed += 1;
                self.processes[process].killed = true;
            }
            1..=4 => self.processes[process].paused_until = self.now + self.random.below(1_500_000),
            _ => {}
        }
        let cost = if self.random.below(100) < 90 { 1 } else { 1 + self.random.below(9) };
        let (plan, now) = (Arc::clone(&self.plan), self.now);
        let answers: Arc<Mutex<Vec<Answer>>> = Arc::default();
        let told = Arc::clone(&answers);
        self.turn(process, move |its| {
            let operation = Operation::check(cost);
            let entry = Entry { plan: &plan, key: "k", operation };
            let context = CallContext::at(Some(its.clock.micros()));
            wake(submit_then(&its.store, &entry, context, move |result| {
                told.lock().extend(result.ok());
                None
            }));
        });
        self.report.checks += 1;
        // Admissions of the store are counted there, because the answer may come later, or never.
        for answer in answers.lock().drain(..).filter(|answer| answer.source == Source::Lease) {
            self.report.leased += 1;
            self.admit(now, answer.granted);
        }
        // After a while without checks all units that are left go back.
        let rest = self.random.below(100) < 1 && self.random.below(100) < 20;
        let after = if rest { 1_200_000 } else { 1 + self.random.below(2 * pace) };
        if rest {
            self.schedule(1_100_000, Event::Tick(process));
        }
        self.schedule(after, Event::Check(process));
    }

    fn admit(&mut self, at: u64, units: u64) {
        self.report.admitted += 1;
        self.report.admissions.push(Admission { at, units });
    }

    /// Does the operation of a message in the store, and replies unless the reply is lost.
    fn arrives(&mut self, process: usize, entry: &OwnedEntry, completion: Option<Completion<Answer>>) {
        let answer = self.memory.answer(&entry.entry(), Some(self.now));
        match &entry.operation {
            Operation::Check { .. } if answer.applied => self.admit(self.now, answer.granted),
            Operation::GiveBack { .. } => self.report.given_back += 1,
            _ => {}
        }
        for (index, view) in answer.views.iter().enumerate() {
            let period = self.plan.policy.limits()[index].period().micros();
            let opened = view.resets_at.saturating_sub(period);
            if self.report.windows[index].last() != Some(&opened) {
                self.report.windows[index].push(opened);
            }
        }
        let Some(completion) = completion else { return };
        if self.random.below(100) < 3 {
            self.report.lost += 1;
            return self.schedule(TIMEOUT, Event::Replies(process, completion, Err(lost())));
        }
        let delay =
            if self.random.below(100) < 3 { self.random.below(2_000_000) } else { 100 + self.random.below(2_000) };
        self.schedule(delay, Event::Replies(process, completion, Ok(answer)));
    }
}

fn lost() -> Error {
    Error::new(ErrorKind::StoreTimeout, "the simulation lost a message")
}
