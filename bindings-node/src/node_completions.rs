//! Answers that wait for the event loop to fetch them.

use std::collections::HashMap;

use napi::Status;
use napi::threadsafe_function::{ThreadsafeFunction, ThreadsafeFunctionCallMode};
use parking_lot::Mutex;
use tidegate::host::{CompletionQueue, Outcome, Wake};
use tidegate::{Attempt, Error, Hold, Result};

use crate::answer_record::{write_attachment, write_decision, write_nothing};
use crate::array_layout::{AnswerKind, FIRST_TASK_TICKET};

/// Calls JavaScript from any thread. Weak: an open limiter does not keep a process alive.
pub(crate) type WakeCallback = ThreadsafeFunction<(), (), (), Status, false, true, 0>;

/// The part of an answer that is not a number. JavaScript fetches it by its number.
pub(crate) enum Attachment {
    Error(Error),
    Hold(Hold),
    Attempts(Vec<Attempt>),
}

#[derive(Default)]
struct Attachments {
    by_number: HashMap<u64, Attachment>,
    last: u64,
}

impl Attachments {
    fn store(&mut self, attachment: Attachment) -> u64 {
        self.last += 1;
        self.by_number.insert(self.last, attachment);
        self.last
    }

    /// Writes an outcome. A hold is written as its number, followed by its Decision.
    fn write(&mut self, out: &mut Vec<f64>, ticket: u64, outcome: Result<Outcome>) {
        let (kind, attachment) = match outcome {
            Ok(Outcome::Decision(decision)) => return write_decision(out, ticket, &decision),
            Ok(Outcome::Nothing) => return write_nothing(out, ticket),
            Ok(Outcome::Hold(hold)) => {
                let decision = hold.decision().clone();
                write_attachment(out, ticket, AnswerKind::Hold, self.store(Attachment::Hold(hold)));
                return write_decision(out, ticket, &decision);
            }
            Ok(Outcome::Attempts(attempts)) => (AnswerKind::Attempts, Attachment::Attempts(attempts)),
            Err(error) => (AnswerKind::Error, Attachment::Error(error)),
        };
        write_attachment(out, ticket, kind, self.store(attachment));
    }
}

#[derive(Default)]
struct Delivered {
    records: Vec<f64>,
    /// Answers to calls in `records`; those to tasks do not count.
    answered: usize,
    attachments: Attachments,
    /// Whether JavaScript was called and has not fetched yet.
    wake_requested: bool,
}

/// The completion queue of a limiter: the core delivers to it from any thread, JavaScript fetches everything in one call.
pub(crate) struct NodeCompletions {
    delivered: Mutex<Delivered>,
    wake_callback: WakeCallback,
}

impl NodeCompletions {
    pub(crate) fn new(wake_callback: WakeCallback) -> Self {
        Self { delivered: Mutex::default(), wake_callback }
    }

    /// Writes an outcome that is returned to JavaScript at once.
    pub(crate) fn write(&self, out: &mut Vec<f64>, ticket: u64, outcome: Result<Outcome>) {
        if let Ok(Outcome::Decision(decision)) = &outcome {
            return write_decision(out, ticket, decision);
        }
        self.delivered.lock().attachments.write(out, ticket, outcome);
    }

    /// Takes an attachment out.
    pub(crate) fn take(&self, number: u64) -> Option<Attachment> {
        self.delivered.lock().attachments.by_number.remove(&number)
    }

    /// The caller is about to collect: answers that are delivered until then need no wake-up.
    #[cfg(target_os = "linux")]
    pub(crate) fn expect_collect(&self) {
        self.delivered.lock().wake_requested = true;
    }

    /// Takes all records, in exchange for an empty vector whose memory is used again. How many calls they answer.
    pub(crate) fn collect(&self, records: &mut Vec<f64>) -> usize {
        records.clear();
        let mut delivered = self.delivered.lock();
        delivered.wake_requested = false;
        std::mem::swap(&mut delivered.records, records);
        std::mem::take(&mut delivered.answered)
    }
}

impl Wake for NodeCompletions {
    fn wake(&self) {
        let mut delivered = self.delivered.lock();
        if delivered.wake_requested || delivered.records.is_empty() {
            return;
        }
        delivered.wake_requested = true;
        drop(delivered);
        // It fails when the event loop is being torn down. Then there is no caller left.
        let _ = self.wake_callback.call((), ThreadsafeFunctionCallMode::NonBlocking);
    }
}

impl CompletionQueue for NodeCompletions {
    fn deliver(&self, ticket: u64, outcome: Result<Outcome>) {
        let mut delivered = self.delivered.lock();
        let Delivered { records, answered, attachments, .. } = &mut *delivered;
        *answered += usize::from(is_call(ticket));
        // By reference, so that the Decision is dropped when the lock is not held.
        if let Ok(Outcome::Decision(decision)) = &outcome {
            return write_decision(records, ticket, decision);
        }
        attachments.write(records, ticket, outcome);
    }
}

/// Whether a ticket belongs to a call, and not to a task.
pub(crate) const fn is_call(ticket: u64) -> bool {
    ticket < FIRST_TASK_TICKET as u64
}
