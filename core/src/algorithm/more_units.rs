//! When a limit admits more units than now. It is read from a view, after the call: most checks are not asked for it.

use super::{Rule, View};

impl Rule {
    /// The first moment at which more units would be admitted than when `view` was made; `None` when nothing is in use, or
    /// when units come back at any moment because they are held. Of a bucket and a window it follows from the rest of the
    /// view, so that a check does not compute it; of a bucket it may be 1 µs late, because the view is rounded.
    pub(crate) fn more_at(&self, view: &View) -> Option<u64> {
        let used = self.capacity() - view.remaining().min(self.capacity());
        match self {
            _ if used == 0 => None,
            Self::Concurrency(_) => None,
            Self::FixedWindow(_) | Self::CalendarWindow(_) => Some(view.resets_at),
            rule => Some(rule.meter().map_or(view.more_at, |meter| {
                // Where more is used than the limit, that has to drain first: all but the last unit of the capacity stay.
                view.resets_at.saturating_sub(meter.drains_within(used - 1))
            })),
        }
    }
}
