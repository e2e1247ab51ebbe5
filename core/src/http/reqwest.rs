//! Calls of reqwest that wait for their turns: a middleware for `reqwest_middleware::ClientBuilder`.

use std::error::Error as StdError;
use std::fmt;
use std::mem::replace;

use ::reqwest::header::{AUTHORIZATION, COOKIE, HOST, LOCATION, PROXY_AUTHORIZATION, TRANSFER_ENCODING};
use ::reqwest::{Body, Method, Request, Response, ResponseBuilderExt, StatusCode, Url};
use bytes::Bytes;
use http::Extensions;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use reqwest_middleware::{Error, Middleware, Next};

use crate::error::Result;
use crate::http::outgoing::{CallEnd, ClientExchange, MadeFor, PacedBody, Pacing, RefusedCall};
use crate::limiter::{AsPolicy, AsyncLimiter};

pub use crate::http::outgoing::{PaceBuilder, PacedRequest, PacedResponse, RateLimited, SettleReader};

/// Paces the calls of a client of reqwest: each request waits for its turn, in one line with all processes that share
/// the store and the key. The limits that its response announces count for all of them.
///
/// ```
/// use tidegate::Limiter;
/// use tidegate::http::reqwest::Pace;
///
/// let limiter = Limiter::builder().store("memory://").build_async()?;
/// let client = reqwest::Client::builder().redirect(reqwest::redirect::Policy::none()).build()?;
/// let pace = Pace::builder(&limiter).policy("5000/hour; 80/minute").retries(2).redirects(10).build()?;
/// let client = reqwest_middleware::ClientBuilder::new(client).with(pace).build();
/// # drop(client);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// - If a wait is longer than the timeout, the call fails with an error of a middleware before anything is sent. Its
///   `downcast_ref::<RateLimited>()` has the Decision.
/// - A call is settled, and its held units are given back, when the body of its response has ended or is dropped.
/// - After an error the charge is given back only if no connection was made.
/// - A body that is a stream is never sent again.
/// - reqwest follows redirects below every middleware, where they cannot wait. [`PaceBuilder::redirects`] follows them here,
///   each as a separate call to its own origin. Build the client with `redirect(Policy::none())` for that. If reqwest has
///   followed a redirect itself, one more call is charged, and the limits in the response count for the origin that answered.
#[derive(Clone)]
pub struct Pace(std::sync::Arc<PacedClient>);

struct PacedClient {
    pacing: Pacing,
    redirects: u32,
}

impl Pace {
    /// Paces by one policy: `Pace::new(&limiter, "5000/hour; 80/minute")`.
    ///
    /// # Errors
    /// As [`PaceBuilder::build`].
    pub fn new(limiter: &AsyncLimiter, policy: impl AsPolicy) -> Result<Self> {
        Self::builder(limiter).policy(policy).build()
    }

    /// A middleware with options.
    pub fn builder(limiter: &AsyncLimiter) -> PaceBuilder<Self> {
        PaceBuilder::new(limiter)
    }
}

impl PaceBuilder<Pace> {
    /// Sets how often a request is sent again after a 429 or 503 that names a wait. The default is 0.
    pub fn retries(self, retries: u32) -> Self {
        self.sent_again(retries)
    }

    /// Sets how many redirects of a request are followed, each as a separate call. The default 0 leaves them to the client.
    pub fn redirects(mut self, redirects: u32) -> Self {
        self.redirects = redirects;
        self
    }

    /// The middleware.
    ///
    /// # Errors
    /// `policy_unknown` and `policy_invalid`. `cost_invalid` for a cost that the policy does not count. `config_invalid` for
    /// a class that it does not have, for a policy that queues calls itself, and if there is neither a policy nor learning.
    pub fn build(self) -> Result<Pace> {
        let redirects = self.redirects;
        Ok(Pace(std::sync::Arc::new(PacedClient { pacing: self.pacing("Pace")?, redirects })))
    }
}

impl fmt::Debug for Pace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pace").field("redirects", &self.0.redirects).finish_non_exhaustive()
    }
}

#[async_trait::async_trait]
impl Middleware for Pace {
    async fn handle(
        &self,
        mut request: Request,
        extensions: &mut Extensions,
        next: Next<'_>,
    ) -> reqwest_middleware::Result<Response> {
        let PacedClient { pacing, redirects } = &*self.0;
        let (mut left, mut made_for) = (*redirects, None);
        loop {
            let copy = if left > 0 { Some(Redirectable::of(&request)) } else { None };
            let (extensions, next) = (&mut *extensions, next.clone());
            let call = ClientCall { request, is_kept: false, extensions, next, made_for: &mut made_for };
            let response = pacing.send(call).await?;
            match copy.and_then(|copy| copy.next(&response)) {
                Some(redirected) => request = redirected,
                None => return Ok(response),
            }
            left -= 1;
        }
    }
}

/// A request that may be redirected.
struct Redirectable {
    head: Request,
    /// `None` for a body that is a stream.
    whole: Option<Request>,
}

impl Redirectable {
    fn of(request: &Request) -> Self {
        let mut head = Request::new(request.method().clone(), request.url().clone());
        *head.headers_mut() = request.headers().clone();
        *head.timeout_mut() = request.timeout().copied();
        *head.version_mut() = request.version();
        Self { head, whole: request.try_clone() }
    }

    /// The request that a response asks for, by the rules of the Fetch standard. `None` if it asks for none, and for a
    /// body that would have to be sent again and cannot.
    fn next(self, response: &Response) -> Option<Request> {
        let status = response.status();
        let drops_body = match status {
            StatusCode::MOVED_PERMANENTLY | StatusCode::FOUND => self.head.method() == Method::POST,
            StatusCode::SEE_OTHER => !matches!(*self.head.method(), Method::GET | Method::HEAD),
            StatusCode::TEMPORARY_REDIRECT | StatusCode::PERMANENT_REDIRECT => false,
            _ => return None,
        };
        let location = response.headers().get(LOCATION)?.to_str().ok()?;
        let url: Url = self.head.url().join(location).ok().filter(|url| matches!(url.scheme(), "http" | "https"))?;
        let is_elsewhere = url.origin() != self.head.url().origin();
        let mut request = if drops_body { self.head } else { self.whole? };
        if drops_body {
            *request.method_mut() = Method::GET;
            for name in [CONTENT_LENGTH, CONTENT_TYPE, TRANSFER_ENCODING] {
                request.headers_mut().remove(name);
            }
        }
        if is_elsewhere {
            for name in [AUTHORIZATION, COOKIE, HOST, PROXY_AUTHORIZATION] {
                request.headers_mut().remove(name);
            }
        }
        *request.url_mut() = url;
        Some(request)
    }
}

/// A request of reqwest.
struct ClientCall<'a> {
    /// It has only its URL after it was sent for the last time.
    request: Request,
    is_kept: bool,
    extensions: &'a mut Extensions,
    next: Next<'a>,
    made_for: &'a mut Option<MadeFor>,
}

impl ClientExchange for ClientCall<'_> {
    type Response = Response;
    type Error = Error;

    fn request(&self) -> PacedRequest<'_> {
        let request = &self.request;
        PacedRequest::new(request.method(), request.url().as_str(), request.headers(), self.extensions)
    }

    fn origin(&self) -> Option<String> {
        Some(origin_of(self.request.url()))
    }

    fn made_for(&mut self) -> Option<&mut Option<MadeFor>> {
        Some(self.made_for)
    }

    async fn ready(&mut self) -> reqwest_middleware::Result<()> {
        Ok(())
    }

    async fn send(&mut self, keep: bool) -> reqwest_middleware::Result<Response> {
        let copy = self.request.try_clone().filter(|_| keep);
        self.is_kept = copy.is_some();
        let rest = copy.unwrap_or_else(|| Request::new(Method::GET, self.request.url().clone()));
        self.next.clone().run(replace(&mut self.request, rest), self.extensions).await
    }

    fn is_kept(&self) -> bool {
        self.is_kept
    }

    fn never_arrived(error: &Error) -> bool {
        match error {
            Error::Reqwest(error) => error.is_connect(),
            // A middleware behind this one may pace, too.
            Error::Middleware(error) => error.is::<RateLimited>(),
        }
    }

    fn head(response: &Response) -> PacedResponse<'_> {
        PacedResponse::new(response.status(), response.headers())
    }

    fn redirected_to(&self, response: &Response) -> Option<String> {
        let has_followed = without_fragment(response.url()) != without_fragment(self.request.url());
        has_followed.then(|| origin_of(response.url()))
    }

    async fn read(response: Response) -> (Option<Bytes>, Response) {
        let (url, mut response) = taken_apart(response);
        let read = response.body_mut().read_ahead().await;
        (read, put_together(url, response.map(Body::wrap)))
    }

    fn watch(response: Response, end: CallEnd) -> Response {
        let (url, response) = taken_apart(response);
        put_together(url, response.map(|body| Body::wrap(body.ending(end))))
    }

    fn made(&self, refused: RefusedCall) -> Response {
        put_together(self.request.url().clone(), refused.into_response().map(Body::from))
    }

    fn failed(error: impl StdError + Send + Sync + 'static) -> Error {
        Error::middleware(error)
    }
}

fn origin_of(url: &Url) -> String {
    url.origin().ascii_serialization()
}

fn without_fragment(url: &Url) -> &str {
    url.as_str().split('#').next().unwrap_or_default()
}

fn taken_apart(response: Response) -> (Url, http::Response<PacedBody<Body>>) {
    let url = response.url().clone();
    (url, http::Response::from(response).map(PacedBody::new))
}

/// A response with this URL, which only an extension can carry.
fn put_together(url: Url, mut response: http::Response<Body>) -> Response {
    if let Ok(named) = http::Response::builder().url(url).body(()) {
        response.extensions_mut().extend(named.into_parts().0.extensions);
    }
    response.into()
}
