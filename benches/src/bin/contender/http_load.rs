//! A load for a web server: each connection sends the next request as soon as it has a response.
//!
//! Each connection has a thread that blocks in its socket. It costs less per request than an event loop in Python or
//! JavaScript, so the server limits the rate.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use crate::arguments::Arguments;
use crate::{Measured, process_cpu};

const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: bench\r\n\r\n";

/// The length of the response that the bytes begin with, once its head is complete.
fn length(received: &[u8]) -> Option<usize> {
    let head = received.windows(4).position(|bytes| bytes == b"\r\n\r\n")? + 4;
    assert_eq!(&received[9..12], b"200", "a response is no 200: {}", String::from_utf8_lossy(received));
    let text = std::str::from_utf8(&received[..head]).expect("a head of ASCII");
    let field = text.lines().find_map(|line| {
        let (name, value) = line.split_once(": ")?;
        name.eq_ignore_ascii_case("content-length").then_some(value)
    });
    Some(head + field.expect("a length").parse::<usize>().expect("a number"))
}

/// The number of responses in that time.
fn responses(port: u16, span: Duration) -> u64 {
    let mut socket = TcpStream::connect(("127.0.0.1", port)).expect("a connection");
    socket.set_nodelay(true).expect("an open socket");
    socket.set_read_timeout(Some(Duration::from_secs(20))).expect("an open socket");
    let (start, mut done, mut received) = (Instant::now(), 0, Vec::with_capacity(4_096));
    let mut part = [0; 4_096];
    while start.elapsed() < span {
        socket.write_all(REQUEST).expect("the server reads");
        while length(&received).is_none_or(|length| received.len() < length) {
            let count = socket.read(&mut part).expect("a response");
            assert!(count > 0, "the server has closed the connection");
            received.extend_from_slice(&part[..count]);
        }
        received.clear();
        done += 1;
    }
    done
}

pub(crate) fn run(arguments: &Arguments) -> Measured {
    let (port, connections) = (arguments.number("port"), arguments.number("connections"));
    let (span, began, used) = (arguments.seconds("seconds"), Instant::now(), process_cpu());
    let done: u64 = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..connections).map(|_: u32| scope.spawn(|| responses(port, span))).collect();
        workers.into_iter().map(|worker| worker.join().expect("a connection ends")).sum()
    });
    let took = began.elapsed().as_secs_f64();
    // The share of its core that the load generator takes. Near 100, it would limit the rate itself.
    let load = (process_cpu() - used) * 100.0 / took;
    Measured { value: done as f64 / took, decisions: done, beside: vec![("load generator, % of a core", load)] }
}
