//! Calls that wait for a lock while their callers go on. One thread asks for each in turn, so none waits for another.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use super::{Hindrance, Machine};
use crate::error::{Error, ErrorKind, Result};
use crate::process::fork::PerProcess;
use crate::store::completion::{Completion, WakeSet, WakeTarget};

/// The pause between two rounds.
const PAUSE: Duration = Duration::from_millis(1);

/// A waiting call. It asks the machine if that still exists, and returns the collector to wake, or `None` to go on.
pub(super) type WaitingCall = Box<dyn FnMut(Option<&Machine>) -> Option<WakeTarget> + Send>;

/// A call that waits until the deadline. `ask` waits for no lock.
pub(super) fn waiting_call<T: 'static>(
    deadline: Instant,
    completion: Completion<T>,
    mut ask: impl FnMut(&Machine) -> Result<T, Hindrance> + Send + 'static,
    error: impl Fn(&Machine, Hindrance) -> Error + Send + 'static,
) -> WaitingCall {
    let mut completion = Some(completion);
    Box::new(move |machine| {
        let result = match machine {
            None => Err(Error::new(ErrorKind::Closed, "the limiter was closed before the store answered")),
            Some(machine) => match ask(machine) {
                Err(Hindrance::Locked) if Instant::now() < deadline => return None,
                result => result.map_err(|hindrance| error(machine, hindrance)),
            },
        };
        Some(completion.take().and_then(|completion| completion(result)))
    })
}

/// The channel to the thread. The first call that waits starts that.
#[derive(Default)]
pub(super) struct WaitingCalls(PerProcess<Sender<WaitingCall>>);

impl WaitingCalls {
    /// Adds the call that `make` returns, if there is a thread.
    ///
    /// # Errors
    /// If no thread can be started.
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
        waiting.retain_mut(|call| match call(machine.as_deref()) {
            Some(wake) => {
                wakes.add(wake);
                false
            }
            None => true,
        });
        drop(wakes);
        if let Some(machine) = machine {
            machine.report();
        }
        if !waiting.is_empty() {
            std::thread::sleep(PAUSE);
        }
    }
}
