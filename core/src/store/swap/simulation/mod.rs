//! Processes on a store in memory, over a network that loses, delays, repeats and reorders, under a virtual clock.
//!
//! `TIDEGATE_SCHEDULES` sets the number of schedules to run, `TIDEGATE_SCHEDULE` a single one.

mod fairness;
mod model;
mod store;

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{CallId, ChangeSet, Event, Io, Promises, SwapMachine};
use crate::error::{Error, ErrorKind};
use crate::plan::Plan;
use crate::plan::plan_cache::plan_of;
use crate::policy::Policy;
use crate::random::Random;
use crate::schedules::{run_each, setting};
use crate::store::key_names::KeyNames;
use crate::store::key_value_store::DEFAULT_MAX_VALUE;
use crate::store::request::{Entry, Operation, OwnedEntry};
use crate::store::stored_key::StoredKey;
use store::Store;

const SCHEDULES: u64 = 20_000;
/// The clock of the store when a schedule begins, in microseconds since 1970.
const START: u64 = 1_704_067_200_000_000;
const TIMEOUT: Duration = Duration::from_millis(250);

enum Message {
    Read { keys: Vec<StoredKey>, locks: bool },
    Swap { sets: Vec<ChangeSet>, locked: Option<CallId> },
}

/// An event of the simulated world.
enum Occurrence {
    /// A question reaches the store. Its answer goes back unless it is lost.
    Arrives {
        process: usize,
        call: CallId,
        message: Arc<Message>,
        is_heard: bool,
    },
    /// An answer reaches its process, or its time is over.
    Returns {
        process: usize,
        call: CallId,
        event: Event,
    },
    Submits {
        process: usize,
    },
    /// A stopped process goes on.
    Resumes {
        process: usize,
    },
}

struct Process {
    machine: SwapMachine<usize>,
    is_stopped: bool,
    /// The events that came while it was stopped.
    missed: Vec<(CallId, Event)>,
}

/// A call of a user.
struct UserCall {
    cost: u64,
    keys: usize,
    submitted: u64,
    deadline: Duration,
    answers: u32,
}

struct World {
    random: Random,
    base: Instant,
    now: Duration,
    store: Store,
    processes: Vec<Process>,
    queue: Vec<(Duration, u64, Occurrence)>,
    order: u64,
    calls: Vec<UserCall>,
    plan: Arc<Plan>,
    limit: u64,
    left: usize,
    /// The units of calls that were admitted, and of those whose outcome is unknown, by key.
    done: [u64; KEYS.len()],
    unknown: [u64; KEYS.len()],
}

const KEYS: [&str; 3] = ["hot", "warm", "cold"];

impl World {
    fn new(seed: u64, base: Instant) -> Self {
        let mut random = Random::new(seed);
        let limit = 5 + random.below(60);
        let algorithm = ["fixed-window", "sliding-window", "sliding-log"][random.below(3) as usize];
        let policy = Policy::parse(&format!("{algorithm} {limit}/hour")).expect("a policy");
        let marks_are_versions = random.chance(700);
        let promises = Promises { marks_are_versions, locks: random.chance(500), max_value: DEFAULT_MAX_VALUE };
        let process = |seed: u64| {
            let mut marks = Random::new(seed);
            let make_mark = Box::new(move || marks.next().to_le_bytes());
            Process { machine: SwapMachine::new(promises, 2, make_mark), is_stopped: false, missed: Vec::new() }
        };
        let count = 1 + random.below(4);
        let processes = (0..count).map(|number| process(seed ^ (number + 1) << 40)).collect();
        let left = 10 + random.below(60) as usize;
        let mut world = Self {
            random,
            base,
            now: Duration::ZERO,
            store: Store::default(),
            processes,
            queue: Vec::new(),
            order: 0,
            calls: Vec::new(),
            plan: plan_of(&policy),
            limit,
            left,
            done: [0; KEYS.len()],
            unknown: [0; KEYS.len()],
        };
        for process in 0..world.processes.len() {
            world.at(Duration::ZERO, Occurrence::Submits { process });
        }
        world
    }

    fn at(&mut self, after: Duration, what: Occurrence) {
        self.order += 1;
        self.queue.push((self.now + after, self.order, what));
    }

    fn clock(&self) -> u64 {
        START + self.now.as_micros() as u64
    }

    fn delay(&mut self) -> Duration {
        let most = if self.random.chance(50) { 400_000 } else { 3_000 };
        Duration::from_micros(50 + self.random.below(most))
    }

    fn run(mut self) {
        for _ in 0..200_000 {
            let next = self.queue.iter().enumerate().min_by_key(|(_, (at, order, _))| (*at, *order)).map(|(at, _)| at);
            let wakes = self.wakes();
            match next.map(|index| (index, self.queue[index].0)) {
                Some((index, at)) if wakes.is_none_or(|(wake, _)| at <= wake) => {
                    let (at, _, what) = self.queue.swap_remove(index);
                    self.now = self.now.max(at);
                    self.happens(what);
                }
                _ => match wakes {
                    Some((wake, process)) => {
                        self.now = self.now.max(wake);
                        self.poll(process);
                    }
                    None => return self.check(),
                },
            }
        }
        panic!("a schedule without an end");
    }

    /// The first moment at which a process wants to be asked.
    fn wakes(&mut self) -> Option<(Duration, usize)> {
        let (base, now) = (self.base, self.now);
        let mut first = None;
        for (number, process) in self.processes.iter_mut().enumerate().filter(|(_, process)| !process.is_stopped) {
            if process.machine.is_idle() {
                continue;
            }
            // A machine with a question to ask was polled until it had none.
            if let Some(at) = process.machine.next_moment(base + now) {
                let at = at.saturating_duration_since(base);
                if first.is_none_or(|(known, _)| at < known) {
                    first = Some((at, number));
                }
            }
        }
        first
    }

    fn happens(&mut self, what: Occurrence) {
        match what {
            Occurrence::Submits { process } => self.submits(process),
            Occurrence::Resumes { process } => {
                self.processes[process].is_stopped = false;
                for (call, event) in std::mem::take(&mut self.processes[process].missed) {
                    self.processes[process].machine.handle(call, event, self.base + self.now);
                }
                self.poll(process);
            }
            Occurrence::Arrives { process, call, message, is_heard } => {
                let clock = self.clock();
                let event = match &*message {
                    Message::Read { keys, locks: true } if !self.store.locks(keys, (process, call), clock) => {
                        let arrives = Occurrence::Arrives { process, call, message, is_heard };
                        return self.at(Duration::from_millis(1), arrives);
                    }
                    Message::Read { keys, .. } => self.store.read(keys, clock),
                    Message::Swap { sets, locked } => {
                        self.store.swap(sets, locked.map(|locked| (process, locked)), clock)
                    }
                };
                if is_heard {
                    let after = self.delay();
                    self.at(after, Occurrence::Returns { process, call, event });
                }
            }
            Occurrence::Returns { process, call, event } => {
                if self.processes[process].is_stopped {
                    self.processes[process].missed.push((call, event));
                } else {
                    self.processes[process].machine.handle(call, event, self.base + self.now);
                    self.poll(process);
                }
            }
        }
    }

    fn submits(&mut self, process: usize) {
        if self.left == 0 {
            return;
        }
        if !self.processes[process].is_stopped {
            self.left -= 1;
            let cost = 1 + self.random.below(3);
            let first = if self.random.chance(700) { 0 } else { self.random.below(3) as usize };
            let keys = if self.random.chance(250) { 0b111 ^ 1 << self.random.below(3) } else { 1 << first };
            let of_call = KEYS.iter().enumerate().filter(|(key, _)| keys & 1 << key != 0);
            let entries: Vec<_> = of_call.map(|(_, key)| entry_of(&self.plan, key, cost)).collect();
            let (together, number) = (entries.len() > 1, self.calls.len());
            let call = UserCall { cost, keys, submitted: self.clock(), deadline: self.now + TIMEOUT, answers: 0 };
            self.calls.push(call);
            let deadline = self.base + self.now + TIMEOUT;
            self.processes[process].machine.submit(entries, together, None, deadline, number);
            self.poll(process);
        }
        let after = Duration::from_micros(self.random.below(4_000));
        self.at(after, Occurrence::Submits { process });
        if self.random.chance(20) && !self.processes[process].is_stopped {
            // Also in the midst of a read and its swap.
            self.processes[process].is_stopped = true;
            let after = Duration::from_micros(self.random.below(3_000_000));
            self.at(after, Occurrence::Resumes { process });
        }
    }

    fn poll(&mut self, process: usize) {
        loop {
            let now = self.base + self.now;
            let io = self.processes[process].machine.poll_io(now);
            let (call, message, deadline) = match io {
                Io::Read { call, keys, locks, deadline, .. } => (call, Message::Read { keys, locks }, deadline),
                Io::Swap { call, sets, locked, deadline } => (call, Message::Swap { sets, locked }, deadline),
                Io::WaitUntil(at) => {
                    assert!(at > now, "it waits for a moment that is to come");
                    break;
                }
                Io::Idle => break,
            };
            let deadline = deadline.saturating_duration_since(now);
            if self.random.chance(10) {
                let error = Error::new(ErrorKind::StoreUnavailable, "refused");
                self.at(Duration::from_micros(90), Occurrence::Returns { process, call, event: Event::NotRun(error) });
                continue;
            }
            let (message, is_lost, is_heard) = (Arc::new(message), self.random.chance(30), !self.random.chance(30));
            if !is_lost {
                let after = self.delay();
                let arrives = |is_heard| Occurrence::Arrives { process, call, message: Arc::clone(&message), is_heard };
                self.at(after, arrives(is_heard));
                // A message may arrive again. Its answer is that to the first arrival.
                if self.random.chance(20) {
                    let again = self.delay();
                    self.at(after + again, arrives(false));
                }
            }
            // Its owner gives up at the deadline. An answer that comes later is to a call that is known no more.
            let error = Error::new(ErrorKind::StoreTimeout, "no answer in time");
            self.at(deadline, Occurrence::Returns { process, call, event: Event::Unknown(error) });
        }
        self.take_answers(process);
    }

    fn take_answers(&mut self, process: usize) {
        for (number, answers) in self.processes[process].machine.take_completed() {
            let clock = self.clock();
            let call = &mut self.calls[number];
            call.answers += 1;
            assert_eq!(call.answers, 1, "a call is answered once");
            let units = |key: usize| if call.keys & 1 << key == 0 { 0 } else { call.cost };
            match answers {
                Ok(answers) => {
                    assert_eq!(answers.len(), call.keys.count_ones() as usize);
                    let applied = answers.iter().all(|answer| answer.applied);
                    assert!(applied || answers.iter().all(|answer| answer.granted == 0), "all or none");
                    for answer in &answers {
                        // A process knows the clock of the store as of the last answer, and the slack bounds the difference.
                        assert!(
                            call.submitted <= answer.now + 20_000 && answer.now <= clock,
                            "decided between call and answer"
                        );
                    }
                    for key in 0..KEYS.len() {
                        self.done[key] += if applied { units(key) } else { 0 };
                    }
                }
                Err(error) if error.did_not_run() => {}
                Err(_) => {
                    for key in 0..KEYS.len() {
                        self.unknown[key] += units(key);
                    }
                }
            }
        }
    }

    /// Every call was answered, and the store has the units of those that were admitted.
    fn check(mut self) {
        // The messages on the way arrive.
        while let Some((_, _, what)) = self.queue.pop() {
            if let Occurrence::Arrives { process, message, .. } = what
                && let Message::Swap { sets, locked } = &*message
            {
                let clock = self.clock();
                self.store.swap(sets, locked.map(|locked| (process, locked)), clock);
            }
        }
        for call in &self.calls {
            assert_eq!(call.answers, 1, "a call has no answer");
            assert!(call.deadline <= self.now + TIMEOUT + Duration::from_secs(4));
        }
        for (key, name) in KEYS.iter().enumerate() {
            let used = self.store.used(&self.plan, name, self.clock());
            let (done, unknown) = (self.done[key] as i64, self.unknown[key] as i64);
            assert!(used <= self.limit as i64, "{name}: {used} of {}", self.limit);
            assert!(done <= used && used <= done + unknown, "{name}: {used} units, {done} done, {unknown} unknown");
        }
    }
}

fn entry_of(plan: &Arc<Plan>, key: &str, cost: u64) -> (OwnedEntry, StoredKey) {
    let entry = Entry { plan, key, operation: Operation::check(cost) };
    (OwnedEntry::from(&entry), StoredKey::new(&KeyNames::from("sim"), plan.policy.name(), key))
}

fn run(seed: u64) {
    let outcome = std::panic::catch_unwind(|| World::new(seed, Instant::now()).run());
    if let Err(panic) = outcome {
        eprintln!("the schedule of seed {seed} failed; run it alone with TIDEGATE_SCHEDULE={seed}");
        std::panic::resume_unwind(panic);
    }
}

#[test]
fn every_group_is_applied_once_or_not_at_all() {
    if let Some(seed) = setting("TIDEGATE_SCHEDULE") {
        return run(seed);
    }
    run_each(setting("TIDEGATE_SCHEDULES").unwrap_or(SCHEDULES), 3, run);
}
