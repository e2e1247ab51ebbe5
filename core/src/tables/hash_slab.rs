//! Items in a vector, and a table that finds their indexes by hash. A cursor walks through the vector to find items to
//! remove. The capacity follows the length in both directions, so that the memory of a flood is given back.

use hashbrown::HashTable;

/// An item of a slab.
pub(crate) trait Hashed {
    /// The hasher of the items, or `()` if an item has its hash.
    type Hasher;

    fn hash(&self, hasher: &Self::Hasher) -> u64;
}

/// A vector with items that are found by their hash.
pub(crate) struct HashSlab<T: Hashed> {
    hasher: T::Hasher,
    /// Indexes into `items`, by hash.
    indexes: HashTable<u32>,
    items: Vec<T>,
    cursor: usize,
}

impl<T: Hashed> HashSlab<T> {
    /// The bytes of an item without its own allocations: its place, its share of the vector's spare room, and its
    /// index.
    pub(crate) const ITEM_BYTES: usize = size_of::<T>() * 3 / 2 + 16;
    /// Spare places that a vector may have beyond that.
    const SPARE: usize = 8;

    pub(crate) fn new(hasher: T::Hasher) -> Self {
        Self { hasher, indexes: HashTable::new(), items: Vec::new(), cursor: 0 }
    }

    #[inline(always)]
    pub(crate) fn find(&self, hash: u64, is: impl Fn(&T) -> bool) -> Option<usize> {
        self.indexes.find(hash, |index| is(&self.items[*index as usize])).map(|index| *index as usize)
    }

    /// The indexes of all matching items with this hash.
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

    pub(crate) fn hash_at(&self, at: usize) -> u64 {
        self.items[at].hash(&self.hasher)
    }

    /// Takes all items.
    pub(crate) fn take(&mut self) -> Vec<T> {
        (self.indexes, self.cursor) = (HashTable::new(), 0);
        std::mem::take(&mut self.items)
    }

    /// Moves the cursor and returns its position.
    pub(crate) fn advance(&mut self) -> Option<usize> {
        if self.items.is_empty() {
            return None;
        }
        self.cursor = if self.cursor + 1 < self.items.len() { self.cursor + 1 } else { 0 };
        Some(self.cursor)
    }

    pub(crate) fn insert(&mut self, hash: u64, item: T) {
        if self.items.len() == self.items.capacity() {
            // A vector that doubles would have room for as many again.
            self.items.reserve_exact(self.items.len() / 4 + Self::SPARE / 2);
        }
        let (items, hasher) = (&self.items, &self.hasher);
        let hash_of = |index: &u32| items[*index as usize].hash(hasher);
        self.indexes.insert_unique(hash, items.len() as u32, hash_of);
        self.items.push(item);
    }

    /// Replaces an item, which costs less than removing it and adding the other.
    pub(crate) fn replace(&mut self, at: usize, hash: u64, item: T) -> T {
        self.forget(at);
        let (items, hasher) = (&self.items, &self.hasher);
        self.indexes.insert_unique(hash, at as u32, |index| items[*index as usize].hash(hasher));
        std::mem::replace(&mut self.items[at], item)
    }

    /// Removes the index of an item.
    fn forget(&mut self, at: usize) {
        let hash = self.hash_at(at);
        if let Ok(found) = self.indexes.find_entry(hash, |index| *index as usize == at) {
            found.remove();
        }
    }

    pub(crate) fn remove(&mut self, at: usize) -> T {
        self.forget(at);
        let removed = self.items.swap_remove(at);
        if let Some(moved) = self.items.get(at) {
            let from = self.items.len();
            if let Some(index) = self.indexes.find_mut(moved.hash(&self.hasher), |index| *index as usize == from) {
                *index = at as u32;
            }
        }
        self.shrink();
        removed
    }

    pub(crate) fn clear(&mut self) {
        drop(self.take());
    }

    /// Gives back room that the items do not need.
    fn shrink(&mut self) {
        let len = self.items.len();
        if self.items.capacity() > len + len / 2 + Self::SPARE {
            self.items.shrink_to(len + len / 8 + Self::SPARE / 2);
        }
        if self.indexes.capacity() > 3 * len + Self::SPARE {
            let (items, hasher) = (&self.items, &self.hasher);
            self.indexes.shrink_to(len + len / 4, |index| items[*index as usize].hash(hasher));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Hashed for u64 {
        type Hasher = ();

        fn hash(&self, (): &()) -> u64 {
            self.wrapping_mul(0x9e37_79b9_7f4a_7c15)
        }
    }

    fn bytes(slab: &HashSlab<u64>) -> usize {
        slab.items.capacity() * size_of::<u64>() + slab.indexes.allocation_size()
    }

    #[test]
    fn a_slab_takes_no_more_than_its_items_need_while_it_grows_and_while_it_shrinks() {
        let mut slab = HashSlab::new(());
        let fits = |slab: &HashSlab<u64>| {
            let most = slab.len() * HashSlab::<u64>::ITEM_BYTES + HashSlab::<u64>::SPARE * size_of::<u64>() + 64;
            assert!(bytes(slab) <= most, "{} items take {} bytes, more than {most}", slab.len(), bytes(slab));
        };
        for number in 0..20_000_u64 {
            slab.insert(number.hash(&()), number);
            fits(&slab);
        }
        while slab.len() > 0 {
            slab.remove(slab.len() / 2);
            assert!(bytes(&slab) <= 2 * slab.len() * HashSlab::<u64>::ITEM_BYTES + 512);
        }
        assert!(bytes(&slab) < 512, "{} bytes are left", bytes(&slab));
    }

    #[test]
    fn what_takes_the_place_of_another_is_found_and_the_other_is_not() {
        let mut slab = HashSlab::new(());
        (0..100_u64).for_each(|number| slab.insert(number.hash(&()), number));
        let at = |slab: &HashSlab<u64>, number: u64| slab.find(number.hash(&()), |item| *item == number);
        for number in 0..100 {
            let other = 1_000 + number;
            let place = at(&slab, number).expect("it was added");
            assert_eq!(slab.replace(place, other.hash(&()), other), number);
            assert_eq!((at(&slab, number), at(&slab, other), slab.len()), (None, Some(place), 100));
        }
        for number in 0..100 {
            let place = at(&slab, 1_000 + number).expect("it is still there");
            slab.remove(place);
        }
        assert_eq!((slab.len(), slab.indexes.len()), (0, 0));
    }
}
