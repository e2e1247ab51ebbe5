//! What is settled when the body of a response has ended.

use std::sync::Arc;

use http::response;

use super::request_limits::RequestLimits;
use crate::decision::Decision;

/// Settles a request once, when it is dropped: after the last byte, or when the client has gone.
pub(super) struct SettledAtEnd {
    limits: Arc<RequestLimits>,
    response: response::Parts,
    charged: Vec<Decision>,
}

impl SettledAtEnd {
    /// `None` where nothing is to be settled then.
    pub(super) fn new(limits: &Arc<RequestLimits>, response: &response::Parts, charged: Vec<Decision>) -> Option<Self> {
        limits.settle_at_end.as_ref()?;
        Some(Self { limits: Arc::clone(limits), response: response.clone(), charged })
    }
}

impl Drop for SettledAtEnd {
    fn drop(&mut self) {
        let Some(actual) = self.limits.settle_at_end.as_ref().and_then(|read| read(&self.response)) else { return };
        let (limits, charged) = (Arc::clone(&self.limits), std::mem::take(&mut self.charged));
        let settle = async move {
            for decision in charged {
                limits.settle_to(&decision, actual).await;
            }
        };
        match tokio::runtime::Handle::try_current() {
            Ok(runtime) => drop(runtime.spawn(settle)),
            Err(_) => {
                tracing::warn!(target: "tidegate", "a body ended outside of a tokio runtime: its request is not settled")
            }
        }
    }
}

impl std::fmt::Debug for SettledAtEnd {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SettledAtEnd").finish_non_exhaustive()
    }
}
