//! Refused callers that will ask again: each of them after its pause, or the callers of a key in one line.

use std::cmp::{Ordering, Reverse};
use std::collections::{BinaryHeap, HashMap, VecDeque};

use clap::ValueEnum;

use crate::traffic::Event;
use crate::traffic::pattern::Random;

/// The first pause of callers that do not wait for `retry_after`, in microseconds. Each pause is twice the last one.
const FIRST_BACKOFF: u64 = 100_000;

/// The reaction of a refused caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Retry {
    /// It gives up
    Never,
    /// It waits for `retry_after`, then tries again
    After,
    /// It tries again after 0.1 s, 0.2 s, 0.4 s, …, each at random up to half longer or shorter
    Backoff,
    /// It waits for its turn without a limit, as `acquire` does: the first caller of a key waits for `retry_after`,
    /// and then the next one tries
    Turn,
}

/// When and how often refused callers try again.
#[derive(Debug, Clone, Copy)]
pub struct Retries {
    /// When a refused caller tries again.
    pub how: Retry,
    /// The most tries of a caller after its first one, but for turns.
    pub most: u32,
    /// Random pauses follow from it.
    pub seed: u64,
}

/// How long a call has been tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Tried {
    /// When it was made first, in microseconds.
    pub(crate) since: u64,
    pub(crate) attempts: u32,
}

/// A caller that will try again: the earliest first, then the one that was refused first.
#[derive(Debug, PartialEq, Eq)]
struct Caller {
    event: Event,
    order: u64,
    tried: Tried,
}

impl Ord for Caller {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.event.at, self.order).cmp(&(other.event.at, other.order))
    }
}

impl PartialOrd for Caller {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// All callers of a policy that will try again.
pub(crate) struct WaitingCallers {
    pub(crate) retries: Retries,
    /// The callers that have a time for their next try. A line has one of them here, its first.
    timed: BinaryHeap<Reverse<Caller>>,
    /// The callers of each key that wait behind the first one.
    lines: HashMap<u32, VecDeque<Caller>>,
    order: u64,
}

impl WaitingCallers {
    pub(crate) fn new(retries: Retries) -> Self {
        Self { retries, timed: BinaryHeap::new(), lines: HashMap::new(), order: 0 }
    }

    pub(crate) fn len(&self) -> usize {
        self.timed.len() + self.lines.values().map(VecDeque::len).sum::<usize>()
    }

    /// The next retry that is due until `end`.
    pub(crate) fn due(&mut self, end: u64) -> Option<(Event, Tried)> {
        self.timed.peek().filter(|Reverse(caller)| caller.event.at <= end)?;
        self.timed.pop().map(|Reverse(caller)| (caller.event, caller.tried))
    }

    /// Keeps a refused caller for its next try. Returns false if it gives up.
    pub(crate) fn refuse(&mut self, event: &Event, tried: Tried, retry_after: Option<u64>) -> bool {
        let pause = match (self.retries.how, retry_after) {
            (Retry::Never, _) => return true,
            (Retry::Turn, wait) => wait,
            _ if tried.attempts >= self.retries.most => None,
            (Retry::Backoff, Some(_)) => {
                let mut random = Random::new(self.retries.seed ^ self.order.wrapping_mul(0x9e37_79b9));
                let pause = FIRST_BACKOFF << tried.attempts.min(30);
                Some((pause as f64 * (0.5 + random.share())) as u64)
            }
            (_, wait) => wait,
        };
        self.order += 1;
        let Some(pause) = pause else {
            self.leave(event, tried);
            return false;
        };
        let event = Event { at: event.at.saturating_add(pause.max(1)), ..event.clone() };
        let (key, tried_again) = (event.key, Tried { attempts: tried.attempts.saturating_add(1), ..tried });
        let caller = Caller { event, order: self.order, tried: tried_again };
        if self.retries.how == Retry::Turn && tried.attempts == 0 {
            if let Some(line) = self.lines.get_mut(&key) {
                line.push_back(caller);
                return true;
            }
            self.lines.insert(key, VecDeque::new());
        }
        self.timed.push(Reverse(caller));
        true
    }

    /// Removes a caller that has ended. If it was the first of a line, the next one tries at once.
    pub(crate) fn leave(&mut self, event: &Event, tried: Tried) {
        if tried.attempts == 0 {
            return;
        }
        match self.lines.get_mut(&event.key).map(VecDeque::pop_front) {
            Some(Some(next)) => {
                self.timed.push(Reverse(Caller { event: Event { at: event.at, ..next.event }, ..next }))
            }
            Some(None) => drop(self.lines.remove(&event.key)),
            None => {}
        }
    }
}
