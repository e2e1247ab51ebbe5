//! Processes that share one key of a store with locks, under a virtual clock: one that is far away gets its turns.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use super::store::Store;
use super::{KEYS, Message, START, entry_of};
use crate::plan::plan_cache::plan_of;
use crate::policy::Policy;
use crate::random::Random;
use crate::store::key_value_store::DEFAULT_MAX_VALUE;
use crate::store::swap::{CallId, Event, Io, Promises, SwapMachine};

/// The server runs one statement at a time.
const STATEMENT: Duration = Duration::from_micros(500);
const NEAR: Duration = Duration::from_micros(100);
const FAR: Duration = Duration::from_millis(5);
const LENGTH: Duration = Duration::from_secs(2);
const TIMEOUT: Duration = Duration::from_secs(1);

enum Step {
    Arrives(usize, CallId, Message),
    Returns(usize, CallId, Event),
}

#[derive(Default)]
struct Server {
    store: Store,
    busy_until: Duration,
    /// The reads that wait for a lock, in the order in which they came.
    line: VecDeque<(usize, CallId, Message)>,
    steps: BTreeMap<(Duration, u64), Step>,
    order: u64,
}

impl Server {
    fn at(&mut self, moment: Duration, step: Step) {
        self.order += 1;
        self.steps.insert((moment, self.order), step);
    }

    /// Runs a statement. Its answer needs `away`.
    fn runs(&mut self, now: Duration, away: Duration, (process, call, message): (usize, CallId, Message)) {
        let clock = START + now.as_micros() as u64;
        self.busy_until = self.busy_until.max(now) + STATEMENT;
        let event = match &message {
            Message::Read { keys, locks } => {
                if *locks && !self.store.locks(keys, (process, call), clock) {
                    return self.line.push_back((process, call, message));
                }
                self.store.read(keys, clock)
            }
            Message::Swap { sets, locked } => {
                let event = self.store.swap(sets, locked.map(|locked| (process, locked)), clock);
                if locked.is_some()
                    && let Some((process, call, message)) = self.line.pop_front()
                {
                    self.at(self.busy_until, Step::Arrives(process, call, message));
                }
                event
            }
        };
        self.at(self.busy_until + away, Step::Returns(process, call, event));
    }
}

/// The calls that each process gets answered. Each has one under way, and is so far from the server.
fn answered(away: &[Duration]) -> Vec<u32> {
    let (base, mut now, mut server) = (Instant::now(), Duration::ZERO, Server::default());
    let plan = plan_of(&Policy::parse("sliding-window 1000000/hour").expect("a policy"));
    let promises = Promises { marks_are_versions: true, locks: true, max_value: DEFAULT_MAX_VALUE };
    let mut machines: Vec<SwapMachine<()>> = Vec::new();
    for seed in 0..away.len() as u64 {
        let mut marks = Random::new(seed + 1);
        machines.push(SwapMachine::new(promises, 2, Box::new(move || marks.next().to_le_bytes())));
    }
    let mut counts = vec![0; away.len()];
    while now < LENGTH {
        for (process, machine) in machines.iter_mut().enumerate() {
            loop {
                if machine.is_idle() {
                    let deadline = base + now + TIMEOUT;
                    machine.submit(vec![entry_of(&plan, KEYS[0], 1)], false, None, deadline, ());
                }
                let (call, message) = match machine.poll_io(base + now) {
                    Io::Read { call, keys, locks, .. } => (call, Message::Read { keys, locks }),
                    Io::Swap { call, sets, locked, .. } => (call, Message::Swap { sets, locked }),
                    Io::WaitUntil(_) | Io::Idle => break,
                };
                server.at(now + NEAR, Step::Arrives(process, call, message));
            }
        }
        let moments = machines.iter().filter_map(|machine| machine.next_moment(base + now));
        let wakes = moments.map(|at| at.saturating_duration_since(base)).min();
        let next = server.steps.first_key_value().map(|((at, _), _)| *at);
        now = now.max(wakes.into_iter().chain(next).min().expect("something comes"));
        let Some(step) = server.steps.first_entry().filter(|first| first.key().0 <= now) else { continue };
        match step.remove() {
            Step::Arrives(process, call, message) if server.busy_until > now => {
                server.at(server.busy_until, Step::Arrives(process, call, message));
            }
            Step::Arrives(process, call, message) => server.runs(now, away[process], (process, call, message)),
            Step::Returns(process, call, event) => {
                machines[process].handle(call, event, base + now);
                for ((), answer) in machines[process].take_completed() {
                    answer.expect("no call fails");
                    counts[process] += 1;
                }
            }
        }
    }
    counts
}

#[test]
fn a_far_process_keeps_a_third_of_its_rate_beside_five_near_ones() {
    let alone = answered(&[FAR])[0];
    let beside = answered(&[FAR, NEAR, NEAR, NEAR, NEAR, NEAR]);
    assert!(3 * beside[0] >= alone, "alone {alone}, and beside five others {beside:?}");
}
