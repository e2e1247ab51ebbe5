//! Several stores, each with its own keys. Entries that live in different ones still stand or fall together: they are
//! charged store by store, in order, and what was charged is given back when a later store refuses or fails. All of that
//! has the time of one call.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::error::{Error, ErrorKind, Result};
use crate::store::call_context::CallContext;
use crate::store::completion::{BatchCompletion, MakeCompletion, PingCompletion, WakeTarget, wake};
use crate::store::layer_states::LayerStates;
use crate::store::request::{Answer, Entry, Operation, OwnedEntry, borrowed, owned};
use crate::store::{Store, submit_then};

/// Which store has which keys.
pub(super) trait PartitionedStore: Send + Sync {
    fn stores(&self) -> &Arc<[Arc<dyn Store>]>;
    /// What a call may take.
    fn timeout(&self) -> Duration;
    /// The number of the store that has the entry's key.
    fn store_of(&self, entry: &Entry<'_>) -> usize;

    fn store(&self, entry: &Entry<'_>) -> &dyn Store {
        &*self.stores()[self.store_of(entry)]
    }
}

impl<T: PartitionedStore> Store for T {
    fn ask(&self, entry: &Entry<'_>, context: CallContext<'_>) -> Result<Answer> {
        self.store(entry).ask(entry, context)
    }

    fn ask_all(&self, entries: &[Entry<'_>], context: CallContext<'_>) -> Result<Vec<Answer>> {
        ask_all(self, entries, context)
    }

    fn submit(
        &self,
        entry: &Entry<'_>,
        context: CallContext<'_>,
        states: &mut LayerStates,
        make: MakeCompletion<'_>,
    ) -> Option<Result<Answer>> {
        let store = self.store_of(entry);
        states.push([store as u64]);
        self.stores()[store].submit(entry, context, states, make)
    }

    /// By the store that was asked: the key may belong to another store by now.
    fn after(
        &self,
        entry: &Entry<'_>,
        now: Option<u64>,
        states: &mut LayerStates,
        result: Result<Answer>,
    ) -> Result<Answer> {
        let [store] = states.next();
        self.stores()[store as usize].after(entry, now, states, result)
    }

    fn submit_all(&self, entries: &[Entry<'_>], context: CallContext<'_>, done: BatchCompletion) {
        submit_all(self, entries, context, done);
    }

    /// Whether all stores answer, and if not, why the first of those does not.
    fn ping(&self, context: CallContext<'_>) -> Result<()> {
        self.stores().iter().try_for_each(|store| store.ping(context))
    }

    fn submit_ping(&self, context: CallContext<'_>, done: PingCompletion) {
        wake(submit_ping(Arc::clone(self.stores()), 0, context.deadline, done));
    }

    fn close(&self) {
        self.stores().iter().for_each(|store| store.close());
    }

    fn try_immediate(&self, entry: &Entry<'_>, context: CallContext<'_>) -> Option<Result<Answer>> {
        self.store(entry).try_immediate(entry, context)
    }
}

/// The entries of one store.
#[derive(Clone)]
struct Part {
    store: usize,
    entries: Vec<usize>,
}

/// Something done for one entry after the whole was refused.
#[derive(Clone)]
struct Mend {
    entry: usize,
    store: usize,
    operation: Operation,
}

/// What is known of a whole that is being asked, part by part.
struct Asked {
    parts: Vec<Part>,
    answers: Vec<Option<Answer>>,
}

impl Asked {
    fn new(entries: &[Entry<'_>], partitioned: &impl PartitionedStore) -> Self {
        let mut parts: Vec<Part> = Vec::new();
        for (index, entry) in entries.iter().enumerate() {
            let store = partitioned.store_of(entry);
            match parts.iter_mut().find(|part| part.store == store) {
                Some(part) => part.entries.push(index),
                None => parts.push(Part { store, entries: vec![index] }),
            }
        }
        Self { parts, answers: vec![None; entries.len()] }
    }

    fn of<'a>(&self, part: usize, entries: &[Entry<'a>]) -> Vec<Entry<'a>> {
        self.parts[part].entries.iter().map(|index| entries[*index].clone()).collect()
    }

    /// Takes a part's answers; says whether it stands.
    fn take(&mut self, part: usize, entries: &[Entry<'_>], answers: Vec<Answer>) -> bool {
        let mut stands = true;
        for (index, answer) in self.parts[part].entries.iter().zip(answers) {
            stands &= answer.applied || entries[*index].plan.policy.options().shadow;
            self.answers[*index] = Some(answer);
        }
        stands
    }

    /// What is to be done when a part did not stand: those before it get back exactly what they were charged. With
    /// `tells` everybody is asked how things stand then.
    fn mends(&self, part: usize, entries: &[Entry<'_>], tells: bool) -> Vec<Mend> {
        let mut mends = Vec::new();
        for (number, Part { store, entries: indexes }) in self.parts.iter().enumerate() {
            for &index in indexes {
                let cost = entries[index].operation.cost();
                let charged = number < part && self.answers[index].as_ref().is_some_and(|answer| answer.applied);
                let mend = |operation| Mend { entry: index, store: *store, operation };
                mends.extend(charged.then(|| mend(Operation::Refund { cost })));
                mends.extend((tells && (charged || number > part)).then(|| mend(Operation::Peek { cost })));
            }
        }
        mends
    }

    /// Takes what came of mending. Whether an entry was admitted is what was said when it was asked.
    fn mended(&mut self, mend: &Mend, result: Result<Answer>) {
        if let (Operation::Peek { .. }, Ok(told)) = (&mend.operation, result) {
            let applied = self.answers[mend.entry].as_ref().map_or(told.applied, |answer| answer.applied);
            self.answers[mend.entry] = Some(Answer { applied, ..told });
        }
    }

    /// The answers. One that could not be told, of a whole that was refused elsewhere, is as if never seen.
    fn finish(&mut self, entries: &[Entry<'_>]) -> Vec<Answer> {
        let now = self.answers.iter().flatten().map(|answer| answer.now).max().unwrap_or(0);
        let fresh = |entry: &Entry<'_>| Answer {
            applied: true,
            now,
            views: entry.plan.unused_views(now, entry.operation.cost()),
            ..Answer::default()
        };
        let answers = self.answers.drain(..).zip(entries);
        answers.map(|(answer, entry)| answer.unwrap_or_else(|| fresh(entry))).collect()
    }
}

/// Whether there is time for one more part. A call that has none may be sent all the same, and be charged for nobody.
fn in_time(by: Instant) -> Result<()> {
    if Instant::now() < by {
        return Ok(());
    }
    let said = "the stores that were asked first took all the time of this call, so that the others were not asked";
    Err(Error::new(ErrorKind::StoreTimeout, said))
}

/// Gives back what was charged for a call that has no time left: nobody waits for it, so it has time of its own.
fn later(store: &Arc<dyn Store>, entry: &Entry<'_>, now: Option<u64>, timeout: Duration) {
    if let Operation::Refund { .. } = entry.operation {
        wake(submit_then(store, entry, CallContext::until(now, Instant::now() + timeout), |_| None));
    }
}

/// On the calling thread.
fn ask_all(
    partitioned: &impl PartitionedStore,
    entries: &[Entry<'_>],
    context: CallContext<'_>,
) -> Result<Vec<Answer>> {
    let by = context.deadline.unwrap_or_else(|| Instant::now() + partitioned.timeout());
    let context = CallContext { deadline: Some(by), ..context };
    let (stores, mut asked) = (partitioned.stores(), Asked::new(entries, partitioned));
    for part in 0..asked.parts.len() {
        let mine = asked.of(part, entries);
        let store = &stores[asked.parts[part].store];
        let result = in_time(by).and_then(|()| store.ask_all(&mine, context));
        let failed = match result.map(|answers| asked.take(part, entries, answers)) {
            Ok(true) => continue,
            Ok(false) => None,
            Err(error) => Some(error),
        };
        for mend in asked.mends(part, entries, failed.is_none()) {
            let entry = Entry { operation: mend.operation.clone(), ..entries[mend.entry].clone() };
            let store = &stores[mend.store];
            if in_time(by).is_ok() {
                asked.mended(&mend, store.ask(&entry, context));
            } else {
                later(store, &entry, context.now, partitioned.timeout());
            }
        }
        if let Some(error) = failed {
            return Err(error);
        }
        break;
    }
    Ok(asked.finish(entries))
}

/// A whole that is asked without waiting.
struct Run {
    stores: Arc<[Arc<dyn Store>]>,
    entries: Vec<OwnedEntry>,
    now: Option<u64>,
    by: Instant,
    timeout: Duration,
    asked: Mutex<Asked>,
    done: Mutex<Option<BatchCompletion>>,
}

/// Without waiting.
fn submit_all(
    partitioned: &impl PartitionedStore,
    entries: &[Entry<'_>],
    context: CallContext<'_>,
    done: BatchCompletion,
) {
    let by = context.deadline.unwrap_or_else(|| Instant::now() + partitioned.timeout());
    let asked = Asked::new(entries, partitioned);
    if let [part] = &*asked.parts {
        return partitioned.stores()[part.store].submit_all(
            entries,
            CallContext { deadline: Some(by), ..context },
            done,
        );
    }
    let (stores, entries) = (Arc::clone(partitioned.stores()), owned(entries));
    let (asked, done, timeout) = (Mutex::new(asked), Mutex::new(Some(done)), partitioned.timeout());
    wake(Arc::new(Run { stores, entries, now: context.now, by, timeout, asked, done }).charge(0));
}

impl Run {
    fn charge(self: Arc<Self>, part: usize) -> WakeTarget {
        if let Err(late) = in_time(self.by) {
            return self.charged(part, Err(late));
        }
        let entries = borrowed(&self.entries);
        let (store, mine) = {
            let asked = self.asked.lock();
            (asked.parts[part].store, asked.of(part, &entries))
        };
        let next = Arc::clone(&self);
        let done = Box::new(move |result| next.charged(part, result));
        self.stores[store].submit_all(&mine, CallContext::until(self.now, self.by), done);
        None
    }

    fn charged(self: Arc<Self>, part: usize, result: Result<Vec<Answer>>) -> WakeTarget {
        let mut asked = self.asked.lock();
        let entries = borrowed(&self.entries);
        let failed = match result.map(|answers| asked.take(part, &entries, answers)) {
            Ok(true) => {
                let more = part + 1 < asked.parts.len();
                drop((asked, entries));
                if !more {
                    return self.finish(None);
                }
                return self.charge(part + 1);
            }
            Ok(false) => None,
            Err(error) => Some(error),
        };
        let mends = asked.mends(part, &entries, failed.is_none());
        drop((asked, entries));
        self.mend(failed, mends.into())
    }

    /// One after the other. Who is told of a failure does not wait until everything is given back.
    fn mend(self: Arc<Self>, failed: Option<Error>, mut mends: VecDeque<Mend>) -> WakeTarget {
        if failed.is_some() || in_time(self.by).is_err() {
            for mend in mends {
                let entry = self.entries[mend.entry].with(mend.operation);
                later(&self.stores[mend.store], &entry, self.now, self.timeout);
            }
            return self.finish(failed);
        }
        let Some(mend) = mends.pop_front() else { return self.finish(failed) };
        let next = Arc::clone(&self);
        let (entry, store) = (self.entries[mend.entry].with(mend.operation.clone()), &self.stores[mend.store]);
        submit_then(store, &entry, CallContext::until(self.now, self.by), move |result| {
            next.asked.lock().mended(&mend, result);
            next.mend(failed, mends)
        })
    }

    fn finish(&self, failed: Option<Error>) -> WakeTarget {
        let done = self.done.lock().take()?;
        let answers = self.asked.lock().finish(&borrowed(&self.entries));
        done(failed.map_or(Ok(answers), Err))
    }
}

/// Asks one after the other, from the one of that number.
fn submit_ping(
    stores: Arc<[Arc<dyn Store>]>,
    at: usize,
    deadline: Option<Instant>,
    done: PingCompletion,
) -> WakeTarget {
    let Some(store) = stores.get(at).cloned() else { return done(Ok(())) };
    let context = CallContext { deadline, ..CallContext::default() };
    let next = move |result| match result {
        Ok(()) => submit_ping(stores, at + 1, deadline, done),
        Err(error) => done(Err(error)),
    };
    store.submit_ping(context, Box::new(next));
    None
}
