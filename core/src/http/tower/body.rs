//! The body of a response: that of the service, or the problem document of a refusal.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

use super::held_units::HeldUnits;
use super::settled_at_end::SettledAtEnd;

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
