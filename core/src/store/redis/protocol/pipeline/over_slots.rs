//! What a pipeline does when a server does not serve a call over several slots, or only a part of it. What did not run goes
//! again, each call by itself, as a call of its own slot: its reply says where it belongs.

use redis::Value;

use super::{Callers, PendingCall, ServerPipeline};
use crate::store::redis::protocol::batching::ALL_SLOTS;
use crate::store::redis::protocol::in_flight::ScriptCall;

/// Where so many keys of a call are refused, all but the declared one, they have not moved: this server, or a proxy before it,
/// serves no undeclared keys.
const NEVER_SERVED: usize = 8;

impl<C: Callers> ServerPipeline<C> {
    /// Nothing of the batch ran. `known` says whether the server knows calls over several slots.
    pub(super) fn send_apart(&mut self, batch: ScriptCall<C>, known: bool) {
        if !known {
            self.keep_slots_apart();
        }
        let calls = batch.into_calls().collect();
        self.send_alone(calls);
    }

    /// Takes those calls out of an answered batch whose keys are not on this server.
    pub(super) fn send_elsewhere(&mut self, batch: &mut ScriptCall<C>, reply: &Value) {
        let not_local = batch.batch.not_local(reply);
        if not_local.len() >= NEVER_SERVED && not_local.len() + 1 >= batch.members.len() {
            self.keep_slots_apart();
        }
        let calls = batch.take(&not_local);
        self.send_alone(calls);
    }

    fn send_alone(&mut self, calls: Vec<PendingCall<C>>) {
        for mut call in calls.into_iter().rev() {
            call.state.alone = true;
            self.enqueue(call, true);
        }
    }

    /// From now on each slot has batches of its own.
    fn keep_slots_apart(&mut self) {
        self.crosses_slots = false;
        let Some(queue) = self.queues.get_mut(&ALL_SLOTS) else { return };
        let waiting = std::mem::take(&mut queue.waiting);
        self.waiting -= waiting.len();
        for call in waiting {
            self.enqueue(call, false);
        }
    }
}
