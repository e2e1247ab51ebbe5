//! The clients that the tests of outgoing calls run with.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use reqwest_middleware::{ClientBuilder, ClientWithMiddleware};
use tidegate::http::reqwest::Pace;
use tidegate::http::tower::{PaceBuilder, PaceLayer, Paced, PacedBody, RateLimited, SentAgain, SettleReader};
use tidegate::{AsyncLimiter, Cost, Decision, Error, Units};
use tower::{Layer, ServiceExt};

/// The reason why a call has no response.
#[derive(Debug)]
pub(crate) enum Failed {
    Limited(Decision),
    Limiter(Error),
    Client,
}

impl Failed {
    pub(crate) fn denial(self) -> Decision {
        match self {
            Self::Limited(decision) => decision,
            other => panic!("no denial: {other:?}"),
        }
    }
}

/// A response with a body that was not read yet.
pub(crate) struct Answered<B> {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: B,
}

pub(crate) type Answer<C> = Result<Answered<<C as PacedClient>::Body>, Failed>;

/// The options of a client.
#[derive(Clone)]
pub(crate) struct Setup {
    pub(crate) policy: Option<&'static str>,
    pub(crate) key: Option<&'static str>,
    pub(crate) timeout: Duration,
    pub(crate) retries: u32,
    pub(crate) learn: bool,
    pub(crate) respond: bool,
    pub(crate) tokens: Option<u64>,
    /// Reads the tokens of a body.
    pub(crate) settles: bool,
    /// Counts the waits.
    pub(crate) waits: Arc<AtomicUsize>,
}

impl Setup {
    pub(crate) fn of(policy: &'static str) -> Self {
        Self { policy: Some(policy), ..Self::learned() }
    }

    /// No limits except those that responses announce.
    pub(crate) fn learned() -> Self {
        Self {
            policy: None,
            key: None,
            timeout: Duration::ZERO,
            retries: 0,
            learn: true,
            respond: false,
            tokens: None,
            settles: false,
            waits: Arc::default(),
        }
    }

    fn apply<T>(self, mut builder: PaceBuilder<T>) -> PaceBuilder<T> {
        if let Some(policy) = self.policy {
            builder = builder.policy(policy);
        }
        if let Some(key) = self.key {
            builder = builder.key(key);
        }
        if let Some(tokens) = self.tokens {
            builder = builder.cost_by(move |_| Units::from([("tokens", tokens)]));
        }
        if self.settles {
            builder = builder.settle_by_body(|_| Some(TokenCounter(0)));
        }
        let waits = self.waits;
        builder.timeout(self.timeout).learn(self.learn).respond(self.respond).on_wait(move |_, _| {
            waits.fetch_add(1, Ordering::Relaxed);
        })
    }
}

/// Each byte of a body is a token.
struct TokenCounter(u64);

impl SettleReader for TokenCounter {
    fn feed(&mut self, chunk: &[u8]) {
        self.0 += chunk.len() as u64;
    }

    fn end(self: Box<Self>) -> Option<Cost> {
        Some(Units::from([("tokens", self.0)]).into())
    }
}

/// A client with paced calls.
pub(crate) trait PacedClient: Clone + Send + Sync + Sized + 'static {
    type Body: Send;

    fn paced(limiter: &AsyncLimiter, setup: Setup) -> tidegate::Result<Self>;

    fn send(&self, request: Request<Bytes>) -> impl Future<Output = Answer<Self>> + Send;

    /// One more chunk of a body, or `None` at its end.
    fn chunk(body: &mut Self::Body) -> impl Future<Output = Option<Bytes>> + Send;

    fn get(&self, url: &str) -> impl Future<Output = Answer<Self>> + Send {
        self.send(Request::get(url).body(Bytes::new()).expect("a request"))
    }

    /// Status and content.
    fn read(&self, url: &str) -> impl Future<Output = Result<(u16, Bytes), Failed>> + Send {
        async move {
            let mut answered = self.get(url).await?;
            Ok((answered.status, content::<Self>(&mut answered.body).await))
        }
    }
}

/// The rest of a body.
pub(crate) async fn content<C: PacedClient>(body: &mut C::Body) -> Bytes {
    let mut content = Vec::new();
    while let Some(chunk) = C::chunk(body).await {
        content.extend_from_slice(&chunk);
    }
    content.into()
}

/// The layer over a client of hyper.
pub(crate) type TowerClient = Paced<Client<HttpConnector, Full<Bytes>>, SentAgain>;

impl PacedClient for TowerClient {
    type Body = PacedBody<hyper::body::Incoming>;

    fn paced(limiter: &AsyncLimiter, setup: Setup) -> tidegate::Result<Self> {
        let client = Client::builder(TokioExecutor::new()).build_http();
        let retries = setup.retries;
        Ok(setup.apply(PaceLayer::builder(limiter)).retries(retries).build()?.layer(client))
    }

    async fn send(&self, request: Request<Bytes>) -> Answer<Self> {
        match self.clone().oneshot(request.map(Full::new)).await {
            Ok(response) => Ok(answered(response)),
            Err(error) => Err(match error.downcast::<RateLimited>() {
                Ok(limited) => Failed::Limited(limited.decision().clone()),
                Err(error) => match error.downcast::<Error>() {
                    Ok(error) => Failed::Limiter(*error),
                    Err(_) => Failed::Client,
                },
            }),
        }
    }

    async fn chunk(body: &mut Self::Body) -> Option<Bytes> {
        body.frame().await.map(|frame| frame.expect("a frame").into_data().expect("no trailers"))
    }
}

fn answered<B>(response: Response<B>) -> Answered<B> {
    let (head, body) = response.into_parts();
    Answered { status: head.status.as_u16(), headers: head.headers, body }
}

/// The middleware of reqwest.
pub(crate) type ReqwestClient = ClientWithMiddleware;

impl PacedClient for ReqwestClient {
    type Body = reqwest::Response;

    fn paced(limiter: &AsyncLimiter, setup: Setup) -> tidegate::Result<Self> {
        let retries = setup.retries;
        let pace = setup.apply(Pace::builder(limiter)).retries(retries).redirects(5).build()?;
        let client = reqwest::Client::builder().redirect(reqwest::redirect::Policy::none()).no_proxy();
        Ok(ClientBuilder::new(client.build().expect("a client")).with(pace).build())
    }

    async fn send(&self, request: Request<Bytes>) -> Answer<Self> {
        let request = reqwest::Request::try_from(request).expect("a request");
        match self.execute(request).await {
            Ok(response) => {
                Ok(Answered { status: response.status().as_u16(), headers: response.headers().clone(), body: response })
            }
            Err(reqwest_middleware::Error::Reqwest(_)) => Err(Failed::Client),
            Err(reqwest_middleware::Error::Middleware(error)) => Err(match error.downcast::<RateLimited>() {
                Ok(limited) => Failed::Limited(limited.decision().clone()),
                Err(error) => Failed::Limiter(error.downcast().expect("an error of the limiter")),
            }),
        }
    }

    async fn chunk(body: &mut Self::Body) -> Option<Bytes> {
        body.chunk().await.expect("a chunk")
    }
}
