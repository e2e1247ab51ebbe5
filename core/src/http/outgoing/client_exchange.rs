//! The differences between clients.

use std::error::Error as StdError;
use std::future::Future;

use bytes::Bytes;
use http::{Extensions, HeaderMap, Method, StatusCode};

use super::call_turn::CallEnd;
use super::refused_call::RefusedCall;

/// The head of a request that goes out, as the functions among the options get it.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct PacedRequest<'a> {
    /// Its method.
    pub method: &'a Method,
    /// Its URL, as the client writes it.
    pub url: &'a str,
    /// Its header fields.
    pub headers: &'a HeaderMap,
    /// The values that the caller has added to it.
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

/// The head of a response, as `settle` gets it.
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

/// A request of a client, and the operations on its response.
pub(crate) trait ClientExchange: Send {
    type Response: Send;
    type Error: Send;

    /// The head of the request, until it is sent for the last time.
    fn request(&self) -> PacedRequest<'_>;

    /// `scheme://host[:port]`. `None` if the request does not name it.
    fn origin(&self) -> Option<String>;

    /// The first call, if the client follows redirects itself. It stays for the requests that follow that call.
    fn made_for(&mut self) -> Option<&mut Option<MadeFor>> {
        None
    }

    /// Returns when the client can send.
    fn ready(&mut self) -> impl Future<Output = Result<(), Self::Error>> + Send;

    /// Sends the request. With `keep` a copy stays for another attempt, if its body allows that.
    fn send(&mut self, keep: bool) -> impl Future<Output = Result<Self::Response, Self::Error>> + Send;

    /// True if there is a copy.
    fn is_kept(&self) -> bool;

    /// True if a request that failed with this error certainly has not arrived.
    fn never_arrived(error: &Self::Error) -> bool;

    fn head(response: &Self::Response) -> PacedResponse<'_>;

    /// The origin that has answered, if the client has followed a redirect by itself.
    fn redirected_to(&self, _: &Self::Response) -> Option<String> {
        None
    }

    /// Returns the body, unless it is too long, breaks off or takes too long. The caller can still read it.
    fn read(response: Self::Response) -> impl Future<Output = (Option<Bytes>, Self::Response)> + Send;

    /// Feeds each chunk that the caller reads of the body, and ends the call with it.
    fn watch(response: Self::Response, end: CallEnd) -> Self::Response;

    /// Makes a response that no service has sent.
    fn made(&self, refused: RefusedCall) -> Self::Response;

    /// Turns an error of ours into one of the client.
    fn failed(error: impl StdError + Send + Sync + 'static) -> Self::Error;
}
