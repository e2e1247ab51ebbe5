//! The layer, and the service that limits the requests of another.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::request::Parts;
use http::{Request, Response, StatusCode};
use tower_layer::Layer;
use tower_service::Service;

use super::body::{HeldUnits, LimitedBody, SettledAtEnd, is_upgrade};
use super::refusal::{self, RouteFields};
use super::request_limits::RequestLimits;
use crate::decision::Decision;
use crate::error::Error;
use crate::http::status;

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

/// A service with limits on its requests.
#[derive(Clone)]
pub struct RateLimit<S> {
    inner: S,
    limits: Arc<RequestLimits>,
}

impl<S> RateLimit<S> {
    pub(super) const fn new(inner: S, limits: Arc<RequestLimits>) -> Self {
        Self { inner, limits }
    }
}

impl<S: fmt::Debug> fmt::Debug for RateLimit<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RateLimit").field("inner", &self.inner).finish_non_exhaustive()
    }
}

type ResponseFuture<B, E> = Pin<Box<dyn Future<Output = Result<Response<LimitedBody<B>>, E>> + Send>>;

impl<S, R, B> Service<Request<R>> for RateLimit<S>
where
    S: Service<Request<R>, Response = Response<B>> + Clone + Send + 'static,
    S::Future: Send + 'static,
    R: Send + 'static,
    B: Send + 'static,
{
    type Response = Response<LimitedBody<B>>;
    type Error = S::Error;
    type Future = ResponseFuture<B, S::Error>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<R>) -> Self::Future {
        // The service that reported that it is ready must be called, not its clone.
        let next = self.inner.clone();
        let inner = std::mem::replace(&mut self.inner, next);
        Box::pin(serve(inner, Arc::clone(&self.limits), request))
    }
}

async fn serve<S, R, B>(
    mut inner: S,
    limits: Arc<RequestLimits>,
    request: Request<R>,
) -> Result<Response<LimitedBody<B>>, S::Error>
where
    S: Service<Request<R>, Response = Response<B>>,
{
    let (mut head, body) = request.into_parts();
    limits.pass_addresses(&mut head);
    let mut policies = Vec::new();
    let admission = limits.admit(&head, &mut policies).await;
    let fields = RouteFields { policies: policies.iter().map(|policy| &**policy).collect(), which: limits.headers };
    let admitted = match admission {
        Ok(Some(refused)) if refused.refused_by().is_some() => {
            return Ok(refuse(&limits, &head, &fields, refused.into_decision()));
        }
        Ok(Some(mut admitted)) => {
            let held = HeldUnits::of(admitted.take_holds());
            let decision = admitted.into_decision();
            head.extensions.insert(decision.clone());
            held.clone().map(|held| head.extensions.insert(held));
            Some((decision, held))
        }
        Ok(None) => None,
        Err(error) => return Ok(fail(&head, &fields, &error)),
    };
    let method = head.method.clone();
    let response = inner.call(Request::from_parts(head, body)).await?;
    let Some((decision, held)) = admitted else {
        return Ok(response.map(|body| LimitedBody::of_service(body, None, None)));
    };
    let (mut head, body) = response.into_parts();
    let upgrades = is_upgrade(&method, head.status);
    if upgrades && held.as_ref().is_some_and(|held| !held.is_kept()) {
        tracing::error!(
            target: "tidegate",
            "a websocket would not count in its concurrency limit, so its request got 500: move the extension HeldUnits of \
             the request into the task that serves the socket"
        );
        return Ok(refusal::broken_upgrade());
    }
    let is_done = limits.follow_up(&decision, &head).await;
    let settled = if is_done { None } else { SettledAtEnd::new(&limits, &head, &decision) };
    fields.announce(&mut head.headers, &[&decision]);
    head.extensions.insert(decision);
    Ok(Response::from_parts(head, LimitedBody::of_service(body, held.filter(|_| !upgrades), settled)))
}

fn refuse<B>(
    limits: &RequestLimits,
    request: &Parts,
    fields: &RouteFields<'_>,
    decision: Decision,
) -> Response<LimitedBody<B>> {
    let given = limits.on_denied.as_ref().and_then(|answer| answer(request, &decision));
    let mut response = match given {
        Some(response) => {
            let mut response = response.map(LimitedBody::of_refusal);
            // A response without a status is a 200. A refused call of gRPC is a 200, too, and stays one.
            if response.status() == StatusCode::OK && !refusal::is_grpc(request) {
                *response.status_mut() = refusal::status_of(status(&decision));
            }
            fields.announce(response.headers_mut(), &[&decision]);
            response
        }
        None => refusal::denied(request, &decision, fields),
    };
    response.extensions_mut().insert(decision);
    response
}

fn fail<B>(request: &Parts, fields: &RouteFields<'_>, error: &Error) -> Response<LimitedBody<B>> {
    if error.kind().is_store() {
        tracing::error!(target: "tidegate", %error, "the store failed: the request got 503");
        return refusal::unavailable(request, fields);
    }
    tracing::error!(target: "tidegate", %error, "the limits of a request could not be asked: it got 500");
    refusal::broken(request)
}
