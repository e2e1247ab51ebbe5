//! Warnings about a file. They are given when no lock is held, because a listener may make calls itself.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use super::repair::Losses;
use crate::process::log::{Log, WarningKind};
use crate::store::ForgottenDenials;

/// The advice for a full file.
const MORE: &str = "give it more, as in ?max_bytes=256MB, with a new file";
/// Damage that has cost no usage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Notice {
    /// A copy of the numbers about the start of the machine.
    Start,
    /// The numbers about the time, for the next restart of the machine.
    Time,
    /// The numbers about the time, when a restart of the machine needed them.
    RestartTime,
    Lock,
}

impl Notice {
    const ALL: [Self; 4] = [Self::Start, Self::Time, Self::RestartTime, Self::Lock];

    const fn words(self) -> &'static str {
        match self {
            Self::Start => "a part of its header was damaged and was restored from its copy: no usage is lost",
            Self::Time => "the part of its header with its time was damaged and was restored: no usage is lost",
            Self::RestartTime => {
                "the part of its header with its time was damaged when the machine started again: periods and blocks go on by \
                 the clock of the machine, and may end early or late"
            }
            Self::Lock => "a lock was damaged: no process held it, and it is free again",
        }
    }
}

/// The notices about a file that are not reported yet.
pub(super) struct Notices {
    /// Places that were damaged, and the records that are gone with them.
    damaged: AtomicUsize,
    records: AtomicUsize,
    /// Notices, one bit each.
    notices: AtomicUsize,
    /// True if a key was forgotten before its time.
    is_full: AtomicBool,
    forgotten_denials: Arc<ForgottenDenials>,
    log: Arc<Log>,
}

impl Notices {
    pub(super) fn new(forgotten_denials: Arc<ForgottenDenials>, log: Arc<Log>) -> Self {
        let (damaged, records, notices) = Default::default();
        Self { damaged, records, notices, is_full: AtomicBool::new(false), forgotten_denials, log }
    }

    #[cold]
    pub(super) fn lost(&self, losses: Losses) {
        self.damaged.fetch_add(losses.damaged, Ordering::Relaxed);
        self.records.fetch_add(losses.records, Ordering::Relaxed);
    }

    #[cold]
    pub(super) fn add(&self, notice: Notice) {
        self.notices.fetch_or(1 << notice as usize, Ordering::Relaxed);
    }

    #[cold]
    pub(super) fn forgotten(&self) {
        self.is_full.store(true, Ordering::Relaxed);
    }

    #[cold]
    pub(super) fn forgotten_denial(&self) {
        self.forgotten_denials.add();
    }

    /// Reports the notices, if there are any.
    #[inline]
    pub(super) fn report(&self, path: &Path) {
        self.forgotten_denials.report(|| (path.display().to_string(), MORE));
        let has_noticed = |count: &AtomicUsize| count.load(Ordering::Relaxed) > 0;
        if has_noticed(&self.damaged) || has_noticed(&self.notices) || self.is_full.load(Ordering::Relaxed) {
            self.say(path);
        }
    }

    #[cold]
    fn say(&self, path: &Path) {
        let damaged = self.damaged.swap(0, Ordering::Relaxed);
        if damaged > 0 {
            let records = self.records.swap(0, Ordering::Relaxed);
            self.log.warn(&format!(
                "{} was damaged in {damaged} places and is repaired: at least {records} keys were lost, and their usage \
                 begins anew. If this comes again, check the memory and the disk of the machine",
                path.display()
            ));
        }
        let notices = self.notices.swap(0, Ordering::Relaxed);
        for notice in Notice::ALL.into_iter().filter(|notice| notices >> *notice as usize & 1 == 1) {
            self.log.warn(&format!("{}: {}", path.display(), notice.words()));
        }
        if self.is_full.swap(false, Ordering::Relaxed) && !self.log.has_warned(WarningKind::FullStore) {
            self.log.warn_once(WarningKind::FullStore, || {
                format!(
                    "{} is full, so that the keys with the oldest use are forgotten before their time: {MORE}",
                    path.display()
                )
            });
        }
    }
}
