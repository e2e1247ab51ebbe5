//! Locks of shards: a number that names the process which holds one. The lock of a process that has ended is taken over; that of
//! a living one never is.

use std::fs;
use std::time::{Duration, Instant};

use super::own_mark::OwnMark;
use super::sync::{AtomicU64, Ordering};
use super::words::Words;
use crate::process::fork;

/// Attempts before the thread gives way to others, and attempts after which it sleeps.
const SPINS: usize = 100;
const YIELDS: usize = 200;
const SLEEP: Duration = Duration::from_micros(100);
/// How often a process that waits looks whether the holder still lives.
const LOOK_INTERVAL: Duration = Duration::from_millis(2);

/// The bits of a process id, and of the moment at which the process began.
const PID_BITS: u32 = 22;
const START_BITS: u32 = 32;

/// A process as a lock names it: its id, when it began, a part of the number of its namespace, and a bit that is always set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct ProcessMark(u64);

impl ProcessMark {
    /// This process. A forked one is another.
    pub(super) fn own() -> Self {
        static OWN: OwnMark = OwnMark { mark: AtomicU64::new(0), generation: AtomicU64::new(0) };
        Self(OWN.get(fork::generation(), || Self::of(std::process::id()).0))
    }

    fn of(pid: u32) -> Self {
        let began = state_of(pid).map_or(0, |state| state.began);
        let began = began & ((1 << START_BITS) - 1);
        Self(1 | u64::from(pid) << 1 | began << (1 + PID_BITS) | namespace() << (1 + PID_BITS + START_BITS))
    }

    const fn pid(self) -> u32 {
        (self.0 >> 1) as u32 & ((1 << PID_BITS) - 1)
    }

    /// Whether the process has certainly ended. A number without the bit is of none.
    fn has_ended(self) -> bool {
        if self.0 & 1 == 0 {
            return true;
        }
        if self.0 >> (1 + PID_BITS + START_BITS) != namespace() {
            return false;
        }
        match state_of(self.pid()) {
            Some(state) => state.is_zombie || Self::of(self.pid()) != self,
            None => is_gone(self.pid()),
        }
    }
}

/// What the system says of a process.
struct ProcessState {
    /// In ticks since the machine was started.
    began: u64,
    /// It has ended, and its parent has not asked how.
    is_zombie: bool,
}

/// `None` where the system does not say.
fn state_of(pid: u32) -> Option<ProcessState> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name of the program stands in parentheses, and may have some.
    let mut fields = text.rsplit_once(')')?.1.split_ascii_whitespace();
    let state = fields.next()?;
    // The first thread may have ended before the others: then it is a zombie, and the process is not.
    let threads: u64 = fields.nth(16)?.parse().ok()?;
    let began = fields.nth(1)?.parse().ok()?;
    Some(ProcessState { began, is_zombie: matches!(state, "Z" | "X") && threads <= 1 })
}

/// Whether no process has that id.
fn is_gone(pid: u32) -> bool {
    let pid = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw);
    pid.is_none_or(|pid| rustix::process::test_kill_process(pid) == Err(rustix::io::Errno::SRCH))
}

/// A part of the number of the namespace in which ids of processes mean something.
fn namespace() -> u64 {
    static NAMESPACE: AtomicU64 = AtomicU64::new(u64::MAX);
    let known = NAMESPACE.load(Ordering::Relaxed);
    if known != u64::MAX {
        return known;
    }
    let link = fs::read_link("/proc/self/ns/pid").ok();
    let digits: String =
        link.iter().flat_map(|link| link.to_str()).flat_map(str::chars).filter(char::is_ascii_digit).collect();
    let number = digits.parse::<u64>().unwrap_or(0) % ((1 << (63 - PID_BITS - START_BITS)) - 1);
    NAMESPACE.store(number, Ordering::Relaxed);
    number
}

/// A lock that this thread holds.
pub(super) struct LockGuard<'a> {
    words: &'a Words,
    at: usize,
    /// Whether it was taken over from a process that has ended.
    pub(super) is_inherited: bool,
}

impl Drop for LockGuard<'_> {
    fn drop(&mut self) {
        self.words.release(self.at, 0);
    }
}

/// Takes a lock that is free now.
#[inline]
pub(super) fn try_lock(words: &Words, at: usize) -> Option<LockGuard<'_>> {
    let own = ProcessMark::own().0;
    (words.load(at) == 0 && words.publish(at, 0, own)).then(|| LockGuard { words, at, is_inherited: false })
}

/// Takes a lock over from a process that has ended.
pub(super) fn try_inherit(words: &Words, at: usize) -> Option<LockGuard<'_>> {
    let (holder, own) = (words.load(at), ProcessMark::own());
    let is_left = holder != 0 && holder != own.0 && ProcessMark(holder).has_ended();
    (is_left && words.publish(at, holder, own.0)).then(|| LockGuard { words, at, is_inherited: true })
}

/// Waits for a lock until the deadline.
#[inline]
pub(super) fn lock(words: &Words, at: usize, deadline: Instant) -> Option<LockGuard<'_>> {
    match try_lock(words, at) {
        Some(guard) => Some(guard),
        None => wait_for_lock(words, at, deadline),
    }
}

#[cold]
fn wait_for_lock(words: &Words, at: usize, deadline: Instant) -> Option<LockGuard<'_>> {
    let mut looked = Instant::now();
    for attempt in 0.. {
        if let Some(guard) = try_lock(words, at) {
            return Some(guard);
        }
        if attempt < SPINS {
            std::hint::spin_loop();
            continue;
        }
        let now = Instant::now();
        if now.duration_since(looked) >= LOOK_INTERVAL {
            if let Some(guard) = try_inherit(words, at) {
                return Some(guard);
            }
            looked = now;
        }
        if now >= deadline {
            return try_inherit(words, at);
        }
        if attempt < YIELDS { std::thread::yield_now() } else { std::thread::sleep(SLEEP) }
    }
    None
}
