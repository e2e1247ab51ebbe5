//! The body of a response: that of the service, or the problem document of a refusal.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

use crate::limiter::Hold;

pin_project! {
    /// A body that gives holds back after its last byte, or when it is dropped.
    #[project = Projected]
    #[derive(Debug)]
    pub struct LimitedBody<B> {
        #[pin]
        content: Content<B>,
        holds: Vec<Hold>,
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
    pub(super) const fn of_service(body: B, holds: Vec<Hold>) -> Self {
        Self { content: Content::Service { body }, holds }
    }

    pub(super) fn of_refusal(bytes: Bytes) -> Self {
        Self { content: Content::Refusal { bytes: Some(bytes).filter(|bytes| !bytes.is_empty()) }, holds: Vec::new() }
    }
}

impl<B: Body<Data = Bytes>> Body for LimitedBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let Projected { content, holds } = self.project();
        match content.project() {
            ProjectedContent::Refusal { bytes } => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            ProjectedContent::Service { body } => {
                let polled = body.poll_frame(cx);
                if matches!(polled, Poll::Ready(None | Some(Err(_)))) {
                    holds.clear();
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
