//! The event loops of Python without a global lock, under every interleaving of their threads. `loom` runs the files of the module
//! itself, with its own atomics, and reports a loop that sleeps for good as a deadlock.

#[path = "../../../bindings-python/src/reader_choice.rs"]
mod reader_choice;
#[path = "../../../bindings-python/src/wake_flag.rs"]
mod wake_flag;

/// Loom's version of the parts that the files are built on.
mod sync {
    pub(crate) use loom::sync::atomic::{AtomicBool, AtomicU64, Ordering};
}

use std::convert::Infallible;

use loom::sync::{Arc, Condvar, Mutex};
use reader_choice::ReaderChoice;
use wake_flag::WakeFlag;

/// A loop that watches a file, and the answers that have arrived for it.
struct Loop {
    flag: WakeFlag,
    answers: Mutex<usize>,
    is_readable: Mutex<bool>,
    written: Condvar,
}

impl Loop {
    fn new() -> Self {
        let (flag, answers) = (WakeFlag::new(), Mutex::new(0));
        Self { flag, answers, is_readable: Mutex::new(false), written: Condvar::new() }
    }

    fn put_answer(&self) {
        *self.answers.lock().expect("no panic") += 1;
        if self.flag.must_wake() {
            *self.is_readable.lock().expect("no panic") = true;
            self.written.notify_one();
        }
    }

    fn take_answers(&self) -> usize {
        self.flag.enable();
        std::mem::take(&mut *self.answers.lock().expect("no panic"))
    }

    /// Sleeps until the file is readable, and takes the answers.
    fn answers_of_wake(&self) -> usize {
        let mut is_readable = self.is_readable.lock().expect("no panic");
        while !*is_readable {
            is_readable = self.written.wait(is_readable).expect("no panic");
        }
        *is_readable = false;
        drop(is_readable);
        self.take_answers()
    }
}

/// Threads put an answer each. The loop begins by reading on its own if it `reads`.
fn wake_for(threads: usize, reads: bool) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = (threads > 1).then_some(3);
    model.check(move || {
        let event_loop = Arc::new(Loop::new());
        let threads: Vec<_> = (0..threads)
            .map(|_| {
                let event_loop = Arc::clone(&event_loop);
                loom::thread::spawn(move || event_loop.put_answer())
            })
            .collect();
        let mut taken = 0;
        if reads {
            event_loop.flag.suppress();
            taken += event_loop.take_answers();
        }
        while taken < threads.len() {
            taken += event_loop.answers_of_wake();
        }
        threads.into_iter().for_each(|thread| thread.join().expect("a thread"));
        assert_eq!(taken + event_loop.take_answers(), taken, "an answer arrived twice");
    });
}

#[test]
fn loom_finds_no_answer_for_which_a_loop_is_not_woken() {
    for (threads, reads) in [(1, false), (1, true), (2, false), (2, true)] {
        wake_for(threads, reads);
    }
}

/// A limiter that several loops use.
struct Shared {
    choice: ReaderChoice,
    /// The loop that watches the file of the limiter.
    registered: Mutex<Option<u64>>,
    threads_read: Mutex<bool>,
}

impl Shared {
    fn use_from(&self, number: u64) {
        if self.choice.suits(number) {
            return;
        }
        let end = || {
            let before = self.registered.lock().expect("no panic").take();
            *self.threads_read.lock().expect("no panic") = true;
            before.is_some()
        };
        let register = || {
            *self.threads_read.lock().expect("no panic") = false;
            *self.registered.lock().expect("no panic") = Some(number);
            Ok::<_, Infallible>(true)
        };
        let Ok(()) = self.choice.change(number, end, register);
    }

    /// True if the loop of this number reads and no thread does, or the other way round.
    fn is_read_by(&self, reader: Option<u64>) -> bool {
        *self.registered.lock().expect("no panic") == reader
            && *self.threads_read.lock().expect("no panic") == reader.is_none()
    }
}

#[test]
fn loom_finds_no_limiter_of_several_loops_that_one_loop_reads_for() {
    for loops in [1, 2, 3] {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = (loops > 1).then_some(3);
        model.check(move || {
            let (registered, threads_read) = (Mutex::new(None), Mutex::new(true));
            let shared = Arc::new(Shared { choice: ReaderChoice::new(), registered, threads_read });
            let others: Vec<_> = (2..=loops)
                .map(|number| {
                    let shared = Arc::clone(&shared);
                    loom::thread::spawn(move || shared.use_from(number))
                })
                .collect();
            shared.use_from(1);
            others.into_iter().for_each(|thread| thread.join().expect("a loop"));
            let reader = (loops == 1).then_some(1);
            assert!(shared.is_read_by(reader), "{:?}", shared.registered);
            // Nothing is left to change.
            assert!((1..=loops).all(|number| shared.choice.suits(number)));
        });
    }
}
