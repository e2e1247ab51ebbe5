//! The calls of a schedule.

use std::sync::Arc;

use super::servers::Layout;
use super::world::World;
use crate::plan::Plan;
use crate::policy::Policy;
use crate::store::redis::protocol::{CallState, PendingCall, Recipient, hash_slot};
use crate::store::redis::script::{Grouping, Request};
use crate::store::request::{Entry, Operation};

/// Makes the calls of a schedule, each about a key of its own.
pub(super) struct Calls {
    plan: Arc<Plan>,
    keys: u64,
    reads_replicas: bool,
    has_slots: bool,
}

thread_local! {
    static PLAN: Arc<Plan> = Plan::of(&Policy::parse("fixed-window 5/minute").expect("a policy"));
}

impl Calls {
    pub(super) fn new(reads_replicas: bool, layout: Layout) -> Self {
        let plan = PLAN.with(Arc::clone);
        Self { plan, keys: 0, reads_replicas, has_slots: layout == Layout::Cluster }
    }

    /// A request about a key of its own.
    fn request(&mut self, operation: Operation) -> Request {
        self.keys += 1;
        let key = self.keys.to_string();
        Request::new(&"tg".into(), &Entry { plan: &self.plan, key: &key, operation })
    }

    fn slot(&self, request: &Request) -> u16 {
        if self.has_slots { hash_slot(request.redis_key.as_bytes()) } else { 0 }
    }
}

impl World {
    /// One caller, or several at the same moment.
    pub(super) fn call(&mut self) {
        let several = if self.random.chance(200) { self.random.between(2, 12) } else { 1 };
        for _ in 0..several {
            match self.random.below(10) {
                0 | 1 => self.call_all(),
                2 | 3 => self.call_one(Operation::Peek { cost: 1 }),
                _ => self.check(),
            }
        }
    }

    pub(super) fn check(&mut self) {
        self.call_one(Operation::Check { cost: 1, hold: 0, meta: None });
    }

    fn deadline(&self) -> u64 {
        self.now + self.timeout.as_micros() as u64
    }

    fn call_one(&mut self, operation: Operation) {
        let deadline = self.deadline();
        let is_read = matches!(operation, Operation::Peek { .. });
        let request = self.calls.request(operation);
        let slot = self.calls.slot(&request);
        let caller = self.ledger.call(vec![request.redis_key.as_bytes().to_vec()], is_read, self.now, deadline);
        let call = PendingCall {
            requests: std::iter::once(request).collect(),
            grouping: Grouping::Independent,
            time: None,
            slot,
            state: CallState::new(self.instant(deadline), is_read && self.calls.reads_replicas),
            recipient: Recipient::One(caller),
        };
        self.router.submit(call, self.instant(self.now));
    }

    /// Requests that stand or fall together, of one slot or of several.
    fn call_all(&mut self) {
        let (deadline, count) = (self.deadline(), self.random.between(1, 4));
        let check = Operation::Check { cost: 1, hold: 0, meta: None };
        let requests: Vec<Request> = (0..count).map(|_| self.calls.request(check.clone())).collect();
        let slots: Vec<u16> = requests.iter().map(|request| self.calls.slot(request)).collect();
        let names = requests.iter().map(|request| request.redis_key.as_bytes().to_vec()).collect();
        let caller = self.ledger.call(names, false, self.now, deadline);
        let (now, until) = (self.instant(self.now), self.instant(deadline));
        if slots.iter().any(|slot| *slot != slots[0]) {
            return self.router.submit_transaction(requests, &slots, None, until, caller, now);
        }
        let call = PendingCall {
            requests: requests.into(),
            grouping: Grouping::AllOrNothing,
            time: None,
            slot: slots[0],
            state: CallState::by_itself(until),
            recipient: Recipient::All(caller),
        };
        self.router.submit(call, now);
    }
}
