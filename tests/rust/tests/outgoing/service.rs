//! A server that answers as a test wants it, and remembers what arrived.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::Mutex;

use axum::body::Body;
use axum::extract::State;
use bytes::Bytes;
use http::{HeaderMap, Method, Response};
use http_body_util::BodyExt;

/// A request that arrived.
#[derive(Debug, Clone)]
pub(crate) struct Arrived {
    pub(crate) method: Method,
    pub(crate) path: String,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

type Answer = dyn Fn(usize, &Arrived) -> Response<Body> + Send + Sync;

struct Book {
    arrived: Mutex<Vec<Arrived>>,
    answer: Box<Answer>,
}

/// A real HTTP server.
pub(crate) struct Service {
    pub(crate) address: SocketAddr,
    book: Arc<Book>,
}

impl Service {
    /// A server with a function that makes each answer from the number and the content of the request.
    pub(crate) async fn start(answer: impl Fn(usize, &Arrived) -> Response<Body> + Send + Sync + 'static) -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let book = Arc::new(Book { arrived: Mutex::default(), answer: Box::new(answer) });
        let app = axum::Router::new().fallback(serve).with_state(Arc::clone(&book));
        tokio::spawn(async move { axum::serve(listener, app).await });
        Self { address, book }
    }

    /// One that serves every request.
    pub(crate) async fn serving() -> Self {
        Self::start(|_, _| text("hello")).await
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    pub(crate) fn origin(&self) -> String {
        self.url("")
    }

    /// The key of its calls.
    pub(crate) fn key(&self) -> String {
        format!("out:{}", self.origin())
    }

    pub(crate) fn arrived(&self) -> Vec<Arrived> {
        self.book.arrived.lock().expect("no panic").clone()
    }
}

async fn serve(State(book): State<Arc<Book>>, request: http::Request<Body>) -> Response<Body> {
    let (head, body) = request.into_parts();
    let body = body.collect().await.expect("a body").to_bytes();
    let arrived = Arrived { method: head.method, path: head.uri.path().to_owned(), headers: head.headers, body };
    let number = {
        let mut all = book.arrived.lock().expect("no panic");
        all.push(arrived.clone());
        all.len()
    };
    (book.answer)(number, &arrived)
}

pub(crate) fn text(content: &'static str) -> Response<Body> {
    Response::new(Body::from(content))
}

/// A response without content, with these fields.
pub(crate) fn answer<const N: usize>(status: u16, fields: [(&'static str, &str); N]) -> Response<Body> {
    let mut response = Response::builder().status(status);
    for (name, value) in fields {
        response = response.header(name, value);
    }
    response.body(Body::empty()).expect("a response")
}
