//! The transactions over several slots that are under way.

use std::time::Instant;

use super::Router;
use crate::error::{Error, Result};
use crate::store::redis::protocol::call::CallState;
use crate::store::redis::protocol::pending_call::{
    Callers, Completed, Completions, GroupReply, PendingCall, Recipient,
};
use crate::store::redis::protocol::transaction::{CrossSlotTransaction, GroupCall, Progress};
use crate::store::redis::script::Request;
use crate::store::request::Answer;

/// The transactions under way. A finished transaction leaves its place to another.
pub(super) struct Transactions<C: Callers> {
    places: Vec<Option<Underway<C>>>,
}

struct Underway<C: Callers> {
    transaction: CrossSlotTransaction,
    time: Option<u64>,
    /// `None` once the caller has its answer.
    caller: Option<C::All>,
}

impl<C: Callers> Default for Transactions<C> {
    fn default() -> Self {
        Self { places: Vec::new() }
    }
}

impl<C: Callers> Transactions<C> {
    fn insert(&mut self, underway: Underway<C>) -> usize {
        let place = self.places.iter().position(Option::is_none).unwrap_or_else(|| {
            self.places.push(None);
            self.places.len() - 1
        });
        self.places[place] = Some(underway);
        place
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.places.iter().all(Option::is_none)
    }

    pub(super) fn close(&mut self, error: &Error, completions: &mut Completions<C>) {
        completions.groups.clear();
        for caller in self.places.drain(..).flatten().filter_map(|underway| underway.caller) {
            completions.fail(Recipient::All(caller), error);
        }
    }
}

impl<C: Callers> Router<C> {
    /// Takes requests of several slots, which stand or fall together. `slots` are those of the requests.
    pub(crate) fn submit_transaction(
        &mut self,
        requests: Vec<Request>,
        slots: &[u16],
        time: Option<u64>,
        deadline: Instant,
        caller: C::All,
        now: Instant,
    ) {
        let mut transaction = CrossSlotTransaction::new(requests, slots, deadline, self.directory.timeout());
        let calls = transaction.begin();
        let place = self.transactions.insert(Underway { transaction, time, caller: Some(caller) });
        self.send_groups(place, time, calls, now);
        self.settle(now);
    }

    fn send_groups(&mut self, transaction: usize, time: Option<u64>, calls: Vec<GroupCall>, now: Instant) {
        for GroupCall { group, slot, requests, grouping, deadline } in calls {
            let state = CallState::by_itself(deadline);
            let recipient = Recipient::Group { transaction, group };
            let call = PendingCall { requests: requests.into(), grouping, time, slot, state, recipient };
            self.route(call, now);
        }
    }

    /// Lets the transactions go on whose groups have answered.
    pub(super) fn advance_transactions(&mut self, now: Instant) {
        for GroupReply { transaction: place, group, answers } in std::mem::take(&mut self.effects.completions.groups) {
            let Some(Some(underway)) = self.transactions.places.get_mut(place) else { continue };
            let Progress { result, calls } = underway.transaction.handle_reply(group, answers, now);
            let (time, finished) = (underway.time, underway.transaction.is_finished());
            let caller = result.and_then(|result| Some((underway.caller.take()?, result)));
            if finished {
                self.transactions.places[place] = None;
            }
            if let Some((caller, result)) = caller {
                self.complete(caller, result);
            }
            self.send_groups(place, time, calls, now);
        }
    }

    fn complete(&mut self, caller: C::All, result: Result<Vec<Answer>>) {
        self.effects.completions.callers.push(Completed::All(caller, result));
    }
}
