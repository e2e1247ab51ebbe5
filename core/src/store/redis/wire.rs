//! One connection, and calls on it that end in time.

use std::io::{self, Read, Write};
use std::sync::Arc;
use std::time::{Duration, Instant};

use redis::Value;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection};

use super::failure::{self, Failure};
use super::hello::{Expected, Hello};
use super::resp::Inbound;
use super::socket::Socket;
use crate::store::url::{Address, Login};

/// A connection used less than this ago is not looked at before it is used again.
const FRESH: Duration = Duration::from_micros(250);

/// One server and how to greet it.
pub(super) struct Server {
    pub(super) address: Address,
    pub(super) login: Arc<Login>,
    pub(super) tls: Option<Arc<ClientConfig>>,
    pub(super) expected: Expected,
    /// Its name in messages, without secrets.
    pub(super) shown: String,
    /// What a call may take, for messages.
    pub(super) timeout: Duration,
}

impl Server {
    pub(super) fn failure(&self, error: &io::Error, sent: bool) -> Failure {
        Failure::of_io(error, sent, &self.shown, self.timeout)
    }
}

/// A connection that has been greeted.
pub(super) struct Wire {
    pub(super) socket: Socket,
    pub(super) tls: Option<Box<ClientConnection>>,
    pub(super) inbound: Inbound,
    used: Instant,
    /// See `Socket::read_by`.
    patience: Duration,
}

/// Why an exchange ended early, and whether all of it had been sent by then.
pub(super) struct Broken {
    pub(super) error: io::Error,
    pub(super) sent: bool,
}

impl Wire {
    /// Connects, encrypts and greets.
    pub(super) fn open(server: &Server, deadline: Instant) -> Result<Self, Failure> {
        let mut wire = Self::connect(server, deadline).map_err(|error| server.failure(&error, false))?;
        let hello = Hello::new(&server.login, server.expected);
        let replies = wire.exchange(&hello.packed, hello.replies(), deadline);
        let replies = replies.map_err(|broken| server.failure(&broken.error, false))?;
        hello.check(&replies, &server.login, server.expected, &server.shown)?;
        Ok(wire)
    }

    fn connect(server: &Server, deadline: Instant) -> io::Result<Self> {
        let socket = Socket::open(&server.address, deadline)?;
        let tls = match (&server.tls, &server.address) {
            (Some(config), Address::Tcp(host, _)) => {
                let name = ServerName::try_from(host.to_string()).map_err(io::Error::other)?;
                let tls = ClientConnection::new(Arc::clone(config), name).map_err(io::Error::other)?;
                Some(Box::new(tls))
            }
            _ => None,
        };
        let mut wire = Self { socket, tls, inbound: Inbound::new(), used: Instant::now(), patience: Duration::ZERO };
        wire.shake_hands(deadline)?;
        Ok(wire)
    }

    fn shake_hands(&mut self, deadline: Instant) -> io::Result<()> {
        let Some(tls) = &mut self.tls else { return Ok(()) };
        while tls.is_handshaking() {
            flush(tls, &self.socket, deadline)?;
            if tls.is_handshaking() {
                receive(tls, &self.socket, deadline)?;
            }
        }
        flush(tls, &self.socket, deadline)
    }

    /// Whether it can still be used, as far as can be told without asking. What nobody asked for is a bad sign too.
    pub(super) fn is_alive(&mut self, now: Instant) -> bool {
        if now.saturating_duration_since(self.used) < FRESH {
            return true;
        }
        if !self.inbound.is_empty() {
            return false;
        }
        let Some(tls) = &mut self.tls else { return self.socket.is_quiet() };
        loop {
            match tls.read_tls(&mut &self.socket) {
                Ok(0) => return false,
                Ok(_) => {
                    let Ok(state) = tls.process_new_packets() else { return false };
                    if state.plaintext_bytes_to_read() > 0 || state.peer_has_closed() {
                        return false;
                    }
                }
                Err(error) => return error.kind() == io::ErrorKind::WouldBlock,
            }
        }
    }

    /// Sends commands and waits for their replies.
    pub(super) fn exchange(&mut self, packed: &[u8], replies: usize, deadline: Instant) -> Result<Vec<Value>, Broken> {
        self.send(packed, deadline).map_err(|error| Broken { error, sent: false })?;
        let receive = (0..replies).map(|_| self.receive(deadline));
        receive.collect::<io::Result<_>>().map_err(|error| Broken { error, sent: true })
    }

    /// The same with one.
    pub(super) fn ask(&mut self, packed: &[u8], deadline: Instant) -> Result<Value, Broken> {
        self.send(packed, deadline).map_err(|error| Broken { error, sent: false })?;
        self.receive(deadline).map_err(|error| Broken { error, sent: true })
    }

    /// A command of which the last byte was not sent does not run.
    fn send(&mut self, packed: &[u8], deadline: Instant) -> io::Result<()> {
        if let Some(tls) = &mut self.tls {
            let mut rest = packed;
            while !rest.is_empty() {
                let taken = tls.writer().write(rest)?;
                rest = &rest[taken..];
                flush(tls, &self.socket, deadline)?;
            }
            return Ok(());
        }
        let mut rest = packed;
        while !rest.is_empty() {
            match (&self.socket).write(rest) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => rest = &rest[count..],
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.socket.wait_writable(deadline)?,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn receive(&mut self, deadline: Instant) -> io::Result<Value> {
        loop {
            if let Some(value) = self.inbound.next().map_err(|_| failure::garbled())? {
                return Ok(value);
            }
            let count = match &mut self.tls {
                Some(tls) => match tls.reader().read(self.inbound.room()) {
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                        receive(tls, &self.socket, deadline)?;
                        continue;
                    }
                    result => result,
                },
                None => self.socket.read_by(deadline, &mut self.patience, self.inbound.room()),
            };
            match count {
                Ok(0) => return Err(failure::hung_up()),
                Ok(count) => self.inbound.arrived(count),
                Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Marks it as used now.
    pub(super) fn touch(&mut self, now: Instant) {
        self.used = now;
    }
}

fn flush(tls: &mut ClientConnection, socket: &Socket, deadline: Instant) -> io::Result<()> {
    while tls.wants_write() {
        match tls.write_tls(&mut &*socket) {
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => socket.wait_writable(deadline)?,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn receive(tls: &mut ClientConnection, socket: &Socket, deadline: Instant) -> io::Result<()> {
    socket.wait_readable(deadline)?;
    match tls.read_tls(&mut &*socket) {
        Ok(0) => return Err(failure::hung_up()),
        Ok(_) => {}
        Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {}
        Err(error) => return Err(error),
    }
    if let Err(error) = tls.process_new_packets() {
        // The other side is told why, if it listens.
        let _ = tls.write_tls(&mut &*socket);
        return Err(io::Error::new(io::ErrorKind::InvalidData, error));
    }
    Ok(())
}
