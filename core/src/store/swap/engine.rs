//! The thread that drives a machine against a store whose I/O is ours.

use std::future::{Future, poll_fn};
use std::hash::{BuildHasher, RandomState};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::Instant;

use tokio::runtime::{Builder, Handle, Runtime};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::JoinSet;
use tokio::time::Sleep;

use super::value::Mark;
use super::{CallId, ChangeSet, Event, Io, Promises, SwapMachine};
use crate::error::{Error, ErrorKind, Result};
use crate::store::completion::{WakeSet, WakeTarget};
use crate::store::panics::Caller;
use crate::store::request::{Answer, OwnedEntry};
use crate::store::stored_key::StoredKey;

/// The outcome of a question to the store.
pub(crate) type IoOutcome = Pin<Box<dyn Future<Output = Event> + Send>>;

/// Asks a store the questions of a machine. A question ends by its deadline.
pub(crate) trait SwapIo: Send + Sync + 'static {
    fn promises(&self) -> Promises;

    /// How many questions may be on the way at once.
    fn max_calls(&self) -> usize;

    /// The engine of this process begins, on this runtime.
    fn begin(&self, _runtime: &Handle) {}

    /// Reads keys, and afterwards the epoch if it is needed. `lock_for` is the number of the call that locks their rows, until
    /// the swap with that number ends it.
    fn read(
        self: Arc<Self>,
        keys: Vec<StoredKey>,
        lock_for: Option<CallId>,
        needs_epoch: bool,
        deadline: Instant,
    ) -> IoOutcome;

    fn swap(self: Arc<Self>, sets: Vec<ChangeSet>, locked: Option<CallId>, deadline: Instant) -> IoOutcome;
}

/// The one who waits for the answer to a group.
pub(crate) enum GroupRecipient {
    One(Caller<Answer>),
    All(Caller<Vec<Answer>>),
}

impl GroupRecipient {
    fn complete(self, answers: Result<Vec<Answer>>) -> WakeTarget {
        match self {
            Self::One(caller) => caller.complete(answers.map(|answers| answers.into_iter().next().unwrap_or_default())),
            Self::All(caller) => caller.complete(answers),
        }
    }
}

/// The entries of a call.
pub(crate) struct SubmittedGroup {
    pub(crate) entries: Vec<(OwnedEntry, StoredKey)>,
    pub(crate) together: bool,
    pub(crate) now: Option<u64>,
    pub(crate) deadline: Instant,
    pub(crate) recipient: GroupRecipient,
}

/// The thread of a process. It ends when this is dropped.
pub(crate) struct SwapEngine(UnboundedSender<SubmittedGroup>);

impl SwapEngine {
    pub(crate) fn start<D: SwapIo>(io: Arc<D>) -> Result<Self> {
        let (sender, groups) = unbounded_channel();
        let runtime = runtime()?;
        io.begin(runtime.handle());
        let run = move || runtime.block_on(drive(io, groups));
        let thread = std::thread::Builder::new().name("tidegate-store".to_owned());
        thread.spawn(run).map_err(|error| Error::no_thread(&error))?;
        Ok(Self(sender))
    }

    /// Takes a group. If the thread has ended, its recipient gets an error when the group is dropped.
    pub(crate) fn submit(&self, group: SubmittedGroup) {
        let _ = self.0.send(group);
    }
}

/// A runtime for one thread.
pub(crate) fn runtime() -> Result<Runtime> {
    Builder::new_current_thread().enable_all().build().map_err(|error| Error::no_thread(&error))
}

/// Makes a mark for each write: a random function of a count, which no other process has.
fn marks() -> impl FnMut() -> Mark + Send {
    let (random, mut count) = (RandomState::new(), 0_u64);
    move || {
        count += 1;
        random.hash_one(count).to_le_bytes()
    }
}

async fn drive<D: SwapIo>(io: Arc<D>, mut groups: UnboundedReceiver<SubmittedGroup>) {
    let mut machine = SwapMachine::new(io.promises(), io.max_calls(), Box::new(marks()));
    let mut asked = JoinSet::new();
    let mut alarm = pin!(tokio::time::sleep_until(Instant::now().into()));
    loop {
        let wakes_at = ask(&mut machine, &io, &mut asked);
        let mut woken = WakeSet::default();
        machine.take_completed().into_iter().for_each(|(recipient, answers)| woken.add(recipient.complete(answers)));
        drop(woken);
        if let Some(at) = wakes_at
            && alarm.deadline().into_std() != at
        {
            alarm.as_mut().reset(at.into());
        }
        if !step(&mut machine, &mut groups, &mut asked, wakes_at.map(|_| alarm.as_mut())).await {
            break;
        }
    }
    let closed = Error::new(ErrorKind::Closed, "the limiter is closed");
    machine.close().into_iter().for_each(|recipient| drop(recipient.complete(Err(closed.clone()))));
}

/// Sends the questions of the machine. Returns the moment at which it wants to be asked again.
fn ask<D: SwapIo>(
    machine: &mut SwapMachine<GroupRecipient>,
    io: &Arc<D>,
    asked: &mut JoinSet<(CallId, Event)>,
) -> Option<Instant> {
    loop {
        let (call, outcome) = match machine.poll_io(Instant::now()) {
            Io::Read { call, keys, locks, needs_epoch, deadline } => {
                (call, Arc::clone(io).read(keys, locks.then_some(call), needs_epoch, deadline))
            }
            Io::Swap { call, sets, locked, deadline } => (call, Arc::clone(io).swap(sets, locked, deadline)),
            Io::WaitUntil(at) => return Some(at),
            Io::Idle => return None,
        };
        asked.spawn(async move { (call, outcome.await) });
    }
}

/// Waits until something has happened, and gives it to the machine. Returns false once the store is closed.
async fn step(
    machine: &mut SwapMachine<GroupRecipient>,
    groups: &mut UnboundedReceiver<SubmittedGroup>,
    asked: &mut JoinSet<(CallId, Event)>,
    mut alarm: Option<Pin<&mut Sleep>>,
) -> bool {
    poll_fn(|cx| {
        let mut has_happened = false;
        loop {
            match groups.poll_recv(cx) {
                Poll::Ready(Some(SubmittedGroup { entries, together, now, deadline, recipient })) => {
                    machine.submit(entries, together, now, deadline, recipient);
                    has_happened = true;
                }
                Poll::Ready(None) => return Poll::Ready(false),
                Poll::Pending => break,
            }
        }
        while let Poll::Ready(Some(ended)) = asked.poll_join_next(cx) {
            // A question that panicked has no answer. Its groups end by their deadlines.
            if let Ok((call, event)) = ended {
                machine.handle(call, event, Instant::now());
            }
            has_happened = true;
        }
        has_happened |= alarm.as_mut().is_some_and(|alarm| alarm.as_mut().poll(cx).is_ready());
        if has_happened { Poll::Ready(true) } else { Poll::Pending }
    })
    .await
}
