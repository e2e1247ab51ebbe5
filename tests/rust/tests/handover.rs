//! The hand-over of calls to the engine under every interleaving of its threads: no call is left behind by a thread
//! that falls asleep. `loom` runs the file of the core itself, with the locks and atomics of loom. It reports a thread
//! that sleeps for good as a deadlock.

#[path = "../../../core/src/store/redis/io/handover.rs"]
mod handover;

use std::future::poll_fn;
use std::task::Poll;

use handover::Handover;
use loom::sync::Arc;

/// Loom's version of the parts that `handover.rs` is built on.
mod sync {
    pub(crate) use loom::sync::atomic::{AtomicBool, Ordering};

    pub(crate) struct Mutex<T>(loom::sync::Mutex<T>);

    impl<T> Mutex<T> {
        pub(crate) fn new(value: T) -> Self {
            Self(loom::sync::Mutex::new(value))
        }

        pub(crate) fn lock(&self) -> loom::sync::MutexGuard<'_, T> {
            self.0.lock().expect("no panic")
        }

        pub(crate) fn try_lock(&self) -> Option<loom::sync::MutexGuard<'_, T>> {
            self.0.try_lock().ok()
        }
    }
}

/// The number of calls that the machine has taken, and of those that it has sent.
#[derive(Default)]
struct Machine {
    taken: usize,
    sent: usize,
}

type Engine = Handover<usize, Machine>;

/// A caller. If it `sends`, it can send its call itself. Any other moves it to the machine, and leaves it to the thread.
fn call(engine: &Engine, sends: bool) {
    engine.with_queue(|queue| *queue += 1);
    engine.serve(|machine, queue| {
        machine.taken += std::mem::take(&mut *queue.lock());
        if sends {
            machine.sent += std::mem::take(&mut machine.taken);
        }
        machine.taken == 0
    });
}

/// Sends all calls that come, until `calls` were sent.
fn run(engine: &Engine, calls: usize) {
    loom::future::block_on(poll_fn(|cx| {
        engine.poll(cx, |_, machine, queue| {
            let mut machine = machine.lock();
            machine.taken += std::mem::take(&mut *queue.lock());
            machine.sent += std::mem::take(&mut machine.taken);
            if machine.sent == calls { Poll::Ready(()) } else { Poll::Pending }
        })
    }));
}

/// With more than two preemptions three threads have more interleavings than a test can visit.
fn explore(callers: &'static [bool]) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = (callers.len() > 1).then_some(2);
    model.check(move || {
        let engine = Arc::new(Engine::new(0, Machine::default()));
        let threads: Vec<_> = callers
            .iter()
            .map(|sends| {
                let engine = Arc::clone(&engine);
                loom::thread::spawn(move || call(&engine, *sends))
            })
            .collect();
        // A caller that sends its call itself may leave the thread asleep. The last wake-up then ends the thread.
        if callers.contains(&true) {
            threads.into_iter().for_each(|thread| thread.join().expect("a caller"));
            engine.wake();
        }
        run(&engine, callers.len());
    });
}

#[test]
fn a_call_that_its_caller_could_not_send_is_sent_by_the_thread() {
    explore(&[false]);
    explore(&[false, false]);
}

#[test]
fn callers_that_meet_leave_no_call_behind() {
    explore(&[true, true]);
    explore(&[true, false]);
}

/// Callers and the thread at the same time: the calls that callers send themselves need no thread.
#[test]
fn a_thread_that_falls_asleep_hears_the_caller_that_needs_it() {
    loom::model(|| {
        let engine = Arc::new(Engine::new(0, Machine::default()));
        let needs = Arc::clone(&engine);
        let other = Arc::clone(&engine);
        let threads = [
            loom::thread::spawn(move || call(&needs, false)),
            loom::thread::spawn(move || {
                other.try_with_machine(|machine| machine.sent += 0);
            }),
        ];
        run(&engine, 1);
        threads.into_iter().for_each(|thread| thread.join().expect("a caller"));
    });
}
