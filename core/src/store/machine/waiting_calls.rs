//! Calls that wait for a lock while their callers go on: one thread asks for each of them in turn, so that none waits for another.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use super::{Hindrance, Machine};
use crate::error::{Error, ErrorKind, Result};
use crate::process::fork::PerProcess;
use crate::store::completion::{Completion, WakeSet};
use crate::store::request::{Answer, OwnedEntry};

/// The pause between two rounds.
const PAUSE: Duration = Duration::from_millis(1);

/// A call that waits.
pub(super) struct WaitingCall {
    pub(super) entry: OwnedEntry,
    /// The time to decide by, where it is given.
    pub(super) now: Option<u64>,
    pub(super) deadline: Instant,
    pub(super) completion: Completion<Answer>,
}

impl WaitingCall {
    /// The answer, unless it goes on waiting.
    fn try_answer(&self, machine: Option<&Machine>) -> Option<Result<Answer>> {
        let Some(machine) = machine else {
            return Some(Err(Error::new(ErrorKind::Closed, "the limiter was closed before the store answered")));
        };
        let entry = self.entry.entry();
        match machine.answer(&entry, machine.now(self.now), Some(Instant::now())) {
            Err(Hindrance::Locked) if Instant::now() < self.deadline => None,
            result => Some(result.map_err(|hindrance| machine.error_about(&entry, hindrance))),
        }
    }
}

/// The way to the thread, which is started by the first call that waits.
#[derive(Default)]
pub(super) struct WaitingCalls(PerProcess<Sender<WaitingCall>>);

impl WaitingCalls {
    /// Adds a call, which `make` makes where there is a thread.
    ///
    /// # Errors
    /// Where no thread can be started.
    pub(super) fn add(&self, machine: &Arc<Machine>, make: impl FnOnce() -> WaitingCall) -> Result<()> {
        let sender = self.0.get_or_try_init(|| {
            let (sender, calls) = channel();
            let machine = Arc::downgrade(machine);
            let run = move || serve(&machine, &calls);
            let started = std::thread::Builder::new().name("tidegate-locks".to_owned()).spawn(run);
            started.map(|_| sender).map_err(|error| Error::no_thread(&error))
        })?;
        // The thread lives as long as the sender.
        let _ = sender.send(make());
        Ok(())
    }
}

fn serve(machine: &Weak<Machine>, calls: &Receiver<WaitingCall>) {
    let mut waiting: Vec<WaitingCall> = Vec::new();
    loop {
        if waiting.is_empty() {
            match calls.recv() {
                Ok(call) => waiting.push(call),
                Err(_) => return,
            }
        }
        waiting.extend(calls.try_iter());
        let (machine, mut wakes) = (machine.upgrade(), WakeSet::default());
        for call in std::mem::take(&mut waiting) {
            match call.try_answer(machine.as_deref()) {
                Some(result) => wakes.add((call.completion)(result)),
                None => waiting.push(call),
            }
        }
        drop(wakes);
        if let Some(machine) = machine {
            machine.report();
        }
        if !waiting.is_empty() {
            std::thread::sleep(PAUSE);
        }
    }
}
