//! The transport as a state machine. It owns no socket, no thread, no waker and no clock. The drivers in `io` move its
//! bytes and pass it the time. See docs/adr/0011.

mod call;
mod call_queues;
mod connection;
mod discovery;
mod effects;
mod exchange;
mod failure;
mod handshake;
mod in_flight;
mod in_step;
mod pending_call;
mod pipeline;
mod redirect;
mod resp;
mod router;
mod schedule;
mod server_directory;
mod topology;
mod topology_reply;
mod transaction;

pub(super) use call::{CallState, NextStep, Obstacle, RETRY_PAUSE};
pub(super) use call_queues::MAX_BATCH_DELAY;
pub(super) use discovery::{Discovery, Probe, ProbeReply};
pub(super) use effects::Action;
pub(super) use effects::ConnectionId;
pub(super) use exchange::Exchange;
pub(super) use failure::{
    Failure, closed_by_server, malformed, no_answer, not_followed, out_of_step, refused, timed_out, uncovered,
};
pub(super) use handshake::{ExpectedRole, Handshake};
pub(super) use in_step::{MAX_SHORT_REPLY, is_in_step, write_question};
pub(super) use pending_call::{Callers, Completed, PendingCall, Recipient};
pub(super) use redirect::ReplyMeaning;
pub(crate) use resp::ReplyBuffer;
pub(super) use router::Router;
pub(super) use schedule::{DiscoverySchedule, script_pause};
pub(super) use server_directory::{Server, ServerDirectory, Target};
pub(super) use topology::{Topology, hash_slot};
