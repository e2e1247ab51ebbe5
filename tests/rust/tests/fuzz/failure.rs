//! Runs an input, makes one that breaks a promise small, and keeps it.

use std::cell::{Cell, RefCell};
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Once;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

use crate::fuzz::corpus;
use crate::fuzz::targets::Target;

/// No input takes longer, in processor time of the thread. A usual one takes a thousandth of it.
pub(crate) const LONGEST: Duration = Duration::from_millis(500);
/// The time for making an input smaller.
const SHRINKING: Duration = Duration::from_secs(10);

thread_local! {
    static RUNS: Cell<bool> = const { Cell::new(false) };
    static MESSAGE: RefCell<String> = const { RefCell::new(String::new()) };
}

/// A panic of an input passes its message to [`run`], and prints nothing.
fn keep_messages() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            if RUNS.get() {
                MESSAGE.replace(panic.to_string());
            } else {
                usual(panic);
            }
        }));
    });
}

/// The processor time of this thread.
pub(crate) fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec as u32)
}

/// The kind of outcome of an input.
///
/// # Errors
/// The promise that it breaks.
pub(crate) fn run(target: &Target, input: &[u8]) -> Result<String, String> {
    keep_messages();
    let once = || {
        RUNS.set(true);
        let outcome = catch_unwind(AssertUnwindSafe(|| (target.run)(input)));
        RUNS.set(false);
        outcome.map_err(|_| MESSAGE.take())
    };
    let began = Instant::now();
    let outcome = once()?;
    if began.elapsed() > LONGEST / 4 {
        // The machine may be busy, so the time of the processor counts.
        let began = processor_time();
        once()?;
        let took = processor_time().saturating_sub(began);
        if took > LONGEST {
            return Err(format!("an input of {} bytes takes {took:?} of processor time", input.len()));
        }
    }
    Ok(outcome)
}

/// A smaller input that breaks a promise too.
pub(crate) fn smallest(target: &Target, input: &[u8]) -> Vec<u8> {
    let (mut least, until) = (input.to_vec(), Instant::now() + SHRINKING);
    let fails = |candidate: &[u8]| Instant::now() < until && run(target, candidate).is_err();
    loop {
        let before = least.clone();
        let mut length = least.len().div_ceil(2);
        while length > 0 {
            let mut at = 0;
            while at < least.len() {
                let end = (at + length).min(least.len());
                let candidate = [&least[..at], &least[end..]].concat();
                if fails(&candidate) {
                    least = candidate;
                } else {
                    at += length;
                }
            }
            length /= 2;
        }
        for at in 0..least.len() {
            for simple in [b'0', b'a', b' '] {
                if least[at] == simple {
                    break;
                }
                let mut candidate = least.clone();
                candidate[at] = simple;
                if fails(&candidate) {
                    least = candidate;
                    break;
                }
            }
        }
        if least == before {
            return least;
        }
    }
}

/// Keeps an input in a folder. The message has the broken promise and the command that repeats it.
pub(crate) fn kept(target: &Target, folder: &Path, input: &[u8], message: &str) -> String {
    fs::create_dir_all(folder).expect("a folder");
    let path = folder.join(corpus::name_of(input));
    fs::write(&path, input).expect("the input is kept");
    let message = run(target, input).err().unwrap_or_else(|| message.to_owned());
    format!(
        "the target {} breaks: {message}\nwith {:?}\nwhich is kept as {}\nto repeat it: cargo test -p tidegate-tests --test \
         suite kept",
        target.name,
        String::from_utf8_lossy(input),
        path.display()
    )
}
