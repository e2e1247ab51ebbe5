//! With the option `follow`, a sentinel cannot have the password sent to a host that the option does not list.

use std::io::Read;
use std::net::TcpListener;
use std::sync::mpsc;
use std::time::Duration;

use tidegate::{Limiter, OnStoreError};
use tidegate_tests::reply_proxy::ReplyProxy;
use tidegate_tests::servers::{Kind, Servers};

#[test]
fn a_host_that_follow_does_not_list_gets_no_password() {
    let servers = Servers::start(Kind::Sentinel);
    let (_, rest) = servers.url().split_once("127.0.0.1:").expect("a sentinel");
    let (sentinel, rest) = rest.split_once([',', '/']).expect("more");
    let master = rest.split('/').rev().nth(1).unwrap_or("mymaster");
    let lying = ReplyProxy::to(sentinel.parse().expect("a port"), "127.0.0.1".to_owned(), "127.0.0.2".to_owned());
    let stranger = TcpListener::bind(("127.0.0.2", servers.port(0))).expect("a port");
    let (heard, hears) = mpsc::channel();
    std::thread::spawn(move || {
        for connection in stranger.incoming() {
            let mut bytes = [0; 512];
            let length = connection.and_then(|mut connection| connection.read(&mut bytes)).unwrap_or(0);
            if heard.send(String::from_utf8_lossy(&bytes[..length]).into_owned()).is_err() {
                break;
            }
        }
    });
    let ask = |follow: &str| {
        let url = format!("redis+sentinel://app:SECRET@127.0.0.1:{}/{master}/0{follow}", lying.port());
        let limiter = Limiter::builder().store(url).timeout(Duration::from_secs(2)).on_store_error(OnStoreError::Raise);
        limiter.build().expect("a limiter").check("5/hour", "k").expect_err("no server")
    };
    for follow in ["?follow=127.0.0.1", "?follow=127.0.0.0/31,localhost,*.internal"] {
        let error = ask(follow);
        assert!(error.message().contains("127.0.0.2") && error.message().contains("follow"), "{error}");
        assert!(hears.try_recv().is_err(), "{follow}: it was called");
    }
    // Without the option, or with one that lists the host, the limiter calls the host and sends the password.
    for follow in ["", "?follow=127.0.0.0/8"] {
        ask(follow);
        let said = hears.recv_timeout(Duration::from_secs(20)).expect("it is called");
        assert!(said.contains("SECRET"), "{follow}: {said}");
    }
}
