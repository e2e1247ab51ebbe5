//! The flows of a request, of a call that goes out and of a job, once for all hosts: see
//! [ADR 0048](../../../docs/adr/0048-gather-ask-finish.md).

mod admission;
mod job_wait;
mod outgoing_turn;

#[cfg(feature = "tower")]
pub(crate) use admission::give_back;
pub use admission::{Admission, AskedStep};
#[cfg(feature = "tower")]
pub(crate) use job_wait::random_share;
pub use job_wait::{RefusedJob, RefusingLimit};
pub use outgoing_turn::OutgoingCall;
