//! Stands in for Redis and Valkey in a crate without the feature `redis`. Their URLs are refused before.

use std::convert::Infallible;
#[cfg(target_os = "linux")]
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

use super::Store;
use super::batch_guard::BatchGuard;
use super::key_names::KeyNames;
use super::url::Endpoints;
use crate::counting::histogram::SharedHistogram;
use crate::error::Result;
use crate::process::fork::PerProcess;
use crate::process::log::Log;

/// There are no replies to read.
#[derive(Default)]
pub(crate) struct ReaderRegistry;

impl ReaderRegistry {
    pub(crate) fn begin(&self) -> Option<Arc<EpollSet>> {
        None
    }

    pub(crate) fn end(&self, _: &Arc<EpollSet>) {}

    pub(crate) fn close(&self) {}

    pub(crate) fn poll_replies(&self) -> BatchGuard {
        BatchGuard::of([])
    }
}

/// None exists.
pub(crate) struct EpollSet(Infallible);

#[cfg(target_os = "linux")]
impl AsFd for EpollSet {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self.0 {}
    }
}

pub(crate) fn open(
    endpoints: Endpoints,
    _names: KeyNames,
    _timeout: Duration,
    _max_batch: usize,
    _readers: Arc<PerProcess<ReaderRegistry>>,
    _log: Arc<Log>,
    _batch_sizes: Arc<SharedHistogram>,
) -> Result<Arc<dyn Store>> {
    match endpoints.0 {}
}
