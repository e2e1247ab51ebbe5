//! The units that a request holds, and who keeps them.

use std::fmt;
use std::sync::Arc;

use http::{Method, StatusCode};

use crate::limiter::Hold;

/// The units of `concurrency` limits that a request holds: an extension of the request. They are given back when the response
/// has ended and the last copy is dropped.
///
/// A connection that is upgraded, to a websocket, lives on when its response has ended. The handler moves a copy into what
/// serves the connection:
///
/// ```
/// # #[cfg(feature = "axum")]
/// # mod example {
/// use axum::Extension;
/// use tidegate::http::tower::HeldUnits;
/// # type WebSocketUpgrade = (); type Response = ();
///
/// async fn socket(upgrade: WebSocketUpgrade, Extension(held): Extension<HeldUnits>) -> Response {
///     // upgrade.on_upgrade(move |socket| async move {
///     //     let _held = held;
///     //     … serve the socket …
///     // })
/// }
/// # }
/// ```
///
/// An upgraded connection whose handler keeps no copy would be free of the limit: its response is 500, and the log says why.
#[derive(Clone)]
pub struct HeldUnits(Arc<Vec<Hold>>);

impl HeldUnits {
    /// `None` for no holds.
    pub(super) fn of(holds: Vec<Hold>) -> Option<Self> {
        (!holds.is_empty()).then(|| Self(Arc::new(holds)))
    }

    pub(super) fn holds(&self) -> &[Hold] {
        &self.0
    }

    /// Whether another copy exists.
    pub(super) fn is_kept(&self) -> bool {
        Arc::strong_count(&self.0) > 1
    }
}

impl fmt::Debug for HeldUnits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HeldUnits").finish_non_exhaustive()
    }
}

/// Whether a response ends HTTP on its connection, or on its stream, which lives on.
pub(super) fn is_upgrade(method: &Method, status: StatusCode) -> bool {
    status == StatusCode::SWITCHING_PROTOCOLS || *method == Method::CONNECT && status.is_success()
}
