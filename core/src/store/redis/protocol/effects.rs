//! What a step of the router leaves to be done: by the driver, by the callers, and by the router itself.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use super::call::Obstacle;
use super::discovery::Discovery;
use super::pending_call::{Callers, Completions, PendingCall};
use super::server_directory::Server;
use crate::store::url::Address;

/// Names a connection, or an attempt to open one, for good.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct ConnectionId {
    /// The index of the pipeline it belongs to.
    pub(crate) pipeline: usize,
    pub(crate) number: u64,
}

/// What the driver has to do.
pub(crate) enum Action {
    /// Open a connection and greet the server; then `handle_connected` or `handle_connect_failed`.
    Connect { id: ConnectionId, server: Arc<Server>, deadline: Instant },
    /// Close a connection, or give an attempt to open it up.
    Close(ConnectionId),
    /// Find the servers; then `handle_discovered`.
    Discover(Box<Discovery>),
}

/// A call that a server did not serve.
pub(crate) struct Returned<C: Callers> {
    pub(crate) call: PendingCall<C>,
    pub(crate) obstacle: Obstacle,
    pub(crate) from: Address,
}

/// What a step leaves to be done.
#[derive(Default)]
pub(crate) struct Effects<C: Callers> {
    pub(crate) completions: Completions<C>,
    pub(crate) actions: VecDeque<Action>,
    pub(crate) returned: Vec<Returned<C>>,
    pub(crate) server_was_silent: bool,
    last_number: u64,
}

impl<C: Callers> Effects<C> {
    /// The number of another attempt to connect.
    pub(crate) const fn next_number(&mut self) -> u64 {
        self.last_number += 1;
        self.last_number
    }
}
