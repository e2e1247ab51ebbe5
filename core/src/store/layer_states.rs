//! The state that the layers around a store keep for a call until its answer arrives. A call that waits is kept in one
//! box, and this is a part of it.

use std::time::Instant;

/// The state of each layer for a call.
#[derive(Clone, Copy, Default)]
pub(crate) struct LayerStates {
    /// A check from which the deny cache may learn.
    pub(crate) deny_cache: Option<SentCheck>,
    /// The store of a rollout that was asked: the key may belong to another one by the time of the answer.
    pub(crate) rollout: u32,
    /// The shard that was asked.
    pub(crate) shard: u32,
    pub(crate) breaker: SentCall,
    /// When the call gives up. A repetition of it needs this.
    #[cfg_attr(not(feature = "redis"), expect(dead_code, reason = "no store of this build waits"))]
    pub(crate) deadline: Option<Instant>,
}

/// A check as the deny cache remembers it when it is sent.
#[derive(Clone, Copy)]
pub(crate) struct SentCheck {
    pub(crate) hash: u64,
    /// The generation of its key then. If it is another one afterwards, the answer may be older than a change of usage.
    pub(crate) generation: u32,
    pub(crate) sent: u64,
    /// True if the cache had a denial of the key.
    pub(crate) known: bool,
}

/// A call as the breaker remembers it when it is sent.
#[derive(Clone, Copy, Default)]
pub(crate) struct SentCall {
    /// The epoch of its circuit.
    pub(crate) epoch: u64,
    /// When it was sent, by the clock of the circuit.
    pub(crate) at: u64,
    /// True if it had so little time that a timeout proves nothing about the store.
    pub(crate) had_little_time: bool,
}
