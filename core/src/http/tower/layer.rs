//! The layer: the limits that its services share.

use std::fmt;
use std::sync::Arc;

use tower_layer::Layer;

use super::request_limits::RequestLimits;
use super::service::RateLimit;

/// Limits the requests of a service. See the [module](crate::http::tower).
#[derive(Clone)]
pub struct RateLimitLayer {
    limits: Arc<RequestLimits>,
}

impl RateLimitLayer {
    pub(super) fn of(limits: RequestLimits) -> Self {
        Self { limits: Arc::new(limits) }
    }
}

impl fmt::Debug for RateLimitLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RateLimitLayer").field("policies", &self.limits.policies).finish_non_exhaustive()
    }
}

impl<S> Layer<S> for RateLimitLayer {
    type Service = RateLimit<S>;

    fn layer(&self, inner: S) -> RateLimit<S> {
        RateLimit::new(inner, Arc::clone(&self.limits))
    }
}
