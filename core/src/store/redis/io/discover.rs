//! Drives a discovery: each question goes out on a thread of its own, which ends by the question's deadline.

use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use super::connection::Connector;
use crate::store::redis::protocol::{Discovery, Failure, Probe, ProbeReply, Topology};

/// The most bytes of a reply that describes a topology: a cluster whose 16,384 slots are ranges of their own has less.
const MAX_TOPOLOGY: usize = 16 * 1_024 * 1_024;

/// Runs a discovery to its end, on the calling thread.
pub(crate) fn discover(connector: &Arc<Connector>, mut discovery: Discovery) -> Result<Topology, Failure> {
    let (sender, replies) = channel();
    loop {
        while let Some(probe) = discovery.poll_probe() {
            let (connector, sender) = (Arc::clone(connector), sender.clone());
            let (number, server) = (probe.number, probe.server.clone());
            // The first reply may have been enough: then the receiver is gone.
            let run = move || drop(sender.send((number, send(&connector, probe))));
            let thread = std::thread::Builder::new().name("tidegate-discovery".to_owned()).spawn(run);
            if let Err(error) = thread {
                discovery.handle_reply(number, Err(server.failure(&error, false)), Instant::now());
            }
        }
        if let Some(result) = discovery.poll_result() {
            return result;
        }
        // A moment later than the deadline: the threads end by then themselves, and say why.
        let left = discovery.poll_timeout().saturating_duration_since(Instant::now()) + Duration::from_millis(1);
        match replies.recv_timeout(left) {
            Ok((number, reply)) => discovery.handle_reply(number, reply, Instant::now()),
            Err(_) => discovery.handle_timeout(Instant::now()),
        }
    }
}

fn send(connector: &Connector, probe: Probe) -> ProbeReply {
    let mut connection = connector.open_for_commands(probe.server, probe.deadline)?;
    connection.run(&probe.commands, probe.replies, MAX_TOPOLOGY, probe.deadline)
}
