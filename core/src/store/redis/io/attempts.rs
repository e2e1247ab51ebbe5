//! The engine's attempts to connect to servers and to find them. Each has a thread, which ends by its deadline.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use tokio::task::{JoinError, JoinHandle, spawn_blocking};

use super::connection::{BlockingConnection, Connector};
use crate::error::{Error, ErrorKind};
use crate::store::redis::protocol::{ConnectionId, Discovery, Failure, Probe, ProbeReply, Server, Topology};

/// The most bytes of a reply with a topology. A cluster with a separate range for each of its 16,384 slots sends less.
const MAX_TOPOLOGY: usize = 16 * 1_024 * 1_024;

/// The attempts that are under way.
#[derive(Default)]
pub(super) struct Attempts {
    connecting: Vec<(ConnectionId, JoinHandle<Result<BlockingConnection, Failure>>)>,
    discovering: Option<JoinHandle<Result<Topology, Failure>>>,
}

impl Attempts {
    pub(super) fn connect(
        &mut self,
        connector: Arc<Connector>,
        id: ConnectionId,
        server: Arc<Server>,
        deadline: Instant,
    ) {
        self.connecting.push((id, spawn_blocking(move || connector.open(&server, deadline))));
    }

    /// The connection is no longer wanted.
    pub(super) fn give_up(&mut self, id: ConnectionId) {
        self.connecting.retain(|(other, _)| *other != id);
    }

    pub(super) fn discover(&mut self, connector: Arc<Connector>, discovery: Discovery) {
        self.discovering = Some(spawn_blocking(move || discover(&connector, discovery)));
    }

    pub(super) fn poll_discovered(&mut self, cx: &mut Context<'_>) -> Option<Result<Topology, Failure>> {
        let Poll::Ready(found) = Pin::new(self.discovering.as_mut()?).poll(cx) else { return None };
        self.discovering = None;
        Some(found.unwrap_or_else(given_up))
    }

    /// One attempt to connect that has ended.
    pub(super) fn poll_connected(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Option<(ConnectionId, Result<BlockingConnection, Failure>)> {
        self.connecting
            .iter_mut()
            .enumerate()
            .find_map(|(index, (_, attempt))| match Pin::new(attempt).poll(cx) {
                Poll::Ready(opened) => Some((index, opened.unwrap_or_else(given_up))),
                Poll::Pending => None,
            })
            .map(|(index, opened)| (self.connecting.remove(index).0, opened))
    }
}

/// A task of the engine was given up, which only happens when its thread ends.
fn given_up<T>(_: JoinError) -> Result<T, Failure> {
    let ended = "the thread for Redis ended before the server answered";
    Err(Failure::of_server(Error::new(ErrorKind::StoreUnavailable, ended)))
}

/// Runs a discovery to its end, on the calling thread.
pub(super) fn discover(connector: &Arc<Connector>, mut discovery: Discovery) -> Result<Topology, Failure> {
    let (sender, replies) = channel();
    loop {
        while let Some(probe) = discovery.poll_probe() {
            let connector = Arc::clone(connector);
            let sender = sender.clone();
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
        // A moment later than the deadline, because the threads end by then themselves and report the reason.
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
