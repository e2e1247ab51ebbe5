//! Accepts connections for a proxy, and connects each to a server on this machine.

use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

/// The listener of a proxy. Dropping it ends the listener. Open connections end with their clients.
pub(crate) struct RelayListener {
    port: u16,
    ended: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl RelayListener {
    /// Runs `relay` on a thread for each connection, with its number, the client and the server.
    ///
    /// # Panics
    /// When the machine has no ports left.
    pub(crate) fn start<R>(server: u16, relay: R) -> Self
    where
        R: Fn(u64, &TcpStream, &TcpStream) + Send + Sync + 'static,
    {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let ended = Arc::new(AtomicBool::new(false));
        let (is_over, relay) = (Arc::clone(&ended), Arc::new(relay));
        let accept = move || {
            for (number, client) in (0..).zip(listener.incoming()) {
                let Ok(client) = client else { continue };
                if is_over.load(Ordering::Relaxed) {
                    return;
                }
                let Ok(server) = TcpStream::connect(("127.0.0.1", server)) else { continue };
                // A call is one packet and must leave at once.
                drop(client.set_nodelay(true));
                drop(server.set_nodelay(true));
                let relay = Arc::clone(&relay);
                std::thread::spawn(move || relay(number, &client, &server));
            }
        };
        Self { port, ended, thread: Some(std::thread::spawn(accept)) }
    }

    /// The port on which it listens.
    pub(crate) const fn port(&self) -> u16 {
        self.port
    }
}

impl Drop for RelayListener {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        // The listener looks at the flag when a connection comes.
        drop(TcpStream::connect(("127.0.0.1", self.port)));
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}
