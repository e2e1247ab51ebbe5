//! Items in a vector, found by their hash: a table has their indexes. A cursor walks through the vector to find items to
//! remove. Its capacity follows its length in both directions, so that what a flood took is given back.

use hashbrown::HashTable;

/// What a slab keeps.
pub(crate) trait Hashed {
    fn hash(&self) -> u64;
}

/// A vector whose items are found by their hash.
pub(crate) struct HashSlab<T> {
    /// Indexes into `items`, by hash.
    indexes: HashTable<u32>,
    items: Vec<T>,
    cursor: usize,
}

impl<T> Default for HashSlab<T> {
    fn default() -> Self {
        Self { indexes: HashTable::new(), items: Vec::new(), cursor: 0 }
    }
}

impl<T> HashSlab<T> {
    /// The bytes of an item without what it has allocated: its place, its part of the room that the vector has to spare,
    /// and its index.
    pub(crate) const ITEM_BYTES: usize = size_of::<T>() * 3 / 2 + 16;
    /// Places that a vector may have beyond that.
    const SPARE: usize = 8;
}

impl<T: Hashed> HashSlab<T> {
    #[inline(always)]
    pub(crate) fn find(&self, hash: u64, is: impl Fn(&T) -> bool) -> Option<usize> {
        self.indexes.find(hash, |index| is(&self.items[*index as usize])).map(|index| *index as usize)
    }

    /// All items of a hash that match.
    pub(crate) fn all(&self, hash: u64, is: impl Fn(&T) -> bool) -> Vec<usize> {
        let found = self.indexes.iter_hash(hash).map(|index| *index as usize);
        found.filter(|index| is(&self.items[*index])).collect()
    }

    #[inline]
    pub(crate) fn get(&self, at: usize) -> &T {
        &self.items[at]
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, at: usize) -> &mut T {
        &mut self.items[at]
    }

    pub(crate) fn len(&self) -> usize {
        self.items.len()
    }

    /// Takes all items.
    pub(crate) fn take(&mut self) -> Vec<T> {
        std::mem::take(self).items
    }

    /// Moves the cursor; returns where it is.
    pub(crate) fn advance(&mut self) -> Option<usize> {
        if self.items.is_empty() {
            return None;
        }
        self.cursor = if self.cursor + 1 < self.items.len() { self.cursor + 1 } else { 0 };
        Some(self.cursor)
    }

    pub(crate) fn insert(&mut self, item: T) {
        if self.items.len() == self.items.capacity() {
            // A vector that doubles has room for as many again.
            self.items.reserve_exact(self.items.len() / 4 + Self::SPARE / 2);
        }
        let items = &self.items;
        self.indexes.insert_unique(item.hash(), items.len() as u32, |index| items[*index as usize].hash());
        self.items.push(item);
    }

    pub(crate) fn remove(&mut self, at: usize) -> T {
        let hash = self.items[at].hash();
        if let Ok(found) = self.indexes.find_entry(hash, |index| *index as usize == at) {
            found.remove();
        }
        let removed = self.items.swap_remove(at);
        if let Some(moved) = self.items.get(at) {
            let from = self.items.len();
            if let Some(index) = self.indexes.find_mut(moved.hash(), |index| *index as usize == from) {
                *index = at as u32;
            }
        }
        self.shrink();
        removed
    }

    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }

    /// Gives room back that the items do not need.
    fn shrink(&mut self) {
        let len = self.items.len();
        if self.items.capacity() > len + len / 2 + Self::SPARE {
            self.items.shrink_to(len + len / 8 + Self::SPARE / 2);
        }
        if self.indexes.capacity() > 3 * len + Self::SPARE {
            let items = &self.items;
            self.indexes.shrink_to(len + len / 4, |index| items[*index as usize].hash());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Hashed for u64 {
        fn hash(&self) -> u64 {
            self.wrapping_mul(0x9e37_79b9_7f4a_7c15)
        }
    }

    fn bytes(slab: &HashSlab<u64>) -> usize {
        slab.items.capacity() * size_of::<u64>() + slab.indexes.allocation_size()
    }

    #[test]
    fn a_slab_takes_no_more_than_its_items_need_while_it_grows_and_while_it_shrinks() {
        let mut slab = HashSlab::default();
        let fits = |slab: &HashSlab<u64>| {
            let most = slab.len() * HashSlab::<u64>::ITEM_BYTES + HashSlab::<u64>::SPARE * size_of::<u64>() + 64;
            assert!(bytes(slab) <= most, "{} items take {} bytes, more than {most}", slab.len(), bytes(slab));
        };
        for number in 0..20_000_u64 {
            slab.insert(number);
            fits(&slab);
        }
        while slab.len() > 0 {
            slab.remove(slab.len() / 2);
            assert!(bytes(&slab) <= 2 * slab.len() * HashSlab::<u64>::ITEM_BYTES + 512);
        }
        assert!(bytes(&slab) < 512, "{} bytes are left", bytes(&slab));
    }
}
