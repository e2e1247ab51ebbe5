//! The response to a request that was refused: a problem document, or the status of a gRPC call.

use bytes::Bytes;
use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};

use super::body::LimitedBody;
use crate::decision::Decision;
use crate::http::{Headers, MEDIA_TYPE, Refusal, headers_of_route};
use crate::policy::Policy;

/// The characters that gRPC encodes in a message: control characters and `%`.
const IN_A_MESSAGE: &AsciiSet = &CONTROLS.add(b'%');
const INTERNAL: &str = r#"{"type":"about:blank","title":"Internal Server Error","status":500,"detail":"This request could not be limited."}"#;

/// The status of gRPC for each of the three HTTP statuses.
const fn grpc_status(status: u16) -> &'static str {
    match status {
        429 => "8",
        503 => "14",
        _ => "13",
    }
}

/// The fields of the responses to a request.
pub(super) struct RouteFields<'a> {
    /// The policies of the request, in the order of their announcement.
    pub(super) policies: Vec<&'a Policy>,
    pub(super) which: Headers,
}

impl RouteFields<'_> {
    /// Adds the fields of the Decisions. Other layers may have announced other policies. Their items in lists stay, and
    /// so do their older fields, which hold one policy.
    pub(super) fn announce(&self, map: &mut HeaderMap, decisions: &[&Decision]) {
        for (name, value) in headers_of_route(&self.policies, decisions, self.which) {
            let (Ok(name), Ok(value)) = (HeaderName::from_bytes(name.as_bytes()), HeaderValue::try_from(value)) else {
                continue;
            };
            if name.as_str().starts_with("ratelimit") {
                map.append(name, value);
            } else {
                map.entry(name).or_insert(value);
            }
        }
    }
}

/// The response to a denied request.
pub(super) fn denied<B>(request: &Parts, decision: &Decision, fields: &RouteFields<'_>) -> Response<LimitedBody<B>> {
    let refusal = Refusal::of(decision);
    let mut response = refused(request, refusal.status(), refusal.problem());
    fields.announce(response.headers_mut(), &[decision]);
    if is_grpc(request) {
        // A client that may try again waits that long. A negative number means never.
        let pushback =
            decision.retry_after().map_or_else(|| "-1".to_owned(), |wait| wait.as_millis().max(1).to_string());
        if let Ok(pushback) = HeaderValue::try_from(pushback) {
            response.headers_mut().insert("grpc-retry-pushback-ms", pushback);
        }
    }
    response
}

/// The response if the store failed and `on_store_error` is `raise`.
pub(super) fn unavailable<B>(request: &Parts, fields: &RouteFields<'_>) -> Response<LimitedBody<B>> {
    let refusal = Refusal::unavailable(&fields.policies);
    let mut response = refused(request, refusal.status(), refusal.problem());
    response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(refusal.wait.unwrap_or(1)));
    fields.announce(response.headers_mut(), &[]);
    response
}

/// The response if the limits of a request cannot be asked: a mistake of the service, not of its client.
pub(super) fn broken<B>(request: &Parts) -> Response<LimitedBody<B>> {
    refused(request, 500, INTERNAL.to_owned())
}

/// Answers 500 to a request for a websocket, which would be free of its limit.
pub(super) fn broken_upgrade<B>() -> Response<LimitedBody<B>> {
    problem_response(500, INTERNAL.to_owned())
}

fn refused<B>(request: &Parts, status: u16, problem: String) -> Response<LimitedBody<B>> {
    if is_grpc(request) {
        return grpc(status, &problem);
    }
    problem_response(status, problem)
}

fn problem_response<B>(status: u16, problem: String) -> Response<LimitedBody<B>> {
    let mut response = Response::new(LimitedBody::of_refusal(Bytes::from(problem)));
    *response.status_mut() = status_of(status);
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(MEDIA_TYPE));
    response
}

/// A response without messages. Its head carries the status.
fn grpc<B>(status: u16, problem: &str) -> Response<LimitedBody<B>> {
    let mut response = Response::new(LimitedBody::of_refusal(Bytes::new()));
    let map = response.headers_mut();
    map.insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    map.insert("grpc-status", HeaderValue::from_static(grpc_status(status)));
    if let Ok(message) = HeaderValue::try_from(utf8_percent_encode(problem, IN_A_MESSAGE).to_string()) {
        map.insert("grpc-message", message);
    }
    response
}

pub(super) fn status_of(status: u16) -> StatusCode {
    StatusCode::from_u16(status).unwrap_or(StatusCode::TOO_MANY_REQUESTS)
}

pub(super) fn is_grpc(request: &Parts) -> bool {
    let kind = request.headers.get(CONTENT_TYPE).map(HeaderValue::as_bytes).unwrap_or_default();
    kind.starts_with(b"application/grpc") && !kind.starts_with(b"application/grpc-web")
}
