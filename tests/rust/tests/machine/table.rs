//! The protocol of the table: a writer dies between any two of its writes. Readers and the next writer find the old
//! value or the new one, and nothing else. The files of the core run here on numbers of the test.

#[path = "../../../../core/src/store/machine/locked_shard.rs"]
#[allow(dead_code, reason = "a test needs a part of it")]
mod locked_shard;
#[path = "../../../../core/src/store/machine/repair.rs"]
mod repair;
#[path = "../../../../core/src/store/machine/shard.rs"]
#[allow(dead_code, reason = "a test needs a part of it")]
mod shard;

mod sync {
    pub(super) use std::sync::atomic::{Ordering, fence};
}

mod words {
    use std::cell::{Cell, RefCell};

    /// Numbers with a writer that dies after a given number of writes.
    pub(super) struct Words {
        numbers: RefCell<Vec<u64>>,
        writes_left: Cell<usize>,
    }

    impl Words {
        pub(super) fn new(count: usize) -> Self {
            Self { numbers: RefCell::new(vec![0; count]), writes_left: Cell::new(usize::MAX) }
        }

        /// Lets the writer die after so many writes. Returns the number that it had left.
        pub(super) fn die_after(&self, writes: usize) -> usize {
            self.writes_left.replace(writes)
        }

        pub(super) fn copy(&self) -> Self {
            Self { numbers: self.numbers.clone(), writes_left: Cell::new(usize::MAX) }
        }

        pub(super) fn set(&self, at: usize, number: u64) {
            self.numbers.borrow_mut()[at] = number;
        }

        fn writes(&self) -> bool {
            let left = self.writes_left.get();
            self.writes_left.set(left.saturating_sub(1));
            left > 0
        }

        pub(super) fn load(&self, at: usize) -> u64 {
            self.numbers.borrow()[at]
        }

        pub(super) fn store(&self, at: usize, number: u64) {
            if self.writes() {
                self.numbers.borrow_mut()[at] = number;
            }
        }

        pub(super) fn read_published(&self, at: usize) -> u64 {
            self.load(at)
        }

        pub(super) fn publish(&self, at: usize, before: u64, number: u64) -> bool {
            // A dead writer does not care about the value that it would have seen.
            let is_before = self.load(at) == before;
            self.store(at, number);
            is_before || self.writes_left.get() == 0
        }

        pub(super) fn release(&self, at: usize, number: u64) {
            self.store(at, number);
        }
    }
}

use std::collections::BTreeMap;

use super::{record, seal};
use locked_shard::LockedShard;
use record::{BLOCK, Record, RecordName};
use repair::Losses;
use shard::{FileShard, Look, SHARD_HEAD};
use tidegate_tests::budget::within;
use tidegate_tests::random::Random;
use words::Words;

const BUCKETS: usize = 2;
const BLOCKS: usize = 24;

fn shard(words: &Words) -> FileShard<'_> {
    FileShard { words, at: 0, buckets: BUCKETS, blocks: BLOCKS }
}

fn words() -> Words {
    let words = Words::new(SHARD_HEAD + BUCKETS + BLOCKS * BLOCK);
    shard(&words).clear();
    words
}

/// Names that differ in one number each.
fn name(number: u64) -> RecordName {
    [number / 2, number % 2]
}

/// The stored values, by name.
type Stored = BTreeMap<RecordName, Vec<u8>>;

fn read_all(words: &Words, names: &[RecordName]) -> Stored {
    let mut found = Stored::new();
    let mut record = Record::default();
    for (number, name) in names.iter().enumerate() {
        let look = shard(words).look(number % BUCKETS, *name, &mut record).expect("whole records");
        if look.is_some_and(|Look { found, .. }| found) {
            found.insert(*name, record.parts().0.to_vec());
        }
    }
    found
}

/// One change: a name gets a value, or loses its value.
fn change(words: &Words, bucket: usize, name: RecordName, value: Option<&[u8]>) {
    let locked = LockedShard(shard(words));
    // A dead writer reads numbers that it has not written, so it may get an error.
    let _ = match value {
        Some(value) => {
            let (bytes, value_length) = (value.to_vec(), value.len());
            let record = Record { name, value_length, bytes, expires_at: 1_000, denies_until: 0 };
            match locked.has_room(bucket, &record, usize::MAX) {
                Ok(true) => locked.write(bucket, &record),
                _ => Ok(()),
            }
        }
        None => locked.remove(bucket, name),
    };
}

#[test]
fn a_writer_that_dies_anywhere_leaves_what_was_or_what_is() {
    let names: Vec<RecordName> = (0..6).map(name).collect();
    let (mut deaths, mut changed) = (0_u64, 0_u64);
    let mut seeds = within(2, 0..150);
    for seed in seeds.by_ref() {
        let mut random = Random::new(seed);
        let whole = words();
        for _ in 0..40 {
            let number = random.below(names.len() as u64) as usize;
            let value = vec![random.below(256) as u8; random.below(90) as usize];
            let value = (!random.one_in(4)).then_some(&*value);
            let before = read_all(&whole, &names);
            let after = whole.copy();
            let all = after.die_after(10_000);
            assert_eq!(all, usize::MAX);
            change(&after, number % BUCKETS, names[number], value);
            let writes = 10_000 - after.die_after(usize::MAX);
            let expected = read_all(&after, &names);
            LockedShard(shard(&after)).examine().expect("a change leaves the shard whole");
            for writes in 0..writes {
                let dying = whole.copy();
                dying.die_after(writes);
                change(&dying, number % BUCKETS, names[number], value);
                dying.die_after(usize::MAX);
                let found = read_all(&dying, &names);
                assert!(found == before || found == expected, "seed {seed}, {writes} writes: {found:?}");
                changed += u64::from(found == expected && expected != before);
                assert_eq!(LockedShard(shard(&dying)).repair(), Losses::default(), "seed {seed}, {writes} writes");
                LockedShard(shard(&dying)).examine().expect("a repair makes the shard whole");
                assert_eq!(read_all(&dying, &names), found, "a repair changes nothing that is stored");
                deaths += 1;
            }
            change(&whole, number % BUCKETS, names[number], value);
        }
    }
    println!("{deaths} deaths, {changed} of them behind what was published");
    assert!(deaths > 66 * seeds.begun() && changed > 6 * seeds.begun(), "{deaths} deaths, {changed} behind");
}

#[test]
fn a_repair_that_dies_can_be_repaired() {
    let names: Vec<RecordName> = (0..6).map(name).collect();
    let whole = words();
    for (number, name) in names.iter().enumerate() {
        change(&whole, number % BUCKETS, *name, Some(&[number as u8; 20]));
    }
    let stored = read_all(&whole, &names);
    for writes in 0..200 {
        let dying = whole.copy();
        dying.die_after(writes);
        LockedShard(shard(&dying)).repair();
        dying.die_after(usize::MAX);
        assert_eq!(read_all(&dying, &names), stored, "{writes} writes");
        assert_eq!(LockedShard(shard(&dying)).repair(), Losses::default(), "{writes} writes");
        LockedShard(shard(&dying)).examine().expect("it is whole");
    }
}

/// A shard of records, of one block and of several.
fn filled(names: &[RecordName]) -> Words {
    let whole = words();
    for (number, name) in names.iter().enumerate() {
        change(&whole, number % BUCKETS, *name, Some(&vec![number as u8; 8 + 30 * (number % 3)]));
    }
    whole
}

/// Changes every byte of a shard, one after the other. No name gets lost in silence, and every walk ends.
#[test]
fn a_damaged_byte_is_found_by_a_call_that_misses_a_record() {
    let names: Vec<RecordName> = (0..6).map(name).collect();
    let whole = filled(&names);
    let stored = read_all(&whole, &names);
    let (mut random, mut found) = (Random::new(23), 0);
    for at in SHARD_HEAD..SHARD_HEAD + BUCKETS + BLOCKS * BLOCK {
        for byte in 0..8 {
            let damaged = whole.copy();
            damaged.set(at, damaged.load(at) ^ (1 + random.below(255)) << (8 * byte));
            let mut record = Record::default();
            for (number, name) in names.iter().enumerate() {
                match shard(&damaged).look(number % BUCKETS, *name, &mut record) {
                    Ok(look) => {
                        let is_found = look.is_some_and(|Look { found, .. }| found);
                        assert!(
                            is_found && record.parts().0 == stored[name],
                            "{name:?} is lost by number {at}, byte {byte}"
                        );
                    }
                    Err(_) => found += 1,
                }
            }
            end_every_walk(&damaged, &names);
        }
    }
    assert!(found > 500, "{found} times");
}

/// One link leads to any other block, with a right seal. Every look and every walk ends.
#[test]
fn a_link_that_leads_anywhere_hangs_no_walk() {
    let names: Vec<RecordName> = (0..6).map(name).collect();
    let whole = filled(&names);
    let mut record = Record::default();
    for block in 1..=BLOCKS as u32 {
        for other in 0..=BLOCKS as u64 + 1 {
            for is_next in [false, true] {
                let damaged = whole.copy();
                let table = shard(&damaged);
                let Ok((link, next)) = table.links(block) else { continue };
                let (link, next) = (link.unwrap_or(0).into(), next.unwrap_or(0).into());
                let (link, next) = if is_next { (link, other) } else { (other, next) };
                let name = table.name(table.block_at(block).expect("a block"));
                table.set_links(block, name, next, link).expect("a block");
                for (number, name) in names.iter().enumerate() {
                    let _ = table.look(number % BUCKETS, *name, &mut record);
                }
                end_every_walk(&damaged, &names);
            }
        }
    }
}

/// Runs everything that walks over a damaged shard, each on a copy.
fn end_every_walk(damaged: &Words, names: &[RecordName]) {
    let each: [&dyn Fn(&LockedShard<'_>); 5] = [
        &|locked| {
            let _ = locked.examine();
        },
        &|locked| {
            let _ = locked.make_room(10, usize::MAX);
        },
        &|locked| {
            let _ = locked.make_room(2_000, usize::MAX);
        },
        &|locked| {
            let _ = locked.remove_all(|name| name == names[0]);
        },
        &|locked| {
            let _ = locked.remove_all(|_| true);
        },
    ];
    for walk in each {
        walk(&LockedShard(shard(&damaged.copy())));
    }
    for (number, name) in names.iter().enumerate() {
        change(&damaged.copy(), number % BUCKETS, *name, Some(&[7; 100]));
        change(&damaged.copy(), number % BUCKETS, *name, None);
    }
    let repaired = damaged.copy();
    LockedShard(shard(&repaired)).repair();
    LockedShard(shard(&repaired)).examine().expect("a repair makes the shard whole");
}
