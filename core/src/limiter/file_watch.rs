//! Reloads a policy file that has changed, for limiters with `watch`. One thread of a process reads the files of all its limiters,
//! and ends with the last of them. Content is compared, because an edit within the same second, a renamed file and a link that
//! leads elsewhere may all keep the time of a change.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

use super::LimiterCore;
use crate::process::fork::PerProcess;
use crate::process::lock::{Condvar, Mutex};

/// A file may be half written when it is read. It is taken when it is still the same after this time.
const SETTLED_AFTER: Duration = Duration::from_millis(100);
/// The longest time between two looks.
pub(super) const LONGEST: Duration = Duration::from_secs(86_400);

/// Called after each reload that was taken.
pub(super) type ReloadListener = Arc<dyn Fn() + Send + Sync>;

/// The watch of one limiter over its file. A forked child goes on with what its parent has seen.
pub(super) struct FileWatch {
    interval: Duration,
    /// The digest of the content that was last taken or refused.
    seen: AtomicU64,
    core: OnceLock<Weak<LimiterCore>>,
}

impl FileWatch {
    pub(super) fn new(interval: Duration, seen: u64) -> Self {
        Self { interval, seen: AtomicU64::new(seen), core: OnceLock::new() }
    }

    /// Begins to look.
    pub(super) fn begin_for(&self, core: &Arc<LimiterCore>) {
        let _ = self.core.set(Arc::downgrade(core));
        self.begin();
    }

    /// Begins to look in this process.
    pub(super) fn begin(&self) {
        let Some(core) = self.core.get() else { return };
        WATCHER.with(Watcher::default, |watcher| {
            let mut files = watcher.files.lock();
            files.watched.push(WatchedFile {
                core: Weak::clone(core),
                due: Instant::now() + self.interval,
                unsettled: None,
            });
            if !files.has_thread {
                let thread = std::thread::Builder::new().name("tidegate-watch".to_owned());
                let run = || WATCHER.with(Watcher::default, Watcher::run);
                // Without the thread `reload` still works.
                files.has_thread = thread.spawn(run).is_ok();
            }
            watcher.changed.notify_one();
        });
    }

    /// Looks no more.
    pub(super) fn end(&self) {
        if let (Some(core), Some(watcher)) = (self.core.get(), WATCHER.get()) {
            watcher.files.lock().watched.retain(|one| !one.core.ptr_eq(core));
            watcher.changed.notify_one();
        }
    }

    /// Looks at the file. Returns the time until the next look, and the digest of a change that may not be complete.
    fn look(&self, core: &LimiterCore, unsettled: Option<u64>) -> (Duration, Option<u64>) {
        let Some(found) = core.source.as_ref().map(|source| source.digest()) else { return (LONGEST, None) };
        if found == self.seen.load(Ordering::Relaxed) {
            return (self.interval, None);
        }
        if unsettled != Some(found) {
            return (self.interval.min(SETTLED_AFTER), Some(found));
        }
        self.seen.store(found, Ordering::Relaxed);
        if let Err(error) = core.reload() {
            core.log.warn(&format!(
                "the changed policy file is not taken, and the policies before it stay in force: {error}"
            ));
        }
        (self.interval, None)
    }
}

static WATCHER: PerProcess<Watcher> = PerProcess::new();

/// The watches of a process.
#[derive(Default)]
struct Watcher {
    files: Mutex<WatchList>,
    changed: Condvar,
}

#[derive(Default)]
struct WatchList {
    watched: Vec<WatchedFile>,
    has_thread: bool,
}

struct WatchedFile {
    core: Weak<LimiterCore>,
    due: Instant,
    unsettled: Option<u64>,
}

impl Watcher {
    /// Looks at files until there are none. This is the work of the thread.
    fn run(&self) {
        let mut files = self.files.lock();
        while let Some(next) = files.watched.iter_mut().min_by_key(|one| one.due) {
            let (core, due, unsettled) = (Weak::clone(&next.core), next.due, next.unsettled);
            if due > Instant::now() {
                (files, _) = self.changed.wait_until(files, due);
                continue;
            }
            // Without the lock, because a limiter that ends here takes it.
            drop(files);
            let looked = core.upgrade().and_then(|core| Some(core.watch.as_ref()?.look(&core, unsettled)));
            files = self.files.lock();
            match (looked, files.watched.iter_mut().find(|one| one.core.ptr_eq(&core))) {
                (Some((pause, unsettled)), Some(one)) => (one.due, one.unsettled) = (Instant::now() + pause, unsettled),
                _ => files.watched.retain(|one| !one.core.ptr_eq(&core)),
            }
        }
        files.has_thread = false;
    }
}
