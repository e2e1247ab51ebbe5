//! The table of a file under every interleaving of a writer and of readers. A reader finds a whole record of one
//! moment. No record is lost while another one of its bucket changes, and no thread locks in the name of another
//! process. `loom` runs the files of the core themselves, with the atomics of loom.

#[path = "../../../core/src/store/machine/locked_shard.rs"]
#[allow(dead_code, reason = "a test needs a part of it")]
mod locked_shard;
#[path = "../../../core/src/store/machine/machine_clock.rs"]
#[allow(dead_code, reason = "a test needs a part of it")]
mod machine_clock;
#[path = "../../../core/src/store/machine/own_mark.rs"]
mod own_mark;
#[path = "../../../core/src/store/machine/record.rs"]
#[allow(dead_code, reason = "a test needs a part of it")]
mod record;
#[path = "../../../core/src/store/machine/seal.rs"]
#[allow(dead_code, reason = "a test needs a part of it")]
mod seal;
#[path = "../../../core/src/store/machine/shard.rs"]
#[allow(dead_code, reason = "a test needs a part of it")]
mod shard;

/// Loom's version of the parts that the table is built on.
mod sync {
    pub(super) use loom::sync::atomic::{AtomicU64, Ordering, fence};
}

mod words {
    use loom::sync::atomic::{AtomicU64, Ordering};

    pub(super) struct Words(Vec<AtomicU64>);

    impl Words {
        pub(super) fn new(count: usize) -> Self {
            Self((0..count).map(|_| AtomicU64::new(0)).collect())
        }

        pub(super) fn load(&self, at: usize) -> u64 {
            self.0[at].load(Ordering::Relaxed)
        }

        pub(super) fn store(&self, at: usize, number: u64) {
            self.0[at].store(number, Ordering::Relaxed);
        }

        pub(super) fn read_published(&self, at: usize) -> u64 {
            self.0[at].load(Ordering::Acquire)
        }

        pub(super) fn publish(&self, at: usize, before: u64, number: u64) -> bool {
            self.0[at].compare_exchange(before, number, Ordering::AcqRel, Ordering::Relaxed).is_ok()
        }
    }
}

/// A machine that never restarts. Its time goes on with every look at it.
mod system_clock {
    use std::cell::Cell;

    thread_local! {
        static TIME: Cell<u64> = const { Cell::new(0) };
    }

    /// Loom runs all threads of a model on one thread of the system.
    pub(super) fn since_start() -> u64 {
        TIME.set(TIME.get() + 900_000);
        TIME.get()
    }

    pub(super) fn since_1970() -> u64 {
        1_700_000_000_000_000 + TIME.get()
    }
}

use locked_shard::LockedShard;
use loom::sync::Arc;
use loom::thread;
use own_mark::OwnMark;
use record::{BLOCK, Record};
use shard::{FileShard, Look, SHARD_HEAD};
use sync::AtomicU64;
use words::Words;

const BLOCKS: usize = 4;
const A: u64 = 1;
const B: u64 = 2;
/// The most interruptions of threads. More interruptions find nothing else, and take hours.
const INTERRUPTIONS: usize = 3;

fn shard(words: &Words) -> FileShard<'_> {
    FileShard { words, at: 0, buckets: 1, blocks: BLOCKS }
}

fn write(words: &Words, name: u64, value: &[u8]) {
    let (bytes, value_length) = (value.to_vec(), value.len());
    let record = Record { name: [7, name], bytes, value_length, expires_at: 9, denies_until: 0 };
    LockedShard(shard(words)).write(0, &record).expect("room");
}

/// The value that a reader finds, or `None` if it did not get to an end.
fn read(words: &Words, name: u64) -> Option<Vec<u8>> {
    let mut record = Record::default();
    let look = shard(words).look(0, [7, name], &mut record).expect("whole records");
    look.map(|Look { found, .. }| if found { record.parts().0.to_vec() } else { Vec::new() })
}

fn explore(test: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(INTERRUPTIONS);
    builder.check(test);
}

fn words() -> Arc<Words> {
    let words = Words::new(SHARD_HEAD + 1 + BLOCKS * BLOCK);
    shard(&words).clear();
    Arc::new(words)
}

#[test]
fn loom_a_record_is_read_whole() {
    explore(|| {
        let words = words();
        write(&words, A, b"1111");
        let reader = thread::spawn({
            let words = Arc::clone(&words);
            move || read(&words, A)
        });
        // The third value takes the place of the first one.
        write(&words, A, b"2222");
        write(&words, A, b"3333");
        let found = reader.join().expect("no panic");
        let is_whole = |value: &Vec<u8>| [&b"1111"[..], b"2222", b"3333"].contains(&&**value);
        assert!(found.as_ref().is_none_or(is_whole), "{found:?}");
    });
}

#[test]
fn loom_a_record_stays_while_another_one_changes() {
    explore(|| {
        let words = words();
        write(&words, B, b"stays");
        write(&words, A, b"1111");
        let reader = thread::spawn({
            let words = Arc::clone(&words);
            move || read(&words, B)
        });
        write(&words, A, b"2222");
        write(&words, A, b"3333");
        let found = reader.join().expect("no panic");
        assert!(found.as_ref().is_none_or(|value| value == b"stays"), "{found:?}");
    });
}

#[test]
fn loom_a_record_behind_another_one_is_moved_and_read_whole() {
    explore(|| {
        let words = words();
        write(&words, A, b"1111");
        write(&words, B, b"front");
        let reader = thread::spawn({
            let words = Arc::clone(&words);
            move || (read(&words, A), read(&words, B))
        });
        write(&words, A, b"2222");
        let (a, b) = reader.join().expect("no panic");
        assert!(a.as_ref().is_none_or(|value| value == b"1111" || value == b"2222"), "{a:?}");
        assert!(b.as_ref().is_none_or(|value| value == b"front"), "{b:?}");
    });
}

#[test]
fn loom_no_thread_of_a_child_has_the_mark_of_the_parent() {
    const PARENT: u64 = 3;
    const CHILD: u64 = 5;
    explore(|| {
        // The state after a fork.
        let own = Arc::new(OwnMark { mark: AtomicU64::new(PARENT), generation: AtomicU64::new(0) });
        let other = thread::spawn({
            let own = Arc::clone(&own);
            move || own.get(1, || CHILD)
        });
        assert_eq!(own.get(1, || CHILD), CHILD);
        assert_eq!(other.join().expect("no panic"), CHILD);
    });
}

/// The thread that opens may pause between any two of its steps. If it took that for a restart, it would free the locks of others.
#[test]
fn loom_one_that_opens_never_takes_its_own_pause_for_a_restart() {
    explore(|| {
        let words = Arc::new(Words::new(machine_clock::AHEAD + 1));
        let base = machine_clock::first_base(&words);
        let living = thread::spawn({
            let words = Arc::clone(&words);
            move || {
                let clock = machine_clock::MachineClock::new(base);
                [0, 1, 2].map(|_| clock.now(&words, || panic!("nothing is damaged")).now)
            }
        });
        assert!(!machine_clock::was_restarted(&words, base), "the machine was not started again");
        let [first, second, third] = living.join().expect("no panic");
        assert!(first < second && second < third);
    });
}
