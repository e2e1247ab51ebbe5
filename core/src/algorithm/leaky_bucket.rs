//! `leaky-bucket`: a queue with `burst` places that lets one unit go every p/n.
//!
//! The queue is a meter; who gets into it waits until everything before it has drained.

use std::ops::Deref;

use super::View;
use super::meter::{Meter, State};
use crate::policy::Limit;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Rule(Meter);

impl Deref for Rule {
    type Target = Meter;

    fn deref(&self) -> &Meter {
        &self.0
    }
}

impl Rule {
    pub(crate) fn new(limit: &Limit) -> Self {
        Self(Meter::new(limit))
    }

    #[inline]
    pub(crate) fn queued(&self, state: &State, now: u64, cost: u64, charged: u64) -> View {
        let view = self.0.view(state, now, cost);
        let state = self.at(state, now);
        let before = state.units.saturating_sub(charged);
        let turn = if before == 0 { now } else { self.moment(&state, before) };
        View { delay: turn.saturating_sub(now), ..view }
    }
}
