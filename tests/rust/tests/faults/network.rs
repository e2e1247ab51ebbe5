//! Faults of the network.

use std::time::Duration;

use tidegate_tests::proxy::{Condition, Proxy};
use tidegate_tests::servers::{Kind, Servers};
use tidegate_tests::wait::wait_until;

use super::{Fault, TIMEOUT, fault, survive};

/// A fault of the network between the limiters and a server.
fn through_a_proxy(name: &str, seconds: f64, condition: Condition) {
    let servers = Servers::start(Kind::Single);
    let proxy = Proxy::to(servers.port(0));
    let fault = fault(name, &servers, seconds, || proxy.set(condition), || proxy.set(Condition::Healthy));
    survive(Fault { url: format!("redis://127.0.0.1:{}/0", proxy.port()), ..fault });
    wait_until(Duration::from_secs(10), &format!("{name}: no connection is left"), || proxy.open() == 0);
}

#[test]
fn nothing_arrives() {
    through_a_proxy("silent", 1.0, Condition::Silent);
}

#[test]
fn everything_arrives_too_late() {
    through_a_proxy("late", 1.0, Condition::Slow(TIMEOUT + Duration::from_millis(150)));
}

#[test]
fn answers_are_dropped() {
    through_a_proxy("dropped", 1.0, Condition::DropReplies);
}

#[test]
fn answers_are_cut() {
    through_a_proxy("cut", 0.7, Condition::CutReplies);
}

#[test]
fn answers_stall_in_the_middle() {
    through_a_proxy("stalled", 1.0, Condition::StallReplies);
}

#[test]
fn answers_trickle() {
    through_a_proxy("trickling", 1.0, Condition::TrickleReplies(Duration::from_millis(50)));
}

#[test]
fn connections_are_refused() {
    through_a_proxy("refused", 0.7, Condition::Refuse);
}
