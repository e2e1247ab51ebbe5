//! What only the bindings to other languages use: calls as data, answers delivered to a queue of an event loop, and event
//! loops that read replies themselves. No part of the public surface.

mod async_limiter;
mod call;
mod completion_queue;
mod limiter;
mod parts;
mod reply_poller;
mod tasks;

pub use crate::fork::generation as process_generation;
pub use crate::store::batch_guard::{BatchGuard, cohort_size};
pub use crate::store::completion::Wake;
pub use async_limiter::{ChargedUnits, HostAsyncLimiter};
pub use call::Call;
pub use completion_queue::{CompletionQueue, Outcome};
pub use limiter::HostLimiter;
pub use parts::Parts;
pub use reply_poller::ReplyPoller;
pub use tasks::{Started, Task, post_begun, post_task};

use crate::error::Result;
use crate::plan_cache::plan_of;
use crate::policy::{Policy, Warning};

/// Every warning about what a text names: a policy file, by its path, or a notation.
///
/// # Errors
/// `policy_invalid`, as for the file or the notation.
pub fn lint_text(text: &str) -> Result<Vec<Warning>> {
    crate::policy::lint_text(text)
}

/// The memory that a policy takes, for lists of policies that are bounded in bytes.
#[must_use]
pub fn policy_bytes(policy: &Policy) -> usize {
    plan_of(policy).bytes()
}
