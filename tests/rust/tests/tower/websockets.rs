//! Real websockets over real connections: their units are held until they end, and no longer.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use axum::extract::ws::{WebSocket, WebSocketUpgrade};
use axum::response::Response;
use axum::routing::get;
use axum::{Extension, Router};
use tidegate::http::tower::{HeldUnits, RateLimitLayer, RequestKey};
use tidegate::{AsyncLimiter, Limiter, ManualClock};
use tidegate_tests::wait::wait_until;

const PATIENCE: Duration = Duration::from_secs(10);

/// Answers each message with itself, and panics at the text `p`.
async fn echo(mut socket: WebSocket, _held: Option<HeldUnits>) {
    while let Some(Ok(message)) = socket.recv().await {
        assert!(message.to_text().is_ok_and(|text| text != "p"));
        if socket.send(message).await.is_err() {
            return;
        }
    }
}

async fn keeping(upgrade: WebSocketUpgrade, Extension(held): Extension<HeldUnits>) -> Response {
    upgrade.on_upgrade(|socket| echo(socket, Some(held)))
}

async fn careless(upgrade: WebSocketUpgrade) -> Response {
    upgrade.on_upgrade(|socket| echo(socket, None))
}

async fn serve(limiter: &AsyncLimiter) -> SocketAddr {
    let layer = RateLimitLayer::builder(limiter).policy("sockets").key(RequestKey::fixed("k"));
    let app = Router::new().route("/keeping", get(keeping)).route("/careless", get(careless));
    let app = app.layer(layer.build().expect("a layer"));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async move { axum::serve(listener, app).await });
    address
}

/// Asks for a websocket. Returns the connection and the status of the answer.
fn ask(address: SocketAddr, path: &str) -> (TcpStream, String) {
    let mut stream = TcpStream::connect(address).expect("a connection");
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    let request = format!(
        "GET {path} HTTP/1.1\r\nhost: h\r\nconnection: upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\n\
         sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).expect("it is sent");
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte).expect("an answer");
        head.push(byte[0]);
    }
    let head = String::from_utf8(head).expect("text");
    let status = head.split(' ').nth(1).expect("a status").to_owned();
    (stream, status)
}

fn opened(address: SocketAddr) -> TcpStream {
    let (stream, status) = ask(address, "/keeping");
    assert_eq!(status, "101");
    stream
}

/// A frame of a client: it is masked, here with zeros.
fn send(stream: &mut TcpStream, kind: u8, text: &[u8]) {
    let length = u8::try_from(text.len()).expect("a short text");
    let frame = [&[0x80 | kind, 0x80 | length, 0, 0, 0, 0], text].concat();
    stream.write_all(&frame).expect("it is sent");
}

fn sockets_of(clock: &Arc<ManualClock>) -> AsyncLimiter {
    let builder = Limiter::builder().clock(Arc::clone(clock)).policy("sockets", "concurrency 1 ttl 30s");
    builder.expect("a policy").build_async().expect("a limiter")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_websocket_holds_its_unit_until_its_connection_ends() {
    const TEXT: u8 = 1;
    const CLOSE: u8 = 8;
    // Only this test moves the clock, so no ttl gives a unit back when a connection ends.
    let clock = super::clock();
    let limiter = sockets_of(&clock);
    let address = serve(&limiter).await;
    let clients = tokio::task::spawn_blocking(move || {
        let limiter = limiter.to_blocking();
        let left = || limiter.peek("sockets", "k", 1).expect("a peek").remaining();
        let ends: [fn(TcpStream); 3] = [
            drop,
            |mut stream| {
                send(&mut stream, CLOSE, &[]);
                stream.read_to_end(&mut Vec::new()).expect("the server closes it");
            },
            // The handler panics.
            |mut stream| send(&mut stream, TEXT, b"p"),
        ];
        for end in ends {
            let mut stream = opened(address);
            for _ in 0..12 {
                clock.advance(Duration::from_secs(10));
                send(&mut stream, TEXT, b"x");
                let mut answer = [0; 3];
                stream.read_exact(&mut answer).expect("an answer");
                assert_eq!(answer, [0x80 | TEXT, 1, b'x']);
                assert_eq!(left(), 0, "the connection lives");
            }
            assert_eq!(ask(address, "/keeping").1, "429");
            end(stream);
            wait_until(PATIENCE, "its unit is back", || left() == 1);
        }
        // Without the held units, its websocket would be free of the limit.
        assert_eq!(ask(address, "/careless").1, "500");
        wait_until(PATIENCE, "its unit is back", || left() == 1);
    });
    clients.await.expect("no panic");
}
