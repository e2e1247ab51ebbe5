//! The line of the callers that wait for a key over all processes: the first caller of each class in each process.
//! docs/adr/0036 has the reasons, and `lua/waiting_line.lua` the same rules for servers.

use super::Usage;
use crate::algorithm::HoldId;
use crate::store::request::{LinePlace, PATIENCE, RANK_SHIFT};

/// A caller that was overtaken this often, by calls of its class or below, is served before all of these that came later.
const MAX_OVERTAKEN: u8 = 16;
const MAX_LINE: usize = 64;

/// A caller in the line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct InLine {
    pub(super) waiter: HoldId,
    pub(super) overtaken: u8,
    /// When it last asked.
    pub(super) asked_at: u64,
    /// Since when it waits.
    pub(super) since: u64,
}

impl InLine {
    /// When it leaves the line, unless it asks again.
    pub(super) const fn ends(&self) -> u64 {
        self.asked_at + PATIENCE
    }

    /// True if this caller came before that one and is of its class or above: then it must not be overtaken too often.
    const fn is_before(&self, waiter: HoldId, since: u64) -> bool {
        self.waiter != waiter && self.since < since && self.waiter >> RANK_SHIFT <= waiter >> RANK_SHIFT
    }
}

impl Usage {
    fn line(&self) -> &[InLine] {
        self.annex().map_or(&[], |annex| &annex.line)
    }

    /// True if a caller has to let another one go first.
    pub(super) fn must_yield(&self, place: LinePlace, now: u64) -> bool {
        let since = now.saturating_sub(place.age);
        let mut waiting = self.line().iter().filter(|other| other.ends() > now);
        waiting.any(|other| other.overtaken >= MAX_OVERTAKEN && other.is_before(place.waiter, since))
    }

    /// Serves a caller. The next one of its process, if there is one, takes its place and its count of being overtaken.
    pub(super) fn leave_served(&mut self, place: LinePlace, now: u64) {
        let since = now.saturating_sub(place.age);
        self.change_annex(|annex| {
            for other in &mut annex.line {
                if other.waiter == place.waiter {
                    (other.since, other.asked_at) = (now.saturating_sub(place.next_age.unwrap_or(0)), now);
                } else if other.is_before(place.waiter, since) {
                    other.overtaken = other.overtaken.saturating_add(1);
                }
            }
        });
        if place.next_age.is_none() {
            self.leave_line(place.waiter);
        }
    }

    /// Takes a caller out of the line. Returns true if it stood there.
    pub(super) fn leave_line(&mut self, waiter: HoldId) -> bool {
        let before = self.line().len();
        if before > 0 {
            self.change_annex(|annex| annex.line.retain(|other| other.waiter != waiter));
        }
        self.line().len() < before
    }

    /// Notes that a caller goes on waiting.
    pub(super) fn join_line(&mut self, place: LinePlace, now: u64) {
        let since = now.saturating_sub(place.age);
        self.change_annex(|annex| {
            annex.line.retain(|other| other.ends() > now);
            if let Some(known) = annex.line.iter_mut().find(|other| other.waiter == place.waiter) {
                (known.since, known.asked_at) = (since, now);
            } else if annex.line.len() < MAX_LINE {
                annex.line.push(InLine { waiter: place.waiter, overtaken: 0, asked_at: now, since });
            }
        });
    }
}
