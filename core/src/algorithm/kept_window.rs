//! The stored form of a window of a custom calendar. It takes the place of the number of a window.

const SECOND: u64 = 1_000_000;
/// Separates the two parts. Every number of a window of a day or longer is smaller.
const PARTS: u64 = 1 << 19;
/// The last charge is known to within one step. 2^19 steps are longer than a year.
const STEP: u64 = 64 * SECOND;

/// A window that keeps its edge, even if the limit gets another calendar meanwhile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct KeptWindow {
    /// The edge at which it ends, a whole second.
    pub(super) closes: u64,
    /// When it was charged last, or later, but before it closes.
    pub(super) last: u64,
}

impl KeptWindow {
    /// True if a stored number is a kept window.
    #[inline]
    pub(super) const fn is_in(number: u64) -> bool {
        number >= PARTS
    }

    pub(super) const fn of_number(number: u64) -> Self {
        let closes = number / PARTS * SECOND;
        Self { closes, last: closes.saturating_sub(1 + number % PARTS * STEP) }
    }

    pub(super) const fn number(self) -> u64 {
        let steps = (self.closes - 1).saturating_sub(self.last) / STEP;
        self.closes / SECOND * PARTS + if steps < PARTS { steps } else { PARTS - 1 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_is_read_as_it_was_kept_and_never_charged_earlier() {
        let closes = 1_800_000_000 * SECOND;
        for before in [1, STEP, STEP + 1, 366 * 86_400 * SECOND] {
            let window = KeptWindow { closes, last: closes - before };
            let read = KeptWindow::of_number(window.number());
            assert!(read.closes == closes && read.last >= window.last && read.last < window.last + STEP, "{read:?}");
            assert_eq!(KeptWindow::of_number(read.number()), read, "it does not move");
        }
        assert!(KeptWindow::is_in(KeptWindow { closes: SECOND, last: 0 }.number()));
        // The number of the last day that a state can store.
        assert!(!KeptWindow::is_in(super::super::MAX_SAFE_INTEGER / (86_400 * SECOND)));
    }
}
