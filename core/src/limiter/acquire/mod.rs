//! How `acquire` waits: one queue per policy and key, so that callers are admitted in the order they came.

mod queue_estimate;
mod queue_position;
mod wait_deadline;
mod wait_queue;
mod wait_queues;

pub(super) use queue_estimate::QueueEstimate;
pub(super) use wait_deadline::WaitDeadline;
pub(super) use wait_queues::{Joined, WaitBounds, WaitQueues};
