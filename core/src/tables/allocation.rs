//! The size of an allocation, for tables that are bounded in bytes.

use smallvec::{Array, SmallVec};

/// The bytes that an allocator takes for `bytes`: with its header, rounded up, and none for 0.
pub(crate) const fn allocated(bytes: usize) -> usize {
    if bytes == 0 {
        return 0;
    }
    let taken = (bytes + 8).next_multiple_of(16);
    if taken < 32 { 32 } else { taken }
}

/// The bytes that the items of a vector have allocated.
pub(crate) fn spilled<A: Array>(items: &SmallVec<A>) -> usize {
    if items.spilled() { allocated(items.capacity() * size_of::<A::Item>()) } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::allocated;

    #[test]
    fn an_allocation_takes_more_than_was_asked_for() {
        assert_eq!([0, 1, 24, 25, 64, 1_000].map(allocated), [0, 32, 32, 48, 80, 1_008]);
    }
}
