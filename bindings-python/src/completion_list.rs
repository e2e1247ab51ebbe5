//! The answers for one event loop that have arrived and were not delivered to futures yet.

use std::collections::HashSet;

use parking_lot::Mutex;
use tidegate::Result;
use tidegate::host::{CompletionQueue, Outcome, Wake};

use crate::loop_waker::LoopWaker;

/// Collects the answers for one event loop. Threads of the core put answers here; they touch no Python object.
pub(crate) struct CompletionList {
    state: Mutex<ArrivedAnswers>,
    pub(crate) waker: LoopWaker,
}

#[derive(Default)]
struct ArrivedAnswers {
    answers: Vec<(u64, Result<Outcome>)>,
    /// The tickets of calls that were cancelled and whose answers will still arrive.
    discarded: HashSet<u64>,
}

impl Wake for CompletionList {
    fn wake(&self) {
        self.waker.wake();
    }
}

impl CompletionQueue for CompletionList {
    fn deliver(&self, ticket: u64, outcome: Result<Outcome>) {
        let mut state = self.state.lock();
        if !state.discarded.is_empty() && state.discarded.remove(&ticket) {
            // Dropping a hold gives it back, which calls the store: not under the lock.
            drop(state);
            drop(outcome);
            return;
        }
        state.answers.push((ticket, outcome));
    }
}

impl CompletionList {
    pub(crate) fn new(waker: LoopWaker) -> Self {
        Self { state: Mutex::default(), waker }
    }

    /// All answers that have arrived.
    pub(crate) fn take(&self) -> Vec<(u64, Result<Outcome>)> {
        std::mem::take(&mut self.state.lock().answers)
    }

    /// Drops the answer with this ticket: now, or when it arrives, if it `may_arrive`.
    pub(crate) fn discard(&self, ticket: u64, may_arrive: bool) {
        let mut state = self.state.lock();
        match state.answers.iter().position(|(number, _)| *number == ticket) {
            Some(index) => {
                let answer = state.answers.swap_remove(index);
                drop(state);
                drop(answer);
            }
            None if may_arrive => {
                state.discarded.insert(ticket);
            }
            None => {}
        }
    }
}
