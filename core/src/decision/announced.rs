//! What the fields of a response say of a Decision, and users do not ask.

use std::time::Duration;

use super::Decision;
use crate::policy::Policy;

impl Decision {
    /// The policy that was asked.
    pub(crate) fn asked_policy(&self) -> &Policy {
        &self.plan.policy
    }

    /// The time until the binding limit admits more units than now, if no other call uses the key. `None` when nothing of it
    /// is used, when its units are held and may come back at any moment, and while the key is blocked.
    ///
    /// It is exact or later: where only a part of the state is known, as of a `sliding-log` on Redis that admits more, it is
    /// the time until all units are back.
    pub(crate) fn more_after(&self) -> Option<Duration> {
        let (index, view) = self.binding();
        let known = !self.blocked() && !self.answer.views.is_empty();
        known.then(|| self.plan.rules[index].more_at(view)).flatten().map(|moment| self.until(moment))
    }
}
