//! Every order of the messages of two processes that share a key, and every loss of a few of them.
//!
//! A run is a list of choices. The next run changes the last choice that has another option, and repeats all before it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::store::Store;
use super::{Message, START, TIMEOUT};
use crate::error::{Error, ErrorKind};
use crate::plan::Plan;
use crate::plan::plan_cache::plan_of;
use crate::policy::Policy;
use crate::store::key_names::KeyNames;
use crate::store::key_value_store::DEFAULT_MAX_VALUE;
use crate::store::request::{Entry, Operation, OwnedEntry};
use crate::store::stored_key::StoredKey;
use crate::store::swap::{CallId, Event, Io, Promises, SwapMachine};

const KEY: &str = "hot";
/// The runs for each bounds. With `TIDEGATE_FULL=1` all of them run.
const RUNS: u64 = 20_000;

/// The bounds of a run.
#[derive(Clone, Copy)]
struct Bounds {
    limit: u64,
    /// The calls of each process.
    calls: [usize; 2],
    /// The questions whose answers are given up, and those that arrive twice.
    losses: u32,
    repeats: u32,
    locks: bool,
    variant: Variant,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Variant {
    Right,
    /// The store does not compare versions.
    Blind,
    /// A question whose answer is lost is taken for one that did not run.
    Certain,
}

#[derive(Clone, Copy)]
enum Step {
    /// The question with that index reaches the store. True if it will arrive once more.
    Arrives(usize, bool),
    /// The answer with that index reaches its process.
    Returns(usize),
    /// A process gives up a question, which may still arrive.
    GivesUp(usize, CallId),
}

struct Choices {
    taken: Vec<(usize, usize)>,
    next: usize,
}

impl Choices {
    fn pick(&mut self, options: usize) -> usize {
        if self.next == self.taken.len() {
            self.taken.push((0, options));
        }
        let (choice, known) = self.taken[self.next];
        assert_eq!(known, options, "a run can be repeated");
        self.next += 1;
        choice
    }

    /// Changes the last choice that has another option. False after the last run.
    fn go_on(&mut self) -> bool {
        self.next = 0;
        while let Some((choice, options)) = self.taken.pop() {
            if choice + 1 < options {
                self.taken.push((choice + 1, options));
                return true;
            }
        }
        false
    }
}

struct Pair {
    store: Store,
    machines: Vec<SwapMachine<usize>>,
    questions: Vec<(usize, CallId, Arc<Message>)>,
    answers: Vec<(usize, CallId, Event)>,
    open: Vec<(usize, CallId)>,
    now: Instant,
    clock: u64,
    answered: Vec<Option<Result<bool, bool>>>,
}

impl Pair {
    fn new(bounds: Bounds, plan: &Arc<Plan>, base: Instant) -> Self {
        let promises = Promises { marks_are_versions: true, locks: bounds.locks, max_value: DEFAULT_MAX_VALUE };
        let machine = |process: u64| {
            let mut mark = process << 32;
            let make_mark = Box::new(move || {
                mark += 1;
                mark.to_le_bytes()
            });
            SwapMachine::new(promises, 2, make_mark)
        };
        let mut pair = Self {
            store: Store::new(bounds.variant == Variant::Blind),
            machines: vec![machine(1), machine(2)],
            questions: Vec::new(),
            answers: Vec::new(),
            open: Vec::new(),
            now: base,
            clock: START,
            answered: vec![None; bounds.calls.iter().sum()],
        };
        let mut number = 0;
        for (process, calls) in bounds.calls.into_iter().enumerate() {
            for _ in 0..calls {
                let entry = Entry { plan, key: KEY, operation: Operation::check(1) };
                let stored = StoredKey::new(&KeyNames::from("sim"), plan.policy.name(), KEY);
                let entries = vec![(OwnedEntry::from(&entry), stored)];
                pair.machines[process].submit(entries, false, None, base + TIMEOUT, number);
                number += 1;
                // Each is in a question of its own.
                pair.poll(process);
            }
        }
        pair
    }

    fn poll(&mut self, process: usize) {
        let machine = &mut self.machines[process];
        loop {
            let (call, message) = match machine.poll_io(self.now) {
                Io::Read { call, keys, locks, .. } => (call, Message::Read { keys, locks }),
                Io::Swap { call, sets, locked, .. } => (call, Message::Swap { sets, locked }),
                Io::WaitUntil(_) | Io::Idle => break,
            };
            self.questions.push((process, call, Arc::new(message)));
            self.open.push((process, call));
        }
        for (number, result) in machine.take_completed() {
            let result = result.map(|answers| answers[0].applied).map_err(|error| error.did_not_run());
            assert!(self.answered[number].replace(result).is_none(), "a call is answered once");
        }
    }

    fn arrives(&mut self, index: usize, again: bool) {
        let (process, call, message) = self.questions.remove(index);
        let event = match &*message {
            Message::Read { locks: true, keys } if !self.store.locks(keys, (process, call), self.clock) => return,
            Message::Read { keys, .. } => self.store.read(keys, self.clock),
            Message::Swap { sets, locked } => self.store.swap(sets, locked.map(|locked| (process, locked)), self.clock),
        };
        // The answer to the second arrival is dropped.
        if self.open.contains(&(process, call))
            && !self.answers.iter().any(|(other, known, _)| (*other, *known) == (process, call))
        {
            self.answers.push((process, call, event));
        }
        if again {
            self.questions.push((process, call, message));
        }
    }

    fn handle(&mut self, process: usize, call: CallId, event: Event) {
        self.open.retain(|open| *open != (process, call));
        self.machines[process].handle(call, event, self.now);
        self.poll(process);
    }

    fn steps(&self, losses: u32, repeats: u32) -> Vec<Step> {
        // A read that waits for a lock arrives when it has it.
        let waits = |index: &usize| {
            let (process, call, message) = &self.questions[*index];
            match &**message {
                Message::Read { keys, locks: true } => !self.store.is_free(keys, (*process, *call), self.clock),
                _ => false,
            }
        };
        let mut steps: Vec<Step> =
            (0..self.questions.len()).filter(|index| !waits(index)).map(|index| Step::Arrives(index, false)).collect();
        steps.extend((0..self.answers.len()).map(Step::Returns));
        if repeats > 0 {
            steps.extend((0..self.questions.len()).map(|index| Step::Arrives(index, true)));
        }
        if losses > 0 {
            steps.extend(self.open.iter().map(|(process, call)| Step::GivesUp(*process, *call)));
        }
        steps
    }
}

/// Makes one run. Returns the sentence that it contradicts.
fn run(bounds: Bounds, plan: &Arc<Plan>, base: Instant, choices: &mut Choices) -> Result<(), String> {
    let mut pair = Pair::new(bounds, plan, base);
    let (mut losses, mut repeats) = (bounds.losses, bounds.repeats);
    while pair.answered.iter().any(Option::is_none) {
        let steps = pair.steps(losses, repeats);
        if steps.is_empty() {
            // Keys rest, and calls end by their deadlines.
            let wakes = (0..2).filter_map(|process| pair.machines[process].next_moment(pair.now)).min();
            pair.now = wakes.ok_or("nothing happens any more")?.max(pair.now);
            pair.clock = START + pair.now.saturating_duration_since(base).as_micros() as u64;
            (0..2).for_each(|process| pair.poll(process));
            continue;
        }
        // A little time goes by, so that round trips are measured.
        pair.now += Duration::from_micros(50);
        pair.clock += 50;
        (0..2).for_each(|process| pair.poll(process));
        match steps[choices.pick(steps.len())] {
            Step::Arrives(index, again) => {
                repeats -= u32::from(again);
                pair.arrives(index, again);
            }
            Step::Returns(index) => {
                let (process, call, event) = pair.answers.remove(index);
                pair.handle(process, call, event);
            }
            Step::GivesUp(process, call) => {
                losses -= 1;
                pair.answers.retain(|(other, known, _)| (*other, *known) != (process, call));
                let error = Error::new(ErrorKind::StoreTimeout, "no answer");
                let is_certain = bounds.variant == Variant::Certain;
                pair.handle(process, call, if is_certain { Event::NotRun(error) } else { Event::Unknown(error) });
            }
        }
    }
    // The questions on the way arrive.
    for _ in 0..pair.questions.len() {
        pair.arrives(0, false);
    }
    let used = pair.store.used(plan, KEY, pair.clock) as u64;
    let count =
        |wanted: Result<bool, bool>| pair.answered.iter().filter(|answer| **answer == Some(wanted)).count() as u64;
    let (done, unknown) = (count(Ok(true)), count(Err(false)));
    if used > bounds.limit || used < done || used > done + unknown {
        return Err(format!("{used} units, {done} done, {unknown} unknown, a limit of {}", bounds.limit));
    }
    Ok(())
}

/// The first contradiction, and the number of runs.
fn explore(bounds: Bounds) -> (Option<String>, u64) {
    let plan = plan_of(&Policy::parse(&format!("fixed-window {}/hour", bounds.limit)).expect("a policy"));
    let most = if std::env::var_os("TIDEGATE_FULL").is_some() { u64::MAX } else { RUNS };
    let (base, mut choices, mut runs) = (Instant::now(), Choices { taken: Vec::new(), next: 0 }, 0);
    loop {
        runs += 1;
        if let Err(contradiction) = run(bounds, &plan, base, &mut choices) {
            return (Some(contradiction), runs);
        }
        if runs == most || !choices.go_on() {
            return (None, runs);
        }
    }
}

const BOUNDS: Bounds = Bounds { limit: 9, calls: [1, 1], losses: 0, repeats: 0, locks: false, variant: Variant::Right };

#[test]
fn no_order_of_two_processes_counts_a_call_twice() {
    let bounds = [
        Bounds { calls: [2, 1], ..BOUNDS },
        Bounds { limit: 1, losses: 1, ..BOUNDS },
        Bounds { losses: 1, repeats: 1, ..BOUNDS },
        Bounds { calls: [1, 0], losses: 2, repeats: 1, ..BOUNDS },
        Bounds { losses: 1, locks: true, ..BOUNDS },
    ];
    for bounds in bounds {
        let (contradiction, runs) = explore(bounds);
        println!("{runs} orders");
        assert_eq!(contradiction, None, "in run {runs}");
    }
}

#[test]
fn a_broken_store_and_a_broken_owner_are_found() {
    for variant in [Variant::Blind, Variant::Certain] {
        let (contradiction, _) = explore(Bounds { losses: 1, variant, ..BOUNDS });
        assert!(contradiction.is_some());
    }
}
