//! The layer of clients, and the service that paces the calls of another service.

use std::error::Error as StdError;
use std::fmt;
use std::future::{Future, poll_fn};
use std::io;
use std::marker::PhantomData;
use std::mem::replace;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::header::HOST;
use http::request::Parts;
use http::uri::Authority;
use http::{Request, Response};
use http_body::Body;
use tower_layer::Layer;
use tower_service::Service;

use crate::error::Result;
use crate::http::outgoing::{
    CallEnd, ClientExchange, PaceBuilder, PacedBody, PacedRequest, PacedResponse, Pacing, RateLimited, RefusedCall,
};
use crate::limiter::{AsPolicy, AsyncLimiter};

/// The error of a paced service: [`RateLimited`], an [`Error`](crate::Error) of the limiter, or the error of the service.
type BoxError = Box<dyn StdError + Send + Sync>;

/// Paces the calls of a client: each request waits for its turn, in one line with all processes that share the store
/// and the key. The limits that its response announces count for all of them.
///
/// ```
/// use bytes::Bytes;
/// use http::{Request, Response};
/// use http_body_util::Full;
/// use tidegate::Limiter;
/// use tidegate::http::tower::PaceLayer;
/// use tower::{Layer, ServiceExt, service_fn};
///
/// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
/// let limiter = Limiter::builder().store("memory://").build_async()?;
/// // The client of hyper-util, or any other service of tower. This one answers by itself.
/// let client = service_fn(|_: Request<Full<Bytes>>| async {
///     Ok::<_, std::io::Error>(Response::new(Full::<Bytes>::default()))
/// });
/// let client = PaceLayer::builder(&limiter).policy("5000/hour; 80/minute").retries(2).build()?.layer(client);
/// let request = Request::get("https://api.example.com/orders/1").body(Full::<Bytes>::default())?;
/// let response = client.oneshot(request).await.map_err(|error| error.to_string())?;
/// assert_eq!(response.status(), 200);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// - If a wait is longer than the timeout, the call fails with [`RateLimited`], which has the Decision, before anything
///   is sent. The errors of the service stay as they are, in a box: `error.downcast_ref::<RateLimited>()`.
/// - A call is settled, and its held units are given back, when the body of its response has ended or is dropped.
/// - After an error the charge is given back only if no connection was made.
/// - With [`PaceBuilder::retries`] a request is sent again after a 429 or 503 that names a wait, if its method is
///   idempotent or it has an `Idempotency-Key`. The body must be `Clone`.
/// - Put layers that follow redirects or send again in front of this one, so that each of their calls waits for its turn.
/// - The service below is asked if it is ready only when the turn has come, so that waiting calls take no place in it.
pub struct PaceLayer<C = SentOnce> {
    pacing: Arc<Pacing>,
    copies: PhantomData<fn() -> C>,
}

impl PaceLayer {
    /// Paces by one policy: `PaceLayer::new(&limiter, "5000/hour; 80/minute")`.
    ///
    /// # Errors
    /// As [`PaceBuilder::build`].
    pub fn new(limiter: &AsyncLimiter, policy: impl AsPolicy) -> Result<Self> {
        Self::builder(limiter).policy(policy).build()
    }

    /// A layer with options.
    pub fn builder(limiter: &AsyncLimiter) -> PaceBuilder<Self> {
        PaceBuilder::new(limiter)
    }
}

impl PaceBuilder<PaceLayer> {
    /// Sets how often a request is sent again after a 429 or 503 that names a wait. The default is 0. Bodies are cloned for that.
    pub fn retries(self, retries: u32) -> PaceBuilder<PaceLayer<SentAgain>> {
        self.sent_again(retries).of_client()
    }
}

impl<C> PaceBuilder<PaceLayer<C>> {
    /// The layer.
    ///
    /// # Errors
    /// `policy_unknown` and `policy_invalid`. `cost_invalid` for a cost that the policy does not count. `config_invalid` for
    /// a class that it does not have, for a policy that queues calls itself, and if there is neither a policy nor learning.
    pub fn build(self) -> Result<PaceLayer<C>> {
        Ok(PaceLayer { pacing: Arc::new(self.pacing("PaceLayer")?), copies: PhantomData })
    }
}

impl<C> Clone for PaceLayer<C> {
    fn clone(&self) -> Self {
        Self { pacing: Arc::clone(&self.pacing), copies: PhantomData }
    }
}

impl<C> fmt::Debug for PaceLayer<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PaceLayer").finish_non_exhaustive()
    }
}

impl<S, C> Layer<S> for PaceLayer<C> {
    type Service = Paced<S, C>;

    fn layer(&self, inner: S) -> Paced<S, C> {
        Paced { inner, pacing: Arc::clone(&self.pacing), copies: PhantomData }
    }
}

/// Copies the bodies of requests, so that they can be sent again.
pub trait CopyBody<B> {
    /// A copy of the body. `None` if the body cannot be sent again.
    fn copy(body: &B) -> Option<B>;
}

/// Requests are sent once, whatever their bodies are.
#[derive(Debug, Clone, Copy)]
pub enum SentOnce {}

/// Requests with bodies that can be cloned are sent again.
#[derive(Debug, Clone, Copy)]
pub enum SentAgain {}

impl<B> CopyBody<B> for SentOnce {
    fn copy(_: &B) -> Option<B> {
        None
    }
}

impl<B: Clone> CopyBody<B> for SentAgain {
    fn copy(body: &B) -> Option<B> {
        Some(body.clone())
    }
}

/// A service that makes its calls wait for their turns.
pub struct Paced<S, C = SentOnce> {
    inner: S,
    pacing: Arc<Pacing>,
    copies: PhantomData<fn() -> C>,
}

impl<S: Clone, C> Clone for Paced<S, C> {
    fn clone(&self) -> Self {
        Self { inner: self.inner.clone(), pacing: Arc::clone(&self.pacing), copies: PhantomData }
    }
}

impl<S: fmt::Debug, C> fmt::Debug for Paced<S, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Paced").field("inner", &self.inner).finish_non_exhaustive()
    }
}

type PacedFuture<B> = Pin<Box<dyn Future<Output = std::result::Result<Response<PacedBody<B>>, BoxError>> + Send>>;

impl<S, C, R, B> Service<Request<R>> for Paced<S, C>
where
    S: Service<Request<R>, Response = Response<B>> + Clone + Send + 'static,
    S::Future: Send + 'static,
    S::Error: Into<BoxError>,
    C: CopyBody<R> + 'static,
    R: Send + 'static,
    B: Body<Data = Bytes> + Unpin + Send + 'static,
    B::Error: Send,
{
    type Response = Response<PacedBody<B>>;
    type Error = BoxError;
    type Future = PacedFuture<B>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<std::result::Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<R>) -> Self::Future {
        let pacing = Arc::clone(&self.pacing);
        let url = request.uri().to_string();
        let (head, body) = request.into_parts();
        let call =
            ServiceCall::<S, C, R> { inner: self.inner.clone(), url, head, body: Some(body), copies: PhantomData };
        Box::pin(async move { pacing.send(call).await })
    }
}

/// A request to a service of tower.
struct ServiceCall<S, C, R> {
    inner: S,
    url: String,
    head: Parts,
    /// `None` when it was sent for the last time.
    body: Option<R>,
    copies: PhantomData<fn() -> C>,
}

impl<S, C, R, B> ClientExchange for ServiceCall<S, C, R>
where
    S: Service<Request<R>, Response = Response<B>> + Send,
    S::Future: Send,
    S::Error: Into<BoxError>,
    C: CopyBody<R>,
    R: Send,
    B: Body<Data = Bytes> + Unpin + Send,
    B::Error: Send,
{
    type Response = Response<PacedBody<B>>;
    type Error = BoxError;

    fn request(&self) -> PacedRequest<'_> {
        PacedRequest::new(&self.head.method, &self.url, &self.head.headers, &self.head.extensions)
    }

    fn origin(&self) -> Option<String> {
        let uri = &self.head.uri;
        let host = self.head.headers.get(HOST).and_then(|host| Authority::try_from(host.as_bytes()).ok());
        let authority = uri.authority().or(host.as_ref())?;
        let scheme = uri.scheme_str().unwrap_or("http").to_ascii_lowercase();
        let default = if scheme == "https" { 443 } else { 80 };
        let port = authority.port_u16().filter(|port| *port != default).map(|port| format!(":{port}"));
        Some(format!("{scheme}://{}{}", authority.host().to_ascii_lowercase(), port.unwrap_or_default()))
    }

    async fn ready(&mut self) -> std::result::Result<(), BoxError> {
        poll_fn(|cx| self.inner.poll_ready(cx)).await.map_err(Into::into)
    }

    async fn send(&mut self, keep: bool) -> std::result::Result<Self::Response, BoxError> {
        let Some(body) = self.body.take() else { return Err("a request was sent for the last time".into()) };
        self.body = if keep { C::copy(&body) } else { None };
        let head = if self.body.is_some() { self.head.clone() } else { replace(&mut self.head, no_head()) };
        match self.inner.call(Request::from_parts(head, body)).await {
            Ok(response) => Ok(response.map(PacedBody::new)),
            Err(error) => Err(error.into()),
        }
    }

    fn is_kept(&self) -> bool {
        self.body.is_some()
    }

    fn never_arrived(error: &BoxError) -> bool {
        let mut cause: Option<&(dyn StdError + 'static)> = Some(&**error);
        while let Some(error) = cause {
            // A connection that was not made, or a client below that is paced itself.
            let unconnected = |error: &io::Error| error.kind() == io::ErrorKind::ConnectionRefused;
            if error.is::<RateLimited>() || error.downcast_ref().is_some_and(unconnected) {
                return true;
            }
            cause = error.source();
        }
        false
    }

    fn head(response: &Self::Response) -> PacedResponse<'_> {
        PacedResponse::new(response.status(), response.headers())
    }

    async fn read(mut response: Self::Response) -> (Option<Bytes>, Self::Response) {
        let read = response.body_mut().read_ahead().await;
        (read, response)
    }

    fn watch(response: Self::Response, end: CallEnd) -> Self::Response {
        response.map(|body| body.ending(end))
    }

    fn made(&self, refused: RefusedCall) -> Self::Response {
        refused.into_response().map(PacedBody::made)
    }

    fn failed(error: impl StdError + Send + Sync + 'static) -> BoxError {
        Box::new(error)
    }
}

fn no_head() -> Parts {
    Request::new(()).into_parts().0
}
