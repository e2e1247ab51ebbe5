//! What the layers around a store remember of a call until its answer arrives.
//!
//! A call that waits is kept in one box. Each layer appends its own words to the call's `LayerStates` before the store is
//! asked, and reads the same number of words, in the same order, when the answer comes back. A layer sees no words but
//! its own.

/// Words that fit: those of all layers together, which `resilience` checks at compile time.
pub(crate) const CAPACITY: usize = 8;

/// The words that layers keep of a call, in the order of the layers.
#[derive(Clone, Copy, Default)]
pub(crate) struct LayerStates {
    words: [u64; CAPACITY],
    written: u8,
    read: u8,
}

impl LayerStates {
    /// Appends the words of the next layer.
    #[inline]
    pub(crate) fn push<const N: usize>(&mut self, state: [u64; N]) {
        let from = usize::from(self.written);
        self.words[from..from + N].copy_from_slice(&state);
        self.written += N as u8;
    }

    /// The words of the next layer that has not read its own.
    #[inline]
    pub(crate) fn next<const N: usize>(&mut self) -> [u64; N] {
        let from = usize::from(self.read);
        self.read += N as u8;
        std::array::from_fn(|index| self.words[from + index])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_layer_reads_what_it_wrote() {
        let mut states = LayerStates::default();
        states.push([1, 2, 3, 4]);
        states.push([5]);
        states.push([6, 7, 8]);
        assert_eq!(states.next(), [1, 2, 3, 4]);
        assert_eq!(states.next(), [5]);
        assert_eq!(states.next(), [6, 7, 8]);
    }
}
