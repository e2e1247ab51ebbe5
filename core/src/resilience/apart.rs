//! Several stores, each with its own keys. Entries that live in different ones still stand or fall together: they are
//! charged store by store, in order, and what was charged is given back when a later store refuses or fails. All of that
//! has the time of one call.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::layer::Notes;
use super::owned::{Owned, borrowed, owned};
use crate::error::{Error, ErrorKind, Result};
use crate::store::{
    Answer, BatchCompletion, Entry, MakeCompletion, Operation, PingCompletion, Store, WakeTarget, submit_to, tell,
};

/// Which store has which keys.
pub(super) trait Division: Send + Sync {
    /// Where calls note which store it was. A rollout's stores may be divided themselves, but nothing else.
    const DEPTH: usize;

    fn stores(&self) -> &Arc<[Arc<dyn Store>]>;
    /// What a call may take.
    fn timeout(&self) -> Duration;
    /// The number of the store that has the entry's key.
    fn store_of(&self, entry: &Entry<'_>) -> usize;

    fn store(&self, entry: &Entry<'_>) -> &dyn Store {
        &*self.stores()[self.store_of(entry)]
    }
}

impl<T: Division> Store for T {
    fn ask(&self, entry: &Entry<'_>, now: Option<u64>) -> Result<Answer> {
        self.store(entry).ask(entry, now)
    }

    fn ask_all(&self, entries: &[Entry<'_>], now: Option<u64>) -> Result<Vec<Answer>> {
        self.ask_all_by(entries, now, Instant::now() + self.timeout())
    }

    fn submit(
        &self,
        entry: &Entry<'_>,
        now: Option<u64>,
        notes: &mut Notes,
        done: MakeCompletion<'_>,
    ) -> Option<Result<Answer>> {
        let store = self.store_of(entry);
        notes.chosen[T::DEPTH] = store;
        self.stores()[store].submit(entry, now, notes, done)
    }

    /// By the store that was asked: the key may be another one's by now.
    fn after(&self, entry: &Entry<'_>, now: Option<u64>, notes: &Notes, result: Result<Answer>) -> Result<Answer> {
        self.stores()[notes.chosen[T::DEPTH]].after(entry, now, notes, result)
    }

    fn submit_all(&self, entries: &[Entry<'_>], now: Option<u64>, done: BatchCompletion) {
        self.submit_all_by(entries, now, Instant::now() + self.timeout(), done);
    }

    fn ask_by(&self, entry: &Entry<'_>, now: Option<u64>, by: Instant) -> Result<Answer> {
        self.store(entry).ask_by(entry, now, by)
    }

    fn ask_all_by(&self, entries: &[Entry<'_>], now: Option<u64>, by: Instant) -> Result<Vec<Answer>> {
        ask_all(self, entries, now, by)
    }

    fn submit_all_by(&self, entries: &[Entry<'_>], now: Option<u64>, by: Instant, done: BatchCompletion) {
        submit_all(self, entries, now, by, done);
    }

    /// Whether all stores answer, and if not, why the first of those does not.
    fn ping(&self) -> Result<()> {
        self.stores().iter().try_for_each(|store| store.ping())
    }

    fn submit_ping(&self, done: PingCompletion) {
        tell(submit_ping(Arc::clone(self.stores()), 0, done));
    }

    fn close(&self) {
        self.stores().iter().for_each(|store| store.close());
    }

    fn try_immediate(&self, entry: &Entry<'_>, now: Option<u64>) -> Option<Result<Answer>> {
        self.store(entry).try_immediate(entry, now)
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
    fn new(entries: &[Entry<'_>], division: &impl Division) -> Self {
        let mut parts: Vec<Part> = Vec::new();
        for (index, entry) in entries.iter().enumerate() {
            let store = division.store_of(entry);
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
        tell(submit_to(store, entry, now, Some(Instant::now() + timeout), |_| None));
    }
}

/// On the calling thread.
fn ask_all(division: &impl Division, entries: &[Entry<'_>], now: Option<u64>, by: Instant) -> Result<Vec<Answer>> {
    let (stores, mut asked) = (division.stores(), Asked::new(entries, division));
    for part in 0..asked.parts.len() {
        let mine = asked.of(part, entries);
        let store = &stores[asked.parts[part].store];
        let result = in_time(by).and_then(|()| store.ask_all_by(&mine, now, by));
        let failed = match result.map(|answers| asked.take(part, entries, answers)) {
            Ok(true) => continue,
            Ok(false) => None,
            Err(error) => Some(error),
        };
        for mend in asked.mends(part, entries, failed.is_none()) {
            let entry = Entry { operation: mend.operation.clone(), ..entries[mend.entry].clone() };
            let store = &stores[mend.store];
            if in_time(by).is_ok() {
                asked.mended(&mend, store.ask_by(&entry, now, by));
            } else {
                later(store, &entry, now, division.timeout());
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
    entries: Vec<Owned>,
    now: Option<u64>,
    by: Instant,
    timeout: Duration,
    asked: Mutex<Asked>,
    done: Mutex<Option<BatchCompletion>>,
}

/// Without waiting.
fn submit_all(division: &impl Division, entries: &[Entry<'_>], now: Option<u64>, by: Instant, done: BatchCompletion) {
    let asked = Asked::new(entries, division);
    if let [part] = &*asked.parts {
        return division.stores()[part.store].submit_all_by(entries, now, by, done);
    }
    let (stores, entries) = (Arc::clone(division.stores()), owned(entries));
    let (asked, done, timeout) = (Mutex::new(asked), Mutex::new(Some(done)), division.timeout());
    tell(Arc::new(Run { stores, entries, now, by, timeout, asked, done }).charge(0));
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
        self.stores[store].submit_all_by(&mine, self.now, self.by, done);
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
        submit_to(store, &entry, self.now, Some(self.by), move |result| {
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
fn submit_ping(stores: Arc<[Arc<dyn Store>]>, at: usize, done: PingCompletion) -> WakeTarget {
    let Some(store) = stores.get(at).cloned() else { return done(Ok(())) };
    store.submit_ping(Box::new(move |result| match result {
        Ok(()) => submit_ping(stores, at + 1, done),
        Err(error) => done(Err(error)),
    }));
    None
}
