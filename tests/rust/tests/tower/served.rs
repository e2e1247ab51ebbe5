//! A real axum server: the address of the peer, and no request past the limit on a shared store.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use tidegate::Limiter;
use tidegate::http::tower::RateLimitLayer;
use tidegate_tests::servers::{Kind, Servers};

use super::router;

fn get(address: SocketAddr) -> String {
    let mut stream = TcpStream::connect(address).expect("a connection");
    stream.write_all(b"GET / HTTP/1.1\r\nhost: h\r\nconnection: close\r\n\r\n").expect("it is sent");
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("an answer");
    text
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_services_share_one_limit() {
    let servers = Servers::start(Kind::Single);
    let mut addresses = Vec::new();
    let mut kept = Vec::new();
    for _ in 0..2 {
        let limiter = Limiter::builder().store(servers.url()).timeout(Duration::from_secs(5)).build_async();
        let limiter = limiter.expect("a limiter");
        let app = router(RateLimitLayer::new(&limiter, "fixed-window 20/hour").expect("a layer"));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        addresses.push(listener.local_addr().expect("an address"));
        let server = axum::serve(listener, app.into_make_service_with_connect_info::<SocketAddr>());
        tokio::spawn(async move { server.await });
        kept.push(limiter);
    }
    let clients: Vec<_> =
        (0..40).map(|n| (n, addresses[n % 2])).map(|(_, to)| tokio::task::spawn_blocking(move || get(to))).collect();
    let mut answers = Vec::new();
    for client in clients {
        answers.push(client.await.expect("no panic"));
    }
    let count = |line: &str| answers.iter().filter(|answer| answer.starts_with(line)).count();
    assert_eq!((count("HTTP/1.1 200"), count("HTTP/1.1 429")), (20, 20));
    assert_eq!(kept[0].peek("fixed-window 20/hour", "127.0.0.1", 1).await.expect("a peek").remaining(), 0);
}
