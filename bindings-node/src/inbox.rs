//! Where answers wait for the event loop, and the one call that fetches it.

use std::collections::HashMap;

use napi::Status;
use napi::threadsafe_function::{ThreadsafeFunction, ThreadsafeFunctionCallMode};
use parking_lot::Mutex;
use tidegate::{Attempt, Error, Hold, Inbox, Outcome, Result, Wake};

use crate::record;

/// The call into JavaScript. Weak: an open limiter does not keep a process alive.
pub(crate) type Bell = ThreadsafeFunction<(), (), (), Status, false, true, 0>;

/// What is no number.
pub(crate) enum Parcel {
    Failure(Error),
    Hold(Hold),
    Attempts(Vec<Attempt>),
}

/// What waits to be fetched.
#[derive(Default)]
pub(crate) struct Post {
    pub(crate) records: Vec<f64>,
    parcels: HashMap<u64, Parcel>,
    last: u64,
    /// Whether JavaScript was told and has not looked yet.
    rung: bool,
}

impl Post {
    fn store(&mut self, parcel: Parcel) -> u64 {
        self.last += 1;
        self.parcels.insert(self.last, parcel);
        self.last
    }
}

/// See the module.
pub(crate) struct Letters {
    post: Mutex<Post>,
    bell: Bell,
}

impl Letters {
    pub(crate) fn new(bell: Bell) -> Self {
        Self { post: Mutex::default(), bell }
    }

    /// Writes an outcome down. A hold is written as its number, followed by its Decision.
    pub(crate) fn write(&self, out: &mut Vec<f64>, ticket: u64, outcome: Result<Outcome>) {
        let (what, parcel) = match outcome {
            Ok(Outcome::Decision(decision)) => return record::decision(out, ticket, &decision),
            Ok(Outcome::Nothing) => return record::nothing(out, ticket),
            Ok(Outcome::Hold(hold)) => {
                let decision = hold.decision().clone();
                record::parcel(out, ticket, record::HOLD, self.post.lock().store(Parcel::Hold(hold)));
                return record::decision(out, ticket, &decision);
            }
            Ok(Outcome::Attempts(attempts)) => (record::ATTEMPTS, Parcel::Attempts(attempts)),
            Err(error) => (record::FAILURE, Parcel::Failure(error)),
        };
        record::parcel(out, ticket, what, self.post.lock().store(parcel));
    }

    /// Takes a parcel out.
    pub(crate) fn take(&self, number: u64) -> Option<Parcel> {
        self.post.lock().parcels.remove(&number)
    }

    /// Who calls this is about to look: nothing that comes until then is told.
    #[cfg(target_os = "linux")]
    pub(crate) fn looks(&self) {
        self.post.lock().rung = true;
    }

    /// Takes all records, for space that is reused.
    pub(crate) fn collect(&self, space: &mut Vec<f64>) {
        space.clear();
        let mut post = self.post.lock();
        post.rung = false;
        std::mem::swap(&mut post.records, space);
    }
}

impl Wake for Letters {
    fn wake(&self) {
        let mut post = self.post.lock();
        if post.rung || post.records.is_empty() {
            return;
        }
        post.rung = true;
        drop(post);
        // A loop that is being torn down does not want to know.
        let _ = self.bell.call((), ThreadsafeFunctionCallMode::NonBlocking);
    }
}

impl Inbox for Letters {
    fn deliver(&self, ticket: u64, outcome: Result<Outcome>) {
        let mut post = self.post.lock();
        if let Ok(Outcome::Decision(decision)) = &outcome {
            return record::decision(&mut post.records, ticket, decision);
        }
        drop(post);
        // What is rare is written outside the lock, which it needs itself.
        let mut record = Vec::new();
        self.write(&mut record, ticket, outcome);
        self.post.lock().records.append(&mut record);
    }
}
