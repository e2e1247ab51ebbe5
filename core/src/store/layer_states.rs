//! What the layers around a store remember of a call until its answer arrives. A call that waits is kept in one box, and this
//! is a part of it.

use std::time::Instant;

/// What each layer remembers of a call.
#[derive(Clone, Copy, Default)]
pub(crate) struct LayerStates {
    /// A check from which the deny cache may learn.
    pub(crate) deny_cache: Option<SentCheck>,
    /// Which of the stores of a rollout was asked: the key may belong to another one by the time of the answer.
    pub(crate) rollout: u32,
    /// Which shard was asked.
    pub(crate) shard: u32,
    pub(crate) breaker: SentCall,
    /// When the call gives up, which a repetition of it has to know.
    #[cfg_attr(not(feature = "redis"), expect(dead_code, reason = "no store of this build waits"))]
    pub(crate) deadline: Option<Instant>,
}

/// What the deny cache knows when a check is sent.
#[derive(Clone, Copy)]
pub(crate) struct SentCheck {
    pub(crate) hash: u64,
    /// The generation of its key then: when it is another one afterwards, the answer may be older than a change of usage.
    pub(crate) generation: u32,
    pub(crate) sent: u64,
    /// Whether the cache had a denial of the key.
    pub(crate) known: bool,
}

/// What the breaker knows when a call is sent.
#[derive(Clone, Copy, Default)]
pub(crate) struct SentCall {
    /// The epoch of its circuit.
    pub(crate) epoch: u64,
    /// When it was sent, by the clock of the circuit.
    pub(crate) at: u64,
    /// Whether it had too little time for a timeout to say anything about the store.
    pub(crate) had_little_time: bool,
}
