//! Simulated connections: bytes travel in order, late, in pieces, or not at all.

use std::collections::VecDeque;

use super::corruption::Proxy;
use super::servers::Session;
use crate::store::redis::protocol::ConnectionId;

/// A connection between the host and a server.
pub(super) struct Connection {
    pub(super) id: ConnectionId,
    pub(super) server: usize,
    pub(super) session: Session,
    pub(super) proxy: Proxy,
    /// Bytes on their way, in order.
    pub(super) to_server: VecDeque<Vec<u8>>,
    pub(super) to_host: VecDeque<Vec<u8>>,
    /// The bytes that the server has received and not run.
    pub(super) at_server: Vec<u8>,
    /// The bytes that the host has received and not read.
    pub(super) at_host: Vec<u8>,
    /// When the last bytes to the server, and to the host, arrive: later ones do not overtake them.
    pub(super) to_server_until: u64,
    pub(super) to_host_until: u64,
    /// Packets are dropped, and neither side knows.
    pub(super) half_open: bool,
    /// The server closed it. The host finds out once it has read everything.
    pub(super) closed_by_server: bool,
    /// The host closed it.
    pub(super) closed_by_host: bool,
}

impl Connection {
    pub(super) fn new(id: ConnectionId, server: usize) -> Self {
        Self {
            id,
            server,
            session: Session::default(),
            proxy: Proxy::default(),
            to_server: VecDeque::new(),
            to_host: VecDeque::new(),
            at_server: Vec::new(),
            at_host: Vec::new(),
            to_server_until: 0,
            to_host_until: 0,
            half_open: false,
            closed_by_server: false,
            closed_by_host: false,
        }
    }

    /// When bytes that are sent now arrive.
    pub(super) fn arrival(until: &mut u64, now: u64, delay: u64) -> u64 {
        *until = (*until).max(now + delay);
        *until
    }
}
