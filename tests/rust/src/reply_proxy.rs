//! A proxy that changes a server's replies: one text for another of the same length, so that a reply stays well-formed.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};

use crate::relay_listener::RelayListener;

/// Passes replies on with one text changed.
pub struct ReplyProxy {
    listener: RelayListener,
}

impl ReplyProxy {
    /// A proxy for a server on this machine. A text that is cut by the end of a packet stays as it is.
    ///
    /// # Panics
    /// When the texts differ in length, or the machine has no ports left.
    #[must_use]
    pub fn to(server: u16, from: String, to: String) -> Self {
        assert_eq!(from.len(), to.len(), "{from:?} and {to:?}");
        Self { listener: RelayListener::start(server, move |_, client, server| relay(client, server, &from, &to)) }
    }

    /// The port on which it listens.
    #[must_use]
    pub const fn port(&self) -> u16 {
        self.listener.port()
    }
}

fn relay(client: &TcpStream, server: &TcpStream, from: &str, to: &str) {
    std::thread::scope(|scope| {
        scope.spawn(|| {
            drop(std::io::copy(&mut &*client, &mut &*server));
            drop(server.shutdown(Shutdown::Both));
        });
        let mut buffer = vec![0; 65_536];
        while let Ok(length @ 1..) = (&*server).read(&mut buffer) {
            let packet = &mut buffer[..length];
            let found: Vec<usize> = packet
                .windows(from.len())
                .enumerate()
                .filter(|(_, window)| *window == from.as_bytes())
                .map(|(at, _)| at)
                .collect();
            found.iter().for_each(|at| packet[*at..at + to.len()].copy_from_slice(to.as_bytes()));
            if (&*client).write_all(packet).is_err() {
                break;
            }
        }
        drop(client.shutdown(Shutdown::Both));
    });
}
