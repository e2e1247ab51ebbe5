//! Where answers wait for the event loop, and the one call that fetches it.

use std::collections::HashMap;

use napi::Status;
use napi::threadsafe_function::{ThreadsafeFunction, ThreadsafeFunctionCallMode};
use parking_lot::Mutex;
use tidegate::host::{CompletionQueue, Outcome, Wake};
use tidegate::{Attempt, Error, Hold, Result};

use crate::answer_record;

/// The call into JavaScript. Weak: an open limiter does not keep a process alive.
pub(crate) type WakeCallback = ThreadsafeFunction<(), (), (), Status, false, true, 0>;

/// What is no number.
pub(crate) enum Attachment {
    Failure(Error),
    Hold(Hold),
    Attempts(Vec<Attempt>),
}

/// What waits to be fetched.
#[derive(Default)]
pub(crate) struct Post {
    pub(crate) records: Vec<f64>,
    attachments: HashMap<u64, Attachment>,
    last: u64,
    /// Whether JavaScript was told and has not looked yet.
    wake_requested: bool,
}

impl Post {
    fn store(&mut self, attachment: Attachment) -> u64 {
        self.last += 1;
        self.attachments.insert(self.last, attachment);
        self.last
    }
}

/// See the module.
pub(crate) struct NodeCompletions {
    post: Mutex<Post>,
    wake_callback: WakeCallback,
}

impl NodeCompletions {
    pub(crate) fn new(wake_callback: WakeCallback) -> Self {
        Self { post: Mutex::default(), wake_callback }
    }

    /// Writes an outcome down. A hold is written as its number, followed by its Decision.
    pub(crate) fn write(&self, out: &mut Vec<f64>, ticket: u64, outcome: Result<Outcome>) {
        let (what, attachment) = match outcome {
            Ok(Outcome::Decision(decision)) => return answer_record::decision(out, ticket, &decision),
            Ok(Outcome::Nothing) => return answer_record::nothing(out, ticket),
            Ok(Outcome::Hold(hold)) => {
                let decision = hold.decision().clone();
                answer_record::attachment(
                    out,
                    ticket,
                    answer_record::HOLD,
                    self.post.lock().store(Attachment::Hold(hold)),
                );
                return answer_record::decision(out, ticket, &decision);
            }
            Ok(Outcome::Attempts(attempts)) => (answer_record::ATTEMPTS, Attachment::Attempts(attempts)),
            Err(error) => (answer_record::FAILURE, Attachment::Failure(error)),
        };
        answer_record::attachment(out, ticket, what, self.post.lock().store(attachment));
    }

    /// Takes an attachment out.
    pub(crate) fn take(&self, number: u64) -> Option<Attachment> {
        self.post.lock().attachments.remove(&number)
    }

    /// Who calls this is about to look: nothing that comes until then is told.
    #[cfg(target_os = "linux")]
    pub(crate) fn expect_collect(&self) {
        self.post.lock().wake_requested = true;
    }

    /// Takes all records, for space that is reused.
    pub(crate) fn collect(&self, space: &mut Vec<f64>) {
        space.clear();
        let mut post = self.post.lock();
        post.wake_requested = false;
        std::mem::swap(&mut post.records, space);
    }
}

impl Wake for NodeCompletions {
    fn wake(&self) {
        let mut post = self.post.lock();
        if post.wake_requested || post.records.is_empty() {
            return;
        }
        post.wake_requested = true;
        drop(post);
        // A loop that is being torn down does not want to know.
        let _ = self.wake_callback.call((), ThreadsafeFunctionCallMode::NonBlocking);
    }
}

impl CompletionQueue for NodeCompletions {
    fn deliver(&self, ticket: u64, outcome: Result<Outcome>) {
        let mut post = self.post.lock();
        if let Ok(Outcome::Decision(decision)) = &outcome {
            return answer_record::decision(&mut post.records, ticket, decision);
        }
        drop(post);
        // What is rare is written outside the lock, which it needs itself.
        let mut record = Vec::new();
        self.write(&mut record, ticket, outcome);
        self.post.lock().records.append(&mut record);
    }
}
