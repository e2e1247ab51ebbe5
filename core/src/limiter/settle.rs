//! A Decision is settled once.

use super::{LimiterCore, difference};
use crate::decision::Decision;
use crate::error::{Error, Result};
use crate::store::request::Operation;

/// The entries of a Decision that are being settled.
pub(super) struct Settling<'a> {
    entries: &'a [Decision],
    actual: u64,
    begun: usize,
}

impl<'a> Settling<'a> {
    /// # Errors
    /// `cost_invalid`; `config_invalid` for a Decision of another limiter, and for one that was settled.
    pub(super) fn begin(core: &LimiterCore, decision: &'a Decision, actual: u64) -> Result<Self> {
        core.open()?;
        let parts = decision.decisions();
        let entries = if parts.is_empty() { std::slice::from_ref(decision) } else { parts };
        for entry in entries {
            difference(entry.granted(), actual)?;
            if entry.limiter() != core.id {
                return Err(Error::config(
                    "settle was given a Decision of another limiter: settle it with the limiter that made it, or with one of \
                     the same store and prefix",
                ));
            }
        }
        // Dropping it takes back what it has begun.
        let mut settling = Self { entries: &[], actual, begun: 0 };
        for (index, entry) in entries.iter().enumerate() {
            if !entry.settlement().begin() {
                return Err(Error::config(format!(
                    "this Decision about {:?} was settled before: a Decision is settled once",
                    entry.policy()
                )));
            }
            settling.entries = &entries[..=index];
        }
        Ok(settling)
    }

    /// The next entry for which there is something to do.
    pub(super) fn next(&mut self) -> Result<Option<(&'a Decision, Operation)>> {
        while let Some(entry) = self.entries.get(self.begun) {
            self.begun += 1;
            if let Some(operation) = difference(entry.granted(), self.actual)? {
                return Ok(Some((entry, operation)));
            }
        }
        Ok(None)
    }

    /// The last entry could not be settled: it may be settled again.
    pub(super) fn failed(&mut self) {
        self.begun = self.begun.saturating_sub(1);
    }
}

impl Drop for Settling<'_> {
    fn drop(&mut self) {
        for entry in self.entries.iter().skip(self.begun) {
            entry.settlement().undo();
        }
    }
}
