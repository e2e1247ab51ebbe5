//! Functions of a limiter for hosts, beside its calls.

use std::any::Any;
use std::sync::Arc;

use tokio::sync::oneshot;

use super::ReplyPoller;
use crate::decision::Decision;
use crate::error::Result;
use crate::limiter::{AsPolicy, AsyncLimiter, CheckOptions, Limiter};
use crate::policy::Policy;

#[doc(hidden)]
impl Limiter {
    /// True if calls may have to wait for a server.
    #[must_use]
    pub fn waits(&self) -> bool {
        self.core.layers.is_some()
    }

    /// Like its `waiting`, but returns an error for a wrong policy or key.
    ///
    /// # Errors
    /// `policy_unknown`, `policy_invalid`, `key_invalid` and `closed`, as for any call.
    pub fn try_waiting(&self, policy: impl AsPolicy, key: &str) -> Result<usize> {
        self.core.waiting(&policy, key)
    }
}

#[doc(hidden)]
impl AsyncLimiter {
    /// The Decision of `acquire` if it is admitted in one step. `None` if it may have to wait.
    ///
    /// # Errors
    /// As [`AsyncLimiter::acquire_with`].
    pub fn acquire_at_once(
        &self,
        policy: impl AsPolicy,
        key: &str,
        options: &CheckOptions,
    ) -> Result<Option<Decision>> {
        self.core.acquire_at_once(&policy, key, options)
    }

    /// As [`Limiter::try_waiting`].
    ///
    /// # Errors
    /// As [`Limiter::try_waiting`].
    pub fn try_waiting(&self, policy: impl AsPolicy, key: &str) -> Result<usize> {
        self.core.waiting(&policy, key)
    }

    /// Writes the generations of all keys to `copies`, if one has changed since `seen`. They end the denials that a host repeats
    /// by itself: it may repeat a denial while its `denial_generation` is in `copies`, at the index `generation % copies.len()`.
    #[inline]
    pub fn copy_denial_generations(&self, seen: &mut u32, copies: &mut [f64]) {
        self.core.copy_denial_generations(seen, copies);
    }

    /// Counts denials that a host has repeated by itself, as if the deny cache had.
    pub fn count_repeated(&self, policy: &Policy, times: u64) {
        self.core.count_repeated(policy, times);
    }

    /// A number that limiters of the same store and prefix share.
    #[must_use]
    pub fn identity(&self) -> u64 {
        self.core.id.digest()
    }

    /// The data that a host gave with its store.
    #[must_use]
    pub fn host_data(&self) -> Option<Arc<dyn Any + Send + Sync>> {
        self.core.host_data.clone()
    }

    /// Lets an event loop that can watch a file read the replies of the limiter's servers from now on. `None` if there
    /// are no servers, if another loop reads already, or if the system is not Linux.
    #[must_use]
    pub fn reply_poller(&self) -> Option<ReplyPoller> {
        self.core.layers.as_ref()?;
        ReplyPoller::begin(&self.core.readers)
    }

    /// Like its `close`, but waits for the store on another thread, so that the event loop goes on.
    pub async fn close_on_thread(&self) {
        let Some(queues) = self.core.begin_closing() else { return };
        if self.core.layers.is_none() {
            return self.core.give_back(&queues);
        }
        let (core, (closed, end)) = (Arc::clone(&self.core), oneshot::channel());
        let of_thread = queues.clone();
        let run = move || {
            core.give_back(&of_thread);
            // The caller may be gone.
            let _ = closed.send(());
        };
        match std::thread::Builder::new().name("tidegate-close".to_owned()).spawn(run) {
            Ok(_) => drop(end.await),
            Err(_) => self.core.give_back(&queues),
        }
    }

    /// From now on threads of the limiter read the replies, even if an event loop did.
    pub fn read_on_threads(&self) {
        if let Some(readers) = self.core.readers.get() {
            readers.close();
        }
    }
}
