//! Where usage lives. Memory and Redis answer alike; the layers around a shared one (`resilience/`) wrap a store and are a
//! store.

mod memory;
pub(crate) mod redis;
mod url;

pub(crate) use memory::Memory;
pub use redis::Row;
pub(crate) use redis::{Lookout, Redis, Set};
pub(crate) use url::{Endpoints, StoreUrl};

use std::sync::Arc;
use std::time::Instant;

use smallvec::SmallVec;

pub(crate) use crate::algorithm::{HoldId, State, View};
use crate::error::Result;
use crate::one_or_many::OneOrMany;
use crate::plan::Plan;
use crate::resilience::{Notes, Owned};

/// The most entries that one call carries: they occupy a Redis server for about half a millisecond.
pub(crate) const MAX_ENTRIES: usize = 256;

/// What the limits of a policy say, in order.
pub(crate) type Views = OneOrMany<View>;

/// What is stored of the limits of a policy, in order.
pub(crate) type States = SmallVec<[State; 1]>;

/// What is to be done with a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Operation {
    /// Ask and consume; with `hold` the units of a `concurrency` limit are held under that name.
    Check { cost: u64, hold: HoldId, meta: Option<Arc<[u8]>> },
    /// Ask.
    Peek { cost: u64 },
    /// Consume, admitted or not.
    Charge { cost: u64 },
    /// Give back.
    Refund { cost: u64 },
    /// Deny for that many microseconds from now; 0 ends a block.
    Block { micros: u64 },
    /// Make a hold last another ttl.
    Renew { hold: HoldId },
    /// Give a hold back.
    Close { hold: HoldId },
    /// Forget the usage.
    Clear,
    /// Tell the newest attempts.
    Journal,
}

impl Operation {
    /// The cost a limit is asked about.
    pub(crate) const fn cost(&self) -> u64 {
        match self {
            Self::Check { cost, .. } | Self::Peek { cost } => *cost,
            _ => 1,
        }
    }
}

/// One thing to do: a policy, a key, an operation.
#[derive(Debug, Clone)]
pub(crate) struct Entry<'a> {
    pub(crate) plan: &'a Arc<Plan>,
    pub(crate) key: &'a str,
    pub(crate) operation: Operation,
}

/// One remembered attempt.
#[derive(Debug, Clone, PartialEq)]
pub struct Attempt {
    /// When, in microseconds since 1970.
    pub at: u64,
    /// Whether it was allowed.
    pub allowed: bool,
    /// The units it asked for.
    pub cost: u64,
    /// What the caller said of it.
    pub meta: Option<Vec<u8>>,
}

/// Who answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Source {
    /// The store.
    #[default]
    Store,
    /// This process, which knew that the key is still denied.
    DenyCache,
    /// This process, from a block of units it took in advance.
    Lease,
    /// Nobody could: `on_store_error` decided.
    Fallback,
}

impl Source {
    /// The word in Decisions.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Store => "store",
            Self::DenyCache => "deny-cache",
            Self::Lease => "lease",
            Self::Fallback => "fallback",
        }
    }
}

/// What came of an entry. For everything but a check and a peek, `applied` says whether there was something to do.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Answer {
    pub(crate) applied: bool,
    pub(crate) now: u64,
    /// When a block ends; 0 is none.
    pub(crate) blocked_until: u64,
    pub(crate) views: Views,
    /// The limits that refused when they were asked, bit by bit, where the views may tell another tale: they are of
    /// the state after a denial that was charged, or after a `check_all` that was undone.
    pub(crate) refused: Option<u16>,
    pub(crate) source: Source,
    /// Denied because the store is missing, not because a limit refused.
    pub(crate) unavailable: bool,
    /// For so many microseconds the denial may be repeated without asking again.
    pub(crate) denied_for: u32,
    /// Of a denial that may be repeated: the states it was read from.
    pub(crate) states: Option<Box<States>>,
    #[expect(clippy::box_collection, reason = "nearly always absent: 8 bytes instead of 24 in every answer")]
    pub(crate) attempts: Option<Box<Vec<Attempt>>>,
}

/// Somebody who collects answers and is told once when all that came together are there.
pub trait Wake: Send + Sync {
    /// More answers are there. Called on whatever thread has them.
    fn wake(&self);
}

/// Whom to wake when all answers that came together are given out.
pub(crate) type WakeTarget = Option<Arc<dyn Wake>>;

/// Called once with the answer, on whatever thread has it.
pub(crate) type Completion = Box<dyn FnOnce(Result<Answer>) -> WakeTarget + Send>;
/// Makes whom to tell, with what the layers have noted; asked for once, and only when the answer has to be waited for.
pub(crate) type MakeCompletion<'a> = &'a mut dyn FnMut(Notes) -> Completion;
/// Called once with the answers of entries that stood or fell together.
pub(crate) type BatchCompletion = Box<dyn FnOnce(Result<Vec<Answer>>) -> WakeTarget + Send>;

/// Called once when the store has answered a ping, or has not.
pub(crate) type PingCompletion = Box<dyn FnOnce(Result<()>) -> WakeTarget + Send>;

/// Those who are to be woken, each once.
#[derive(Default)]
pub(crate) struct WakeSet(SmallVec<[Arc<dyn Wake>; 2]>);

impl WakeSet {
    #[inline]
    pub(crate) fn add(&mut self, home: WakeTarget) {
        if let Some(home) = home
            && !self.0.iter().any(|known| Arc::ptr_eq(known, &home))
        {
            self.0.push(home);
        }
    }
}

impl Drop for WakeSet {
    fn drop(&mut self) {
        self.0.drain(..).for_each(|home| home.wake());
    }
}

/// Gives out an answer that came alone.
pub(crate) fn tell(home: WakeTarget) {
    WakeSet::default().add(home);
}

/// A place where usage lives. `now` is the time to decide by; without it the store uses its own clock.
pub(crate) trait Store: Send + Sync {
    /// Does one thing, on the calling thread.
    fn ask(&self, entry: &Entry<'_>, now: Option<u64>) -> Result<Answer>;
    /// Checks several, all or nothing, on the calling thread.
    fn ask_all(&self, entries: &[Entry<'_>], now: Option<u64>) -> Result<Vec<Answer>>;
    /// Does one thing without waiting: an answer that is there at once is returned, any other is for whom `done` makes.
    /// What waits at the same moment may travel together.
    fn submit(
        &self,
        entry: &Entry<'_>,
        now: Option<u64>,
        notes: &mut Notes,
        done: MakeCompletion<'_>,
    ) -> Option<Result<Answer>>;
    /// What the layers make of an answer that had to be waited for.
    fn after(&self, _entry: &Entry<'_>, _now: Option<u64>, _notes: &Notes, result: Result<Answer>) -> Result<Answer> {
        result
    }
    /// Checks several, all or nothing, without waiting.
    fn submit_all(&self, entries: &[Entry<'_>], now: Option<u64>, done: BatchCompletion);
    /// Those above that take no notes, given up at a moment that others have set: what is asked part by part has one for
    /// all parts. A store that answers at once need not look.
    fn ask_by(&self, entry: &Entry<'_>, now: Option<u64>, by: Instant) -> Result<Answer> {
        let _ = by;
        self.ask(entry, now)
    }
    fn ask_all_by(&self, entries: &[Entry<'_>], now: Option<u64>, by: Instant) -> Result<Vec<Answer>> {
        let _ = by;
        self.ask_all(entries, now)
    }
    fn submit_all_by(&self, entries: &[Entry<'_>], now: Option<u64>, by: Instant, done: BatchCompletion) {
        let _ = by;
        self.submit_all(entries, now, done);
    }
    /// Whether the store answers, and if not, why.
    fn ping(&self) -> Result<()>;
    /// The same, given up at a moment that comes sooner than the store itself would.
    fn ping_by(&self, by: Instant) -> Result<()> {
        let _ = by;
        self.ping()
    }
    /// The same without waiting.
    fn submit_ping(&self, done: PingCompletion);
    /// Ends what is open; what is pending is answered with `closed`.
    fn close(&self);
    /// The answer, if it needs no waiting. Nothing was done when there is none.
    fn try_immediate(&self, entry: &Entry<'_>, now: Option<u64>) -> Option<Result<Answer>>;
}

/// Does one thing without waiting: an answer that is there at once is returned, any other is told whom `told` makes. All
/// that is kept of the call meanwhile lies in one box.
pub(crate) fn submit<T>(
    store: &Arc<dyn Store>,
    entry: &Entry<'_>,
    now: Option<u64>,
    told: impl FnOnce() -> T,
) -> Option<Result<Answer>>
where
    T: FnOnce(Owned, Result<Answer>) -> WakeTarget + Send + 'static,
{
    submit_by(store, entry, now, None, told)
}

fn submit_by<T>(
    store: &Arc<dyn Store>,
    entry: &Entry<'_>,
    now: Option<u64>,
    by: Option<Instant>,
    told: impl FnOnce() -> T,
) -> Option<Result<Answer>>
where
    T: FnOnce(Owned, Result<Answer>) -> WakeTarget + Send + 'static,
{
    let mut told = Some(told);
    store.submit(entry, now, &mut Notes::of(by), &mut |notes| {
        let (layers, asked, told) = (Arc::clone(store), Owned::from(entry), told.take().map(|told| told()));
        Box::new(move |result| {
            let result = layers.after(&asked.entry(), now, &notes, result);
            told.and_then(|told| told(asked, result))
        })
    })
}

/// The same for somebody who is told in any case, given up at that moment.
pub(crate) fn submit_to(
    store: &Arc<dyn Store>,
    entry: &Entry<'_>,
    now: Option<u64>,
    by: Option<Instant>,
    told: impl FnOnce(Result<Answer>) -> WakeTarget + Send + 'static,
) -> WakeTarget {
    let mut told = Some(told);
    let at_once = submit_by(store, entry, now, by, || {
        let told = told.take();
        move |_, result| told.and_then(|told| told(result))
    });
    at_once.and_then(|result| told.and_then(|told| told(result)))
}
