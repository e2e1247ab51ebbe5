//! How an event loop hears of answers without being woken by a thread of ours.

use std::sync::Arc;

use super::AsyncLimiter;
use crate::fork::PerProcess;
use crate::store::{Lookout, Row, Set};

/// An event loop that reads itself what the servers of a limiter say. While there is one the limiter's threads read only
/// what it has left lying for a while; when this is dropped they read as before.
pub struct Watch {
    lookout: Arc<PerProcess<Lookout>>,
    set: Arc<Set>,
}

impl Watch {
    /// To be called when the file is readable: reads what is there and gives it to the inboxes it is for, on this thread.
    /// Those who wait already leave with the row, so that who is answered and asks again can join them.
    #[must_use]
    pub fn look(&self) -> Row {
        self.lookout.get().map_or_else(Row::default, |lookout| lookout.1.look())
    }
}

#[cfg(target_os = "linux")]
impl std::os::fd::AsFd for Watch {
    /// The file to watch: readable while there is something to look at. Its owner lives until nobody watches it.
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.set.as_fd()
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        if let Some(lookout) = self.lookout.get() {
            lookout.1.end(&self.set);
        }
    }
}

impl AsyncLimiter {
    /// For an event loop that can watch a file: from now on it reads what the limiter's servers say. `None` when there are
    /// none, when another loop reads already, or when the system is not Linux.
    #[must_use]
    pub fn watch(&self) -> Option<Watch> {
        self.inner.layers.as_ref()?;
        let lookout = &self.inner.lookout;
        let set = lookout.with(Lookout::default, Lookout::begin)?;
        Some(Watch { lookout: Arc::clone(lookout), set })
    }

    /// From now on the limiter's threads read, whoever did.
    pub fn unwatch(&self) {
        if let Some(lookout) = self.inner.lookout.get() {
            lookout.1.close();
        }
    }
}
