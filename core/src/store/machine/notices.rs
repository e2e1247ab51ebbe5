//! What is to be said of a file once no lock is held: a listener may make calls of its own.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::process::log::{Log, WarningKind};
use crate::store::ForgottenDenials;

/// What helps a full file.
const MORE: &str = "give it more, as in ?max_bytes=256MB, with a new file";

/// What was noticed of a file, and not said yet.
pub(super) struct Notices {
    /// Records that were damaged, and are gone.
    damaged: AtomicUsize,
    /// Whether a key was forgotten before its time.
    is_full: AtomicBool,
    forgotten_denials: Arc<ForgottenDenials>,
    log: Arc<Log>,
}

impl Notices {
    pub(super) fn new(forgotten_denials: Arc<ForgottenDenials>, log: Arc<Log>) -> Self {
        Self { damaged: AtomicUsize::new(0), is_full: AtomicBool::new(false), forgotten_denials, log }
    }

    #[cold]
    pub(super) fn damaged(&self, records: usize) {
        self.damaged.fetch_add(records, Ordering::Relaxed);
    }

    #[cold]
    pub(super) fn forgotten(&self) {
        self.is_full.store(true, Ordering::Relaxed);
    }

    #[cold]
    pub(super) fn forgotten_denial(&self) {
        self.forgotten_denials.add();
    }

    /// Says what there is to say.
    #[inline]
    pub(super) fn report(&self, path: &Path) {
        self.forgotten_denials.report(|| (path.display().to_string(), MORE));
        if self.damaged.load(Ordering::Relaxed) > 0 || self.is_full.load(Ordering::Relaxed) {
            self.say(path);
        }
    }

    #[cold]
    fn say(&self, path: &Path) {
        let damaged = self.damaged.swap(0, Ordering::Relaxed);
        if damaged > 0 {
            self.log.warn(&format!(
                "{} had {damaged} damaged records: the usage of their keys begins anew",
                path.display()
            ));
        }
        if self.is_full.swap(false, Ordering::Relaxed) && !self.log.has_warned(WarningKind::FullStore) {
            self.log.warn_once(WarningKind::FullStore, || {
                format!("{} is full: keys that are used least are forgotten before their time; {MORE}", path.display())
            });
        }
    }
}
