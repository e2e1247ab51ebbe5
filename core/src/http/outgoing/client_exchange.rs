//! What differs between clients.

use std::error::Error as StdError;
use std::future::Future;

use bytes::Bytes;
use http::{Extensions, HeaderMap, Method, StatusCode};

use super::call_turn::CallEnd;
use super::refused_call::RefusedCall;

/// The head of a request that goes out: what the functions among the options get.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct PacedRequest<'a> {
    /// Its method.
    pub method: &'a Method,
    /// Its URL, as the client has it.
    pub url: &'a str,
    /// Its header fields.
    pub headers: &'a HeaderMap,
    /// What the caller has left with it.
    pub extensions: &'a Extensions,
}

impl<'a> PacedRequest<'a> {
    pub(crate) const fn new(
        method: &'a Method,
        url: &'a str,
        headers: &'a HeaderMap,
        extensions: &'a Extensions,
    ) -> Self {
        Self { method, url, headers, extensions }
    }
}

/// The head of a response: what `settle` gets.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct PacedResponse<'a> {
    /// Its status.
    pub status: StatusCode,
    /// Its header fields.
    pub headers: &'a HeaderMap,
}

impl<'a> PacedResponse<'a> {
    pub(crate) const fn new(status: StatusCode, headers: &'a HeaderMap) -> Self {
        Self { status, headers }
    }
}

/// The origin of a call, and its key.
#[derive(Debug)]
pub(crate) struct MadeFor {
    pub(super) origin: String,
    pub(super) key: String,
}

/// A request of a client, and what is done with its response.
pub(crate) trait ClientExchange: Send {
    type Response: Send;
    type Error: Send;

    /// The head of the request, until it is sent for the last time.
    fn request(&self) -> PacedRequest<'_>;

    /// `scheme://host[:port]`; `None` where the request does not say it.
    fn origin(&self) -> Option<String>;

    /// Which call was asked for, of a client that follows redirects itself: it stays for what is sent after that call.
    fn made_for(&mut self) -> Option<&mut Option<MadeFor>> {
        None
    }

    /// Returns when the client can send.
    fn ready(&mut self) -> impl Future<Output = Result<(), Self::Error>> + Send;

    /// Sends the request; with `keep` a copy stays for another attempt, where its body allows that.
    fn send(&mut self, keep: bool) -> impl Future<Output = Result<Self::Response, Self::Error>> + Send;

    /// Whether a copy is there.
    fn is_kept(&self) -> bool;

    /// Whether it is certain that a request that failed with this error has not arrived.
    fn never_arrived(error: &Self::Error) -> bool;

    fn head(response: &Self::Response) -> PacedResponse<'_>;

    /// The origin that has answered, where the client has followed a redirect by itself.
    fn redirected_to(&self, _: &Self::Response) -> Option<String> {
        None
    }

    /// The body, unless it is longer than what is read, breaks off or takes too long. The caller can read it all the same.
    fn read(response: Self::Response) -> impl Future<Output = (Option<Bytes>, Self::Response)> + Send;

    /// Feeds what the caller reads of the body; its end is that of the call.
    fn watch(response: Self::Response, end: CallEnd) -> Self::Response;

    /// A response that no service has sent.
    fn made(&self, refused: RefusedCall) -> Self::Response;

    /// An error of ours.
    fn failed(error: impl StdError + Send + Sync + 'static) -> Self::Error;
}
