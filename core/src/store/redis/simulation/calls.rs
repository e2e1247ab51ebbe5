//! The calls of a schedule.

use std::sync::Arc;

use super::servers::Layout;
use crate::plan::Plan;
use crate::policy::Policy;
use crate::store::redis::protocol::hash_slot;
use crate::store::redis::script::Request;
use crate::store::request::{Entry, Operation};

/// Makes the calls of a schedule, each for a new key.
pub(super) struct Calls {
    plan: Arc<Plan>,
    keys: u64,
    pub(super) reads_replicas: bool,
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

    /// A request for a new key.
    pub(super) fn request(&mut self, operation: Operation) -> Request {
        self.keys += 1;
        let key = self.keys.to_string();
        Request::new(&"tg".into(), &Entry { plan: &self.plan, key: &key, operation })
    }

    pub(super) fn slot(&self, request: &Request) -> u16 {
        if self.has_slots { hash_slot(request.redis_key.as_bytes()) } else { 0 }
    }
}
