//! The time from a store's last sign of life to its next.

use std::sync::OnceLock;
use std::sync::atomic::AtomicBool;
use std::thread::Thread;
use std::time::{Instant, SystemTime};

use crate::error::Error;
use crate::process::fork;

/// One outage of a store, from its last sign of life on.
pub(super) struct Outage {
    /// Probing threads belong to this process: a forked child has none and asks the store itself.
    pub(super) process: u64,
    pub(super) cause: Error,
    /// The error of calls that are not sent.
    pub(super) error: Error,
    pub(super) since: SystemTime,
    pub(super) began: Instant,
    /// Whether a probe has found that it is over.
    pub(super) over: AtomicBool,
    pub(super) probers: [OnceLock<Thread>; 2],
}

impl Outage {
    /// `shown` is the store's URL without secrets.
    pub(super) fn new(shown: &str, cause: Error) -> Self {
        let error = Error::new(cause.kind(), format!("{shown} is not asked until it answers again: {cause}"));
        let (since, began) = (SystemTime::now(), Instant::now());
        let (over, probers) = (AtomicBool::new(false), Default::default());
        Self { process: fork::generation(), cause, error, since, began, over, probers }
    }

    pub(super) fn is_of_this_process(&self) -> bool {
        self.process == fork::generation()
    }
}
