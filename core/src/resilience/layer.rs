//! What a layer does before a store is asked, and what it makes of the answer: the same for calls that wait and for those
//! that do not.
//!
//! A call that does not wait leaves one box behind, its caller's (`store::submit`). What a layer wants to know again when
//! the answer is there it writes down in the call's `Notes`, and the answer comes back through all of them by
//! `Store::after`: so no layer keeps anything of a call by itself.

use std::sync::Arc;
use std::time::Instant;

use super::deny_cache::Ticket;
use super::owned::{borrowed, owned};
use crate::error::Result;
use crate::store::{Answer, BatchCompletion, Entry, MakeCompletion, PingCompletion, Store, tell};

/// See the module.
#[derive(Clone, Copy, Default)]
pub(crate) struct Notes {
    /// When the call is given up, where others have set that.
    pub(crate) by: Option<Instant>,
    /// Of the deny cache, about a check it may learn from.
    pub(super) ticket: Option<Ticket>,
    /// Of the store that was chosen, where there are several: in a rollout, and among shards.
    pub(super) chosen: [usize; 2],
    /// Of the breaker.
    pub(super) era: u64,
    pub(super) hurried: bool,
}

impl Notes {
    /// Of a call that is given up at that moment, or when the store itself does.
    pub(crate) fn of(by: Option<Instant>) -> Self {
        Self { by, ..Self::default() }
    }
}

/// See the module.
pub(super) trait Layer: Send + Sync + 'static {
    /// The answer, where the store is not to be asked.
    fn before(&self, entry: &Entry<'_>, now: Option<u64>, notes: &mut Notes) -> Option<Result<Answer>>;

    fn after(&self, entry: &Entry<'_>, now: Option<u64>, notes: &Notes, result: Result<Answer>) -> Result<Answer>;

    /// Why entries that stand or fall together are not to be asked for.
    fn before_all(&self, _entries: &[Entry<'_>], _notes: &mut Notes) -> Result<()> {
        Ok(())
    }

    fn after_all(
        &self,
        entries: &[Entry<'_>],
        now: Option<u64>,
        notes: &Notes,
        result: Result<Vec<Answer>>,
    ) -> Result<Vec<Answer>>;

    /// The same as `before`, of a call that may never be made.
    fn try_immediate(&self, _entry: &Entry<'_>, _now: Option<u64>) -> Option<Result<Answer>> {
        None
    }

    fn close(&self) {}
}

/// A layer around a store.
pub(super) struct Layered<L> {
    layer: Arc<L>,
    store: Arc<dyn Store>,
}

impl<L: Layer> Layered<L> {
    pub(super) fn around(layer: Arc<L>, store: Arc<dyn Store>) -> Arc<dyn Store> {
        Arc::new(Self { layer, store })
    }

    #[inline]
    fn through(
        &self,
        entry: &Entry<'_>,
        now: Option<u64>,
        by: Option<Instant>,
        ask: impl FnOnce(&dyn Store) -> Result<Answer>,
    ) -> Result<Answer> {
        let mut notes = Notes::of(by);
        if let Some(result) = self.layer.before(entry, now, &mut notes) {
            return result;
        }
        self.layer.after(entry, now, &notes, ask(&*self.store))
    }

    fn through_all(
        &self,
        entries: &[Entry<'_>],
        now: Option<u64>,
        by: Option<Instant>,
        ask: impl FnOnce(&dyn Store) -> Result<Vec<Answer>>,
    ) -> Result<Vec<Answer>> {
        let mut notes = Notes::of(by);
        self.layer.before_all(entries, &mut notes)?;
        self.layer.after_all(entries, now, &notes, ask(&*self.store))
    }

    fn pass_all(
        &self,
        entries: &[Entry<'_>],
        now: Option<u64>,
        by: Option<Instant>,
        done: BatchCompletion,
        submit: impl FnOnce(&dyn Store, BatchCompletion),
    ) {
        let mut notes = Notes::of(by);
        if let Err(error) = self.layer.before_all(entries, &mut notes) {
            return tell(done(Err(error)));
        }
        let (layer, asked) = (Arc::clone(&self.layer), owned(entries));
        let told = move |result| done(layer.after_all(&borrowed(&asked), now, &notes, result));
        submit(&*self.store, Box::new(told));
    }
}

impl<L: Layer> Store for Layered<L> {
    #[inline]
    fn ask(&self, entry: &Entry<'_>, now: Option<u64>) -> Result<Answer> {
        self.through(entry, now, None, |store| store.ask(entry, now))
    }

    fn ask_all(&self, entries: &[Entry<'_>], now: Option<u64>) -> Result<Vec<Answer>> {
        self.through_all(entries, now, None, |store| store.ask_all(entries, now))
    }

    #[inline]
    fn submit(
        &self,
        entry: &Entry<'_>,
        now: Option<u64>,
        notes: &mut Notes,
        done: MakeCompletion<'_>,
    ) -> Option<Result<Answer>> {
        if let Some(result) = self.layer.before(entry, now, notes) {
            return Some(result);
        }
        let result = self.store.submit(entry, now, notes, done)?;
        Some(self.layer.after(entry, now, notes, result))
    }

    #[inline]
    fn after(&self, entry: &Entry<'_>, now: Option<u64>, notes: &Notes, result: Result<Answer>) -> Result<Answer> {
        self.layer.after(entry, now, notes, self.store.after(entry, now, notes, result))
    }

    fn submit_all(&self, entries: &[Entry<'_>], now: Option<u64>, done: BatchCompletion) {
        self.pass_all(entries, now, None, done, |store, done| store.submit_all(entries, now, done));
    }

    fn ask_by(&self, entry: &Entry<'_>, now: Option<u64>, by: Instant) -> Result<Answer> {
        self.through(entry, now, Some(by), |store| store.ask_by(entry, now, by))
    }

    fn ask_all_by(&self, entries: &[Entry<'_>], now: Option<u64>, by: Instant) -> Result<Vec<Answer>> {
        self.through_all(entries, now, Some(by), |store| store.ask_all_by(entries, now, by))
    }

    fn submit_all_by(&self, entries: &[Entry<'_>], now: Option<u64>, by: Instant, done: BatchCompletion) {
        self.pass_all(entries, now, Some(by), done, |store, done| store.submit_all_by(entries, now, by, done));
    }

    fn ping(&self) -> Result<()> {
        self.store.ping()
    }

    fn ping_by(&self, by: Instant) -> Result<()> {
        self.store.ping_by(by)
    }

    fn submit_ping(&self, done: PingCompletion) {
        self.store.submit_ping(done);
    }

    fn close(&self) {
        self.layer.close();
        self.store.close();
    }

    #[inline]
    fn try_immediate(&self, entry: &Entry<'_>, now: Option<u64>) -> Option<Result<Answer>> {
        if let Some(result) = self.layer.try_immediate(entry, now) {
            return Some(result);
        }
        let result = self.store.try_immediate(entry, now)?;
        Some(self.layer.after(entry, now, &Notes::default(), result))
    }
}
