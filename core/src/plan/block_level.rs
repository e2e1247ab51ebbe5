//! The number of blocks of a key in a row, for a policy with blocks that become longer.

use super::Plan;

/// Marks a block that was made by hand. The level beside it stays as it is.
const BY_HAND: u8 = 1 << 7;

/// The number of blocks in a row that a key had, and a mark if the last one was made by hand. The default is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct BlockLevel(u8);

impl BlockLevel {
    /// The level in a stored byte.
    #[cfg(feature = "stored")]
    pub(crate) const fn stored(byte: u8) -> Self {
        Self(byte)
    }

    /// The byte that stores it.
    #[cfg(feature = "stored")]
    pub(crate) const fn as_byte(self) -> u8 {
        self.0
    }

    const fn number(self) -> u8 {
        self.0 & !BY_HAND
    }

    /// The number of the block if denials have begun it, from 1 on. 0 for a block by hand, and if all blocks have one length.
    pub(crate) const fn by_denials(self) -> u8 {
        if self.0 & BY_HAND == 0 { self.0 } else { 0 }
    }

    /// The level while a block by hand runs.
    pub(crate) const fn by_hand(self) -> Self {
        Self(if self.number() == 0 { 0 } else { self.0 | BY_HAND })
    }

    /// The end of its memory, if the last block ends at `blocked_until`. 0 if it is not remembered.
    pub(crate) const fn ends(self, blocked_until: u64, plan: &Plan) -> u64 {
        if self.number() == 0 || plan.level_life == 0 { 0 } else { blocked_until.saturating_add(plan.level_life) }
    }

    /// The level of the next block of a key with a last block until `blocked_until`.
    pub(crate) fn next(self, blocked_until: u64, now: u64, plan: &Plan) -> Self {
        if plan.level_life == 0 {
            return Self(0);
        }
        let last = if self.ends(blocked_until, plan) > now { self.number() } else { 0 };
        let most = plan.policy.options().block_for.as_ref().map_or(1, |lengths| lengths.lengths().len());
        Self((last + 1).min(most as u8))
    }

    /// The length of a block of this level, in microseconds. 0 for a policy that does not block.
    pub(crate) fn length(self, plan: &Plan) -> u64 {
        plan.policy.options().block_for.as_ref().map_or(0, |lengths| lengths.of_level(self.number()).micros())
    }
}
