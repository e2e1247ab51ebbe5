//! `stateright` searches the protocol of leases as a state space, whole with `TIDEGATE_FULL=1`: every order of requests, replies, losses,
//! spending, give-backs, crashes and ticks of a few clocks. Each variant without an invariant of docs/adr/0022 exceeds the limit.
//!
//! The store has a sliding window of two ticks, as `sliding-log` has. Every other rule counts a unit as long or longer.

use stateright::{Checker, Model, Property};
use tidegate_tests::budget::is_full;

/// Units that the limit admits within `PERIOD` ticks.
const COUNT: usize = 2;
const PERIOD: u8 = 2;
/// For how many ticks units may be spent after they were charged.
const LIFE: u8 = 2;
/// The ticks of a history.
const END: u8 = 4;
const PROCESSES: usize = 2;
/// The most messages under way.
const MESSAGES: usize = 3;
/// The most states that are searched: the machine has memory for as many.
const MOST_STATES: usize = 20_000_000;
/// As many as `make test` has seconds for. They are those of the shortest histories.
const SOME_STATES: usize = 500_000;
/// The units that a process asks for.
const UNITS: usize = 2;

/// The invariant that the protocol leaves out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Variant {
    Right,
    /// The time to spend counts from the reply, not from the request.
    CountsFromReply,
    /// The store counts units from their charge on, not from the last moment at which they can be spent.
    CountsFromCharge,
    /// A life has no margin for clocks that drift.
    NoMargin,
    /// Units are given back, and spent afterwards.
    SpendsWhatWentBack,
    /// Units are spent before the reply that grants them.
    SpendsAtOnce,
}

/// The knowledge of a process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Process {
    /// Its clock. It lags behind that of the store by at most one tick in a life.
    clock: u8,
    lags: bool,
    /// When it sent the request that has no reply yet.
    asked_at: Option<u8>,
    /// The units that it may spend, the end of that time, and the moment of their charge.
    block: Option<(usize, u8, u8)>,
}

/// A message under way.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Message {
    Request(usize),
    /// To a process: the units, and the moment of their charge.
    Reply(usize, usize, u8),
    GiveBack(usize, u8),
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct State {
    now: u8,
    processes: Vec<Process>,
    /// In order, so that states that differ only in the order are the same.
    messages: Vec<Message>,
    /// For each charged unit, the moment from which it counts.
    charged: Vec<u8>,
    /// For each unit, when it was spent.
    spent: Vec<u8>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Action {
    Tick,
    /// Time passes, and the clock of a process stands still.
    LaggingTick(usize),
    Ask(usize),
    Deliver(usize),
    Lose(usize),
    Spend(usize),
    GiveBack(usize),
    Crash(usize),
}

struct Leases(Variant);

impl Leases {
    /// The moment from which a unit counts that was charged at `taken_at`.
    fn counts_from(&self, taken_at: u8) -> u8 {
        if self.0 == Variant::CountsFromCharge { taken_at } else { taken_at + LIFE }
    }

    /// A clock that lags by one tick in a life would end it one tick too late.
    fn margin(&self) -> u8 {
        u8::from(self.0 != Variant::NoMargin)
    }

    fn deliver(&self, state: &mut State, message: Message) {
        match message {
            Message::Request(process) => {
                let now = state.now;
                let granted = UNITS.min(COUNT.saturating_sub(state.charged.len()));
                for _ in 0..granted {
                    state.charged.push(self.counts_from(now));
                }
                state.charged.sort_unstable();
                state.messages.push(Message::Reply(process, granted, now));
            }
            Message::Reply(process, granted, taken_at) => {
                let process = &mut state.processes[process];
                // If the process crashed meanwhile, its successor ignores the reply to the old request.
                let Some(asked_at) = process.asked_at.take() else { return };
                let began = if self.0 == Variant::CountsFromReply { process.clock } else { asked_at };
                if granted > 0 {
                    process.block = Some((granted, began + LIFE - self.margin(), taken_at));
                }
            }
            Message::GiveBack(units, taken_at) => {
                for _ in 0..units {
                    if let Some(found) = state.charged.iter().position(|at| *at == self.counts_from(taken_at)) {
                        state.charged.remove(found);
                    }
                }
            }
        }
    }
}

impl Model for Leases {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State { processes: vec![Process::default(); PROCESSES], ..State::default() }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        if state.now < END {
            actions.push(Action::Tick);
        }
        for (number, process) in state.processes.iter().enumerate() {
            if state.now < END && !process.lags {
                actions.push(Action::LaggingTick(number));
            }
            if process.asked_at.is_none() && process.block.is_none() && state.now < END - 1 {
                actions.push(Action::Ask(number));
            }
            if let Some((units, until, _)) = process.block {
                if units > 0 && process.clock < until {
                    actions.push(Action::Spend(number));
                }
                actions.push(Action::GiveBack(number));
            }
            if process.block.is_some() || process.asked_at.is_some() {
                actions.push(Action::Crash(number));
            }
        }
        for number in 0..state.messages.len() {
            actions.push(Action::Deliver(number));
            actions.push(Action::Lose(number));
        }
    }

    fn next_state(&self, before: &State, action: Action) -> Option<State> {
        let mut state = before.clone();
        match action {
            Action::Tick | Action::LaggingTick(_) => {
                state.now += 1;
                for (number, process) in state.processes.iter_mut().enumerate() {
                    if action == Action::LaggingTick(number) {
                        process.lags = true;
                    } else {
                        process.clock += 1;
                    }
                }
                let now = state.now;
                state.spent.retain(|at| at + PERIOD > now);
                state.charged.retain(|at| at + PERIOD > now);
            }
            Action::Ask(number) => {
                let process = &mut state.processes[number];
                process.asked_at = Some(process.clock);
                process.lags = false;
                if self.0 == Variant::SpendsAtOnce {
                    process.block = Some((UNITS, process.clock + LIFE - self.margin(), state.now));
                }
                state.messages.push(Message::Request(number));
            }
            Action::Deliver(number) => {
                let message = state.messages.remove(number);
                self.deliver(&mut state, message);
            }
            Action::Lose(number) => {
                // A reply that does not come ends the wait for it.
                if let Message::Request(process) | Message::Reply(process, ..) = state.messages.remove(number) {
                    state.processes[process].asked_at = None;
                }
            }
            Action::Spend(number) => {
                let (units, ..) = state.processes[number].block.as_mut()?;
                *units -= 1;
                state.spent.push(state.now);
            }
            Action::GiveBack(number) => {
                let (units, _, taken_at) = state.processes[number].block?;
                if self.0 != Variant::SpendsWhatWentBack {
                    state.processes[number].block = None;
                }
                state.messages.push(Message::GiveBack(units, taken_at));
            }
            // The process that takes its place knows nothing.
            Action::Crash(number) => {
                let clock = state.processes[number].clock;
                state.processes[number] = Process { clock, ..Process::default() };
            }
        }
        state.messages.sort_unstable();
        // A handful of messages under way shows every overtaking.
        (state.messages.len() <= MESSAGES).then_some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("no window is passed", |_, state: &State| state.spent.len() <= COUNT),
            Property::sometimes("all units are spent", |_, state: &State| state.spent.len() == COUNT),
            Property::sometimes("units of a crashed process are lost", |_, state: &State| {
                state.charged.len() == COUNT && state.processes.iter().all(|process| process.block.is_none())
            }),
        ]
    }
}

#[test]
fn no_order_of_events_passes_a_window() {
    let states = if is_full() { MOST_STATES } else { SOME_STATES };
    let checker = Leases(Variant::Right).checker().target_state_count(states).spawn_bfs().join();
    println!("{} states", checker.unique_state_count());
    checker.assert_properties();
}

#[test]
fn each_invariant_is_needed() {
    let variants = [
        Variant::CountsFromReply,
        Variant::CountsFromCharge,
        Variant::NoMargin,
        Variant::SpendsWhatWentBack,
        Variant::SpendsAtOnce,
    ];
    for variant in variants {
        let checker = Leases(variant).checker().target_state_count(MOST_STATES).spawn_bfs().join();
        assert!(checker.discovery("no window is passed").is_some(), "{variant:?} passes no window");
    }
}
