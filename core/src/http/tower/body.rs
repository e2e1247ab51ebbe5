//! The body of a response: that of the service, or the problem document of a refusal. When it has ended, the held units
//! of the request are given back and its charge is settled.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Method, StatusCode, response};
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

use super::request_limits::RequestLimits;
use crate::decision::Decision;
use crate::http::settling::in_background;
use crate::limiter::Hold;

pin_project! {
    /// A body that gives holds back after its last byte, or when it is dropped.
    #[project = Projected]
    #[derive(Debug)]
    pub struct LimitedBody<B> {
        #[pin]
        content: Content<B>,
        held: Option<HeldUnits>,
        settled: Option<SettledAtEnd>,
    }
}

pin_project! {
    #[project = ProjectedContent]
    #[derive(Debug)]
    enum Content<B> {
        Service { #[pin] body: B },
        Refusal { bytes: Option<Bytes> },
    }
}

impl<B> LimitedBody<B> {
    pub(super) const fn of_service(body: B, held: Option<HeldUnits>, settled: Option<SettledAtEnd>) -> Self {
        Self { content: Content::Service { body }, held, settled }
    }

    pub(super) fn of_refusal(bytes: Bytes) -> Self {
        let content = Content::Refusal { bytes: Some(bytes).filter(|bytes| !bytes.is_empty()) };
        Self { content, held: None, settled: None }
    }
}

impl<B: Body<Data = Bytes>> Body for LimitedBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let Projected { content, held, settled } = self.project();
        match content.project() {
            ProjectedContent::Refusal { bytes } => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            ProjectedContent::Service { body } => {
                let polled = body.poll_frame(cx);
                if matches!(polled, Poll::Ready(None | Some(Err(_)))) {
                    (*held, *settled) = (None, None);
                }
                polled
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.content {
            Content::Service { body } => body.is_end_stream(),
            Content::Refusal { bytes } => bytes.is_none(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.content {
            Content::Service { body } => body.size_hint(),
            Content::Refusal { bytes } => SizeHint::with_exact(bytes.as_ref().map_or(0, Bytes::len) as u64),
        }
    }
}

/// The units of `concurrency` limits that a request holds. They are an extension of the request, and are given back
/// when the response has ended and the last copy is dropped.
///
/// A connection that is upgraded, for example to a websocket, outlives its response. The handler moves a copy into the
/// code that serves the connection:
///
/// ```
/// # #[cfg(feature = "axum")]
/// # mod example {
/// # // What the feature `ws` of axum has, which a test of this crate alone does not turn on.
/// # mod axum {
/// #     pub use ::axum::{Extension, response};
/// #     pub mod extract {
/// #         pub mod ws {
/// #             use ::axum::response::{IntoResponse, Response};
/// #             pub struct WebSocket;
/// #             pub struct WebSocketUpgrade;
/// #             impl WebSocket {
/// #                 pub async fn recv(&mut self) -> Option<Result<(), ()>> { None }
/// #                 pub async fn send(&mut self, _: ()) -> Result<(), ()> { Ok(()) }
/// #             }
/// #             impl WebSocketUpgrade {
/// #                 pub fn on_upgrade<F: Future<Output = ()>>(self, _: impl FnOnce(WebSocket) -> F) -> Response {
/// #                     ().into_response()
/// #                 }
/// #             }
/// #         }
/// #     }
/// # }
/// use axum::Extension;
/// use axum::extract::ws::WebSocketUpgrade;
/// use axum::response::Response;
/// use tidegate::http::tower::HeldUnits;
///
/// async fn echo(upgrade: WebSocketUpgrade, Extension(held): Extension<HeldUnits>) -> Response {
///     upgrade.on_upgrade(move |mut socket| async move {
///         let _held = held; // as long as the socket is served
///         while let Some(Ok(message)) = socket.recv().await {
///             if socket.send(message).await.is_err() {
///                 break;
///             }
///         }
///     })
/// }
/// # }
/// ```
///
/// Without such a copy the upgraded connection would be free of the limit. The response is then 500, and the log has the reason.
#[derive(Clone)]
pub struct HeldUnits(Arc<Vec<(usize, Hold)>>);

impl HeldUnits {
    /// `None` if there are no holds.
    pub(super) fn of(holds: Vec<(usize, Hold)>) -> Option<Self> {
        (!holds.is_empty()).then(|| Self(Arc::new(holds)))
    }

    /// True if another copy exists.
    pub(super) fn is_kept(&self) -> bool {
        Arc::strong_count(&self.0) > 1
    }
}

impl fmt::Debug for HeldUnits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HeldUnits").finish_non_exhaustive()
    }
}

/// True if a response ends HTTP on its connection or stream, which lives on.
pub(super) fn is_upgrade(method: &Method, status: StatusCode) -> bool {
    status == StatusCode::SWITCHING_PROTOCOLS || *method == Method::CONNECT && status.is_success()
}

/// Settles a request once, when it is dropped: after the last byte, or when the client has gone.
pub(super) struct SettledAtEnd {
    limits: Arc<RequestLimits>,
    response: response::Parts,
    charged: Decision,
}

impl SettledAtEnd {
    /// `None` if nothing is to be settled at the end.
    pub(super) fn new(limits: &Arc<RequestLimits>, response: &response::Parts, charged: &Decision) -> Option<Self> {
        limits.settle_at_end.as_ref()?;
        Some(Self { limits: Arc::clone(limits), response: response.clone(), charged: charged.clone() })
    }
}

impl Drop for SettledAtEnd {
    fn drop(&mut self) {
        let Some(actual) = self.limits.settle_at_end.as_ref().and_then(|read| read(&self.response)) else { return };
        let limits = Arc::clone(&self.limits);
        let charged = self.charged.clone();
        in_background(async move { limits.settle_all(&charged, &actual).await });
    }
}

impl fmt::Debug for SettledAtEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SettledAtEnd").finish_non_exhaustive()
    }
}
