//! Where answers are delivered that an event loop waits for. One wake-up brings all answers that arrived together.

use super::hold::Hold;
use super::overrides::OverriddenKey;
use crate::decision::Decision;
use crate::error::Result;
use crate::store::completion::Wake;
use crate::store::request::Attempt;

/// A queue of answers. [`Wake::wake`] is called once after all answers that arrived together.
pub trait CompletionQueue: Wake {
    /// The answer to the call with that ticket, on the thread that received it. It must only be put on a list.
    fn deliver(&self, ticket: u64, outcome: Result<Outcome>);
}

/// The answer to a call.
#[derive(Debug)]
pub enum Outcome {
    /// Answers `check`, `peek`, `charge`, `refund`, `check_all` and `acquire`.
    Decision(Decision),
    /// Answers a `hold` for which there was room.
    Hold(Hold),
    /// Answers `journal`.
    Attempts(Vec<Attempt>),
    /// Answers `overrides`.
    Overrides(Vec<OverriddenKey>),
    /// Answers calls that return nothing.
    Nothing,
}
