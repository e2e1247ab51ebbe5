//! How a Decision is shown to developers.

use std::fmt;

use super::Decision;

/// The most characters of a text that `Debug` shows.
const MAX_SHOWN: usize = 64;

/// A text of the caller, which may be long.
struct Shortened<'a>(&'a str);

impl fmt::Debug for Shortened<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.char_indices().nth(MAX_SHOWN) {
            None => self.0.fmt(f),
            Some((end, _)) => write!(f, "{:?}… ({} characters)", &self.0[..end], self.0.chars().count()),
        }
    }
}

impl fmt::Debug for Decision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Decision");
        shown
            .field("allowed", &self.allowed())
            .field("policy", &Shortened(self.policy()))
            .field("key", &Shortened(self.key()))
            .field("cost", &self.cost)
            .field("granted", &self.granted())
            .field("limit", &self.limit())
            .field("remaining", &self.remaining())
            .field("retry_after", &self.retry_after())
            .field("next_after", &self.next_after())
            .field("reset_after", &self.reset_after());
        if !self.delay().is_zero() {
            shown.field("delay", &self.delay());
        }
        if self.shadow() {
            shown.field("shadow", &true);
        }
        if self.unavailable() {
            shown.field("unavailable", &true);
        }
        shown.field("source", &self.source().name());
        if self.decisions().is_empty() {
            shown.field("limits", &self.limits().collect::<Vec<_>>());
        } else {
            shown.field("decisions", &self.decisions());
        }
        shown.finish()
    }
}
