//! The answer of nearly every call of a store in memory.

use super::{Answer, Source};
use crate::algorithm::View;
use crate::tables::one_or_many::OneOrMany;

/// The answer to a check or a peek of one limit that needs nothing else, like nearly every answer of a store in memory.
/// It is small, because a call is so short that each byte it moves counts.
#[derive(Debug, Clone, Default)]
pub(crate) struct SimpleAnswer {
    pub(crate) applied: bool,
    pub(crate) granted: u64,
    pub(crate) now: u64,
    pub(crate) view: View,
}

impl From<SimpleAnswer> for Answer {
    #[inline(always)]
    fn from(simple: SimpleAnswer) -> Self {
        let mut answer = Self::default();
        answer.become_simple(&simple);
        answer
    }
}

impl Answer {
    /// Takes over a simple answer. This answer must have nothing on the heap.
    #[inline(always)]
    pub(crate) fn become_simple(&mut self, simple: &SimpleAnswer) {
        let SimpleAnswer { applied, granted, now, view } = simple;
        (self.applied, self.granted, self.now) = (*applied, *granted, *now);
        self.views = OneOrMany::One(*view);
        (self.blocked_until, self.refused, self.source) = (0, None, Source::Store);
        (self.unavailable, self.may_be_old) = (false, false);
        (self.denied_for, self.denial_generation, self.block) = (0, 0, 0);
    }

    /// True if a part of it is on the heap.
    #[inline(always)]
    pub(crate) fn owns_memory(&self) -> bool {
        matches!(self.views, OneOrMany::Many(_)) || self.states.is_some() || self.rare.is_some()
    }
}
