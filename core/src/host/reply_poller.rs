//! How an event loop receives replies without being woken by a thread of the core.

use std::sync::Arc;

use super::BatchGuard;
use crate::process::fork::PerProcess;
use crate::store::redis::{EpollSet, ReaderRegistry};

/// Replies of a limiter's servers, for an event loop that reads them itself. While it exists, the threads of the
/// limiter read only replies that the loop leaves unread for a while. After it is dropped, they read everything again.
pub struct ReplyPoller {
    readers: Arc<PerProcess<ReaderRegistry>>,
    set: Arc<EpollSet>,
}

impl ReplyPoller {
    pub(super) fn begin(readers: &Arc<PerProcess<ReaderRegistry>>) -> Option<Self> {
        let set = readers.with(ReaderRegistry::default, ReaderRegistry::begin)?;
        Some(Self { readers: Arc::clone(readers), set })
    }

    /// Call this when the file is readable. It reads the replies that have arrived and delivers them to the completion
    /// queues, on this thread. Calls that are queued already are sent with the batch, so that callers that get an
    /// answer and call again can join them.
    #[must_use]
    pub fn poll_replies(&self) -> BatchGuard {
        self.readers.get().map_or_else(BatchGuard::default, |readers| readers.poll_replies())
    }
}

#[cfg(target_os = "linux")]
impl std::os::fd::AsFd for ReplyPoller {
    /// The file to watch: readable while there are replies to read.
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.set.as_fd()
    }
}

impl Drop for ReplyPoller {
    fn drop(&mut self) {
        if let Some(readers) = self.readers.get() {
            readers.end(&self.set);
        }
    }
}
