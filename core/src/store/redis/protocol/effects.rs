//! The work that a step of the router leaves: for the driver, for the callers, and for the router itself.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use super::call::Obstacle;
use super::discovery::Discovery;
use super::pending_call::{Callers, Completions, PendingCall};
use super::server_directory::Server;
use crate::store::url::Address;

/// Names a connection, or an attempt to open one. No other one gets the same name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct ConnectionId {
    /// The index of the pipeline it belongs to.
    pub(crate) pipeline: usize,
    pub(crate) number: u64,
}

/// A task of the driver.
pub(crate) enum Action {
    /// Open a connection and greet the server. Then call `handle_connected` or `handle_connect_failed`.
    Connect { id: ConnectionId, server: Arc<Server>, deadline: Instant },
    /// Close a connection, or give up an attempt to open it.
    Close(ConnectionId),
    /// Find the servers. Then call `handle_discovered`.
    Discover(Box<Discovery>),
}

/// A call that a server did not serve.
pub(crate) struct Returned<C: Callers> {
    pub(crate) call: PendingCall<C>,
    pub(crate) obstacle: Obstacle,
    pub(crate) from: Address,
}

/// The work that a step leaves.
#[derive(Default)]
pub(crate) struct Effects<C: Callers> {
    pub(crate) completions: Completions<C>,
    pub(crate) actions: VecDeque<Action>,
    pub(crate) returned: Vec<Returned<C>>,
    pub(crate) server_was_silent: bool,
    last_number: u64,
}

impl<C: Callers> Effects<C> {
    /// The number of a new attempt to connect.
    pub(crate) const fn next_number(&mut self) -> u64 {
        self.last_number += 1;
        self.last_number
    }
}
