//! A call that waits, and who waits for it.

use smallvec::SmallVec;
use tokio::time::Instant;

use super::script::{Grouping, Request};
use crate::error::{Error, Result};
use crate::store::completion::{BatchCompletion, Completion, WakeTarget};
use crate::store::request::Answer;

pub(super) enum Waiter {
    One(Completion),
    All(BatchCompletion),
}

impl Waiter {
    pub(super) fn fail(self, error: &Error) -> WakeTarget {
        match self {
            Self::One(done) => done(Err(error.clone())),
            Self::All(done) => done(Err(error.clone())),
        }
    }

    /// Takes as many answers as are its own.
    pub(super) fn answer(
        self,
        answers: &mut impl Iterator<Item = Result<Answer>>,
        count: usize,
        none: impl FnOnce() -> Error,
    ) -> WakeTarget {
        match self {
            Self::One(done) => done(answers.next().unwrap_or_else(|| Err(none()))),
            Self::All(done) => done(answers.take(count).collect::<Result<Vec<Answer>>>()),
        }
    }
}

pub(super) struct Job {
    pub(super) requests: SmallVec<[Request; 1]>,
    pub(super) grouping: Grouping,
    pub(super) now: Option<u64>,
    pub(super) slot: u16,
    pub(super) ride: Ride,
    pub(super) waiter: Waiter,
}

/// What a call needs to know while it is under way.
#[derive(Clone, Copy)]
pub(super) struct Ride {
    /// When its caller gives up.
    pub(super) deadline: Instant,
    /// When the one who is asked now is given up.
    pub(super) until: Instant,
    /// Whether a replica may answer.
    pub(super) reads: bool,
    /// Whether it was turned away as one of several: it travels by itself then.
    pub(super) alone: bool,
    /// How often it was sent elsewhere.
    pub(super) hops: u8,
}

impl Ride {
    pub(super) const fn new(deadline: Instant, reads: bool) -> Self {
        Self { deadline, until: deadline, reads, alone: false, hops: 0 }
    }
}

impl Job {
    pub(super) fn one(request: Request, now: Option<u64>, slot: u16, ride: Ride, done: Completion) -> Self {
        let requests = std::iter::once(request).collect();
        Self { requests, grouping: Grouping::Independent, now, slot, ride, waiter: Waiter::One(done) }
    }

    pub(super) fn all(
        requests: Vec<Request>,
        grouping: Grouping,
        now: Option<u64>,
        slot: u16,
        deadline: Instant,
        done: BatchCompletion,
    ) -> Self {
        let ride = Ride { alone: true, ..Ride::new(deadline, false) };
        Self { requests: requests.into(), grouping, now, slot, ride, waiter: Waiter::All(done) }
    }

    pub(super) fn fail(self, error: &Error) -> WakeTarget {
        self.waiter.fail(error)
    }

    /// What must agree for two jobs to travel together: nothing for a job that stands or falls as a whole.
    pub(super) fn fold(&self) -> Option<(Option<u64>, bool)> {
        match self.grouping {
            Grouping::Independent if !self.ride.alone => Some((self.now, self.requests[0].plan.has_companions())),
            _ => None,
        }
    }
}
