//! Where those wait who want the same key: one after the other, so that no two are told the same moment.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use crate::clock::Signal;
use crate::error::Result;
use crate::fork::PerProcess;
use crate::plan::Plan;

/// Lines kept before those in which nobody stands any more are looked for.
const TIDY: usize = 1_024;

/// The waiters for one policy and key, in the order they came. Only the first asks the store.
#[derive(Debug, Default)]
struct Line {
    waiting: Mutex<(u64, VecDeque<Waiter>)>,
    signal: Arc<Signal>,
}

#[derive(Debug)]
struct Waiter {
    number: u64,
    /// The units it wants.
    cost: u64,
}

/// A place in a line; whoever drops it leaves, and the next is told.
#[derive(Debug)]
pub(super) struct Ticket {
    line: Arc<Line>,
    number: u64,
}

impl Ticket {
    /// The units wanted by those who stand ahead; `None` when nobody does.
    pub(super) fn ahead(&self) -> Option<u64> {
        let waiting = self.line.waiting.lock();
        let ahead = waiting.1.iter().take_while(|other| other.number != self.number);
        ahead.map(|other| other.cost).reduce(u64::saturating_add)
    }

    /// Given when somebody left, and when something was given back.
    pub(super) fn signal(&self) -> &Arc<Signal> {
        &self.line.signal
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.line.waiting.lock().1.retain(|other| other.number != self.number);
        self.line.signal.give();
    }
}

/// A policy's identity and a key.
type Wanted = (u128, Box<str>);

/// The lines of one process.
type Open = Mutex<HashMap<Wanted, Weak<Line>>>;

/// All lines in which somebody stands. A child does not stand behind its parent's threads, which it does not have.
#[derive(Default)]
pub(super) struct Lines {
    open: PerProcess<Open>,
}

impl Lines {
    /// Takes a place in the line for a key.
    pub(super) fn join(&self, plan: &Plan, key: &str, cost: u64) -> Result<Ticket> {
        let lines = self.open.get_or_try_init(|| Ok(Open::default()))?;
        let mut open = lines.lock();
        if open.len() > TIDY {
            open.retain(|_, line| line.strong_count() > 0);
        }
        let place = open.entry((plan.identity, key.into())).or_default();
        let line = place.upgrade().unwrap_or_else(|| {
            let line = Arc::default();
            *place = Arc::downgrade(&line);
            line
        });
        let number = {
            let mut waiting = line.waiting.lock();
            waiting.0 += 1;
            let number = waiting.0;
            waiting.1.push_back(Waiter { number, cost });
            number
        };
        Ok(Ticket { line, number })
    }

    /// How many stand in the line for a key.
    pub(super) fn waiting(&self, plan: &Plan, key: &str) -> usize {
        let Some(lines) = self.open.get() else { return 0 };
        let line = lines.lock().get(&(plan.identity, Box::from(key))).and_then(Weak::upgrade);
        line.map_or(0, |line| line.waiting.lock().1.len())
    }

    /// Something was given back: the first in the line may ask again before its time.
    pub(super) fn given_back(&self, plan: &Plan, key: &str) {
        let Some(lines) = self.open.get() else { return };
        let open = lines.lock();
        if open.is_empty() {
            return;
        }
        if let Some(line) = open.get(&(plan.identity, Box::from(key))).and_then(Weak::upgrade) {
            line.signal.give();
        }
    }
}
