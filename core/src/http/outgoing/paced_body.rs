//! The body of a response on its way to the caller. At its end the call is settled and its hold given back.

use std::collections::VecDeque;
use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::Duration;

use crate::process::lock::Mutex;
use bytes::{Bytes, BytesMut};
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

use super::call_turn::CallEnd;
use crate::http::MAX_BODY;
use crate::process::alarm::Alarm;

/// The longest time for which a body is read before the caller reads it.
const MAX_BODY_TIME: Duration = Duration::from_secs(1);

pin_project! {
    /// The body of the response to a paced call, frame by frame as the service sends it.
    ///
    /// The call is settled and its hold given back before the body ends, or when the body is dropped.
    #[project = PacedParts]
    pub struct PacedBody<B: Body> {
        // Frames that were read already.
        ahead: VecDeque<Frame<Bytes>>,
        // The error that ended the body while it was read.
        failed: Option<B::Error>,
        // None if no service has sent the response, and when the body has ended.
        #[pin]
        body: Option<B>,
        end: Mutex<Ending>,
    }
}

/// The rest of a call.
enum Ending {
    Open(CallEnd),
    Settling(Pin<Box<dyn Future<Output = ()> + Send>>),
    Done,
}

impl Ending {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if matches!(self, Self::Open(_)) {
            let Self::Open(end) = std::mem::replace(self, Self::Done) else { return Poll::Ready(()) };
            if let Some(settled) = end.finish() {
                *self = Self::Settling(Box::pin(settled));
            }
        }
        if let Self::Settling(settled) = self {
            std::task::ready!(settled.as_mut().poll(cx));
            *self = Self::Done;
        }
        Poll::Ready(())
    }
}

impl<B: Body<Data = Bytes>> PacedBody<B> {
    pub(crate) fn new(body: B) -> Self {
        Self { ahead: VecDeque::new(), failed: None, body: Some(body), end: Mutex::new(Ending::Done) }
    }

    /// Makes a body that no service has sent.
    pub(crate) fn made(content: String) -> Self {
        let ahead = VecDeque::from([Frame::data(Bytes::from(content))]);
        Self { ahead, failed: None, body: None, end: Mutex::new(Ending::Done) }
    }

    /// The same body. Its end is the end of a call.
    pub(crate) fn ending(self, end: CallEnd) -> Self {
        Self { end: Mutex::new(Ending::Open(end)), ..self }
    }
}

impl<B: Body<Data = Bytes> + Unpin> PacedBody<B> {
    /// Reads the whole body, unless it is too long, breaks off or takes too long. The frames that were read stay in front of the rest.
    pub(crate) async fn read_ahead(&mut self) -> Option<Bytes> {
        let (mut late, mut read) = (Alarm::after(MAX_BODY_TIME), pin!(self.read_all()));
        poll_fn(|cx| match read.as_mut().poll(cx) {
            Poll::Pending => late.poll(cx).map(|()| None),
            done => done,
        })
        .await
    }

    async fn read_all(&mut self) -> Option<Bytes> {
        let mut read = BytesMut::new();
        while let Some(body) = &mut self.body {
            let polled = poll_fn(|cx| Pin::new(&mut *body).poll_frame(cx)).await;
            match polled {
                None => break,
                Some(Err(error)) => {
                    self.failed = Some(error);
                    return None;
                }
                Some(Ok(frame)) => {
                    read.extend_from_slice(frame.data_ref().map(AsRef::as_ref).unwrap_or_default());
                    self.ahead.push_back(frame);
                }
            }
            if read.len() > MAX_BODY {
                return None;
            }
        }
        Some(read.freeze())
    }
}

impl<B: Body<Data = Bytes>> Body for PacedBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let PacedParts { ahead, failed, mut body, end } = self.project();
        let end = end.get_mut();
        let polled = match (ahead.pop_front(), failed.take()) {
            (Some(frame), kept) => {
                *failed = kept;
                Some(Ok(frame))
            }
            (None, Some(error)) => Some(Err(error)),
            (None, None) => match body.as_mut().as_pin_mut() {
                Some(body) => std::task::ready!(body.poll_frame(cx)),
                None => None,
            },
        };
        match polled {
            Some(Ok(frame)) => {
                if let (Ending::Open(end), Some(data)) = (end, frame.data_ref()) {
                    end.feed(data);
                }
                Poll::Ready(Some(Ok(frame)))
            }
            Some(Err(error)) => {
                // The caller gets the error at once. The rest is done in the background.
                *end = Ending::Done;
                Poll::Ready(Some(Err(error)))
            }
            None => {
                body.set(None);
                end.poll(cx).map(|()| None)
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        let has_ended = self.body.as_ref().is_none_or(Body::is_end_stream);
        // A reader that asks this would not poll the end.
        self.ahead.is_empty() && self.failed.is_none() && has_ended && matches!(*self.end.lock(), Ending::Done)
    }

    fn size_hint(&self) -> SizeHint {
        let ahead: u64 = self.ahead.iter().filter_map(Frame::data_ref).map(|data| data.len() as u64).sum();
        let rest = self.body.as_ref().map_or_else(|| SizeHint::with_exact(0), Body::size_hint);
        let mut hint = SizeHint::new();
        hint.set_lower(rest.lower().saturating_add(ahead));
        if let Some(upper) = rest.upper() {
            hint.set_upper(upper.saturating_add(ahead));
        }
        hint
    }
}

impl<B: Body> fmt::Debug for PacedBody<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PacedBody").field("ahead", &self.ahead.len()).finish_non_exhaustive()
    }
}
