//! Locks of shards. Each is a number that names the process that holds it. A process takes over the lock of one that
//! has ended, and never that of a living one.

use std::fs;
use std::time::{Duration, Instant};

use super::own_mark::OwnMark;
use super::seal::{NUMBER_BITS, Salt};
use super::sync::{AtomicU64, Ordering};
use super::words::Words;
use crate::process::fork;

/// Attempts before the thread yields to others, and attempts before it sleeps.
const SPINS: usize = 100;
const YIELDS: usize = 200;
const SLEEP: Duration = Duration::from_micros(100);
/// How often a waiting process checks that the holder still lives.
const LOOK_INTERVAL: Duration = Duration::from_millis(2);

/// The bits of a process id, of the moment at which the process began, of its program, and of its namespace. With one
/// bit that is always set they fit into a number that can be sealed.
const PID_BITS: u32 = 22;
const BEGAN_BITS: u32 = 8;
const PROGRAM_BITS: u32 = 12;
const BEGAN: u32 = 1 + PID_BITS;
const PROGRAM: u32 = BEGAN + BEGAN_BITS;
const NAMESPACE: u32 = PROGRAM + PROGRAM_BITS;
const NAMESPACE_BITS: u32 = NUMBER_BITS - NAMESPACE;

/// A process as a lock names it, in a number that is sealed: a bit that is always set, its id, when it began, its
/// program, and a part of the number of its namespace. A part that the system does not give is 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct ProcessMark(u64);

impl ProcessMark {
    /// The mark of this process. A forked child has another.
    pub(super) fn own() -> Self {
        static OWN: OwnMark = OwnMark { mark: AtomicU64::new(0), generation: AtomicU64::new(0) };
        Self(OWN.get(fork::generation(), || {
            let pid = std::process::id();
            Self::of(pid, state_of(pid).as_ref()).0
        }))
    }

    fn of(pid: u32, state: Option<&ProcessState>) -> Self {
        let (began, program) = state.map_or((0, 0), |state| (state.began, state.program));
        Self(
            1 | u64::from(pid) << 1
                | bits_of(began, BEGAN_BITS) << BEGAN
                | bits_of(program, PROGRAM_BITS) << PROGRAM
                | namespace() << NAMESPACE,
        )
    }

    const fn part(self, at: u32, bits: u32) -> u64 {
        self.0 >> at & ((1 << bits) - 1)
    }

    /// True if the process has certainly ended, or has begun another program, which ends all its threads. A number
    /// without the bit names no process.
    fn has_ended(self) -> bool {
        if self.0 & 1 == 0 {
            return true;
        }
        if self.part(NAMESPACE, NAMESPACE_BITS) != namespace() {
            return false;
        }
        let pid = self.part(1, PID_BITS) as u32;
        let Some(state) = state_of(pid) else { return is_gone(pid) };
        let now = Self::of(pid, Some(&state));
        let is_other = |at, bits| {
            let (then, now) = (self.part(at, bits), now.part(at, bits));
            then != now && then != 0 && now != 0
        };
        state.is_zombie || is_other(BEGAN, BEGAN_BITS) || is_other(PROGRAM, PROGRAM_BITS)
    }
}

/// Reduces a number to `bits` bits. Only 0 becomes 0.
const fn bits_of(number: u64, bits: u32) -> u64 {
    if number == 0 { 0 } else { 1 + number % ((1 << bits) - 1) }
}

/// The state of a process, from the system.
struct ProcessState {
    /// In ticks since the machine was started.
    began: u64,
    /// A digest of where its code and stack begin, which changes with its program. 0 if this process may not know it.
    program: u64,
    /// True if it has ended, but its parent has not collected it.
    is_zombie: bool,
}

/// `None` if the system does not give it.
fn state_of(pid: u32) -> Option<ProcessState> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name of the program stands in parentheses, and may contain some.
    let mut fields = text.rsplit_once(')')?.1.split_ascii_whitespace();
    let state = fields.next()?;
    let mut number = |skipped| fields.nth(skipped)?.parse::<u64>().ok();
    // The first thread may have ended before the others: then it is a zombie, and the process is not.
    let (threads, began) = (number(16)?, number(1)?);
    let (code, stack) = (number(3).unwrap_or(0), number(1).unwrap_or(0));
    let program = if stack == 0 { 0 } else { (code.rotate_left(32) ^ stack).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32 };
    Some(ProcessState { began, program, is_zombie: matches!(state, "Z" | "X") && threads <= 1 })
}

/// True if no process has that id.
fn is_gone(pid: u32) -> bool {
    let pid = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw);
    pid.is_none_or(|pid| rustix::process::test_kill_process(pid) == Err(rustix::io::Errno::SRCH))
}

/// A part of the number of the namespace of process ids.
fn namespace() -> u64 {
    static KNOWN: AtomicU64 = AtomicU64::new(u64::MAX);
    let known = KNOWN.load(Ordering::Relaxed);
    if known != u64::MAX {
        return known;
    }
    let link = fs::read_link("/proc/self/ns/pid").ok();
    let digits: String =
        link.iter().flat_map(|link| link.to_str()).flat_map(str::chars).filter(char::is_ascii_digit).collect();
    let number = digits.parse::<u64>().unwrap_or(0) % ((1 << NAMESPACE_BITS) - 1);
    KNOWN.store(number, Ordering::Relaxed);
    number
}

/// A lock that this thread holds.
pub(super) struct LockGuard<'a> {
    words: &'a Words,
    at: usize,
    /// True if it was taken over from a process that has ended.
    pub(super) is_inherited: bool,
    /// True if its number named no process.
    pub(super) is_damaged: bool,
}

impl Drop for LockGuard<'_> {
    fn drop(&mut self) {
        self.words.release(self.at, 0);
    }
}

/// Takes a lock that is free now.
#[inline]
pub(super) fn try_lock(words: &Words, at: usize) -> Option<LockGuard<'_>> {
    let own = Salt::at(at).seal(ProcessMark::own().0);
    let is_taken = words.load(at) == 0 && words.publish(at, 0, own);
    is_taken.then(|| LockGuard { words, at, is_inherited: false, is_damaged: false })
}

/// Takes over a lock from a process that has ended, or one with a number that names no process.
pub(super) fn try_inherit(words: &Words, at: usize) -> Option<LockGuard<'_>> {
    let (holder, own, salt) = (words.load(at), ProcessMark::own(), Salt::at(at));
    let mark = salt.open(holder).ok().filter(|mark| mark & 1 == 1).map(ProcessMark);
    let is_left = mark.is_some_and(|mark| mark != own && mark.has_ended());
    let is_damaged = holder != 0 && mark.is_none();
    let is_taken = (is_left || is_damaged) && words.publish(at, holder, salt.seal(own.0));
    is_taken.then(|| LockGuard { words, at, is_inherited: true, is_damaged })
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
