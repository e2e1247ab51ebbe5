//! A connection for one exchange at a time. Each exchange has a deadline. Every connection begins like this.

use std::borrow::Cow;
use std::collections::HashSet;
use std::io::{self, Write};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::process::lock::InheritedMutex;
use redis::Value;
use smallvec::SmallVec;

use super::socket::Socket;
use super::tls::{Session, TlsConfig};
use crate::error::{Error, Result as StoreResult};
use crate::process::log::{Log, WarningKind};
use crate::store::redis::protocol::{
    Exchange, ExpectedRole, Failure, Handshake, MAX_SHORT_REPLY, ReplyBuffer, Server, closed_by_server, malformed,
    not_followed, out_of_step, refused,
};
use crate::store::url::{Address, Endpoints};

/// The most servers that are remembered as asked. Other servers are asked by each connection.
const MAX_ASKED: usize = 1_000;
/// A connection used less than this ago is used again without a check.
const FRESH: Duration = Duration::from_micros(250);

/// Opens connections to the servers of a store.
pub(crate) struct Connector {
    tls: Option<TlsConfig>,
    log: Arc<Log>,
    /// The servers that were asked which keys they evict.
    asked: InheritedMutex<HashSet<Address>>,
}

/// A connection to a server that was greeted.
pub(crate) struct BlockingConnection {
    pub(crate) socket: Socket,
    pub(crate) tls: Option<Session>,
    buffer: ReplyBuffer,
    used: Instant,
    /// The current read timeout of the socket: see `Socket::read_by`.
    read_timeout: Duration,
}

/// The error that ended an exchange early. `sent` is true if all of its commands had been sent by then.
pub(crate) struct Interrupted {
    pub(crate) error: io::Error,
    pub(crate) sent: bool,
}

impl Connector {
    /// Reads the certificates that the endpoints name.
    ///
    /// # Errors
    /// `config_invalid` for certificates that cannot be used.
    pub(crate) fn new(endpoints: &Endpoints, log: Arc<Log>) -> StoreResult<Self> {
        Ok(Self { tls: TlsConfig::of(endpoints, &log)?, log, asked: InheritedMutex::default() })
    }

    /// Connects, encrypts and greets. The first connection to a server finds out which keys it evicts.
    pub(crate) fn open(&self, server: &Server, deadline: Instant) -> Result<BlockingConnection, Failure> {
        let asks = server.role != ExpectedRole::Sentinel
            && !self.log.has_warned(WarningKind::Eviction)
            && !self.asked.lock().contains(&server.address);
        self.open_and_ask(server, asks, deadline)
    }

    /// Opens a connection for commands that are not script calls.
    pub(crate) fn open_for_commands(&self, server: Server, deadline: Instant) -> Result<CommandConnection, Failure> {
        Ok(CommandConnection { connection: self.open(&server, deadline)?, server })
    }

    /// Finds out again which keys a server evicts. It does not matter here if the server does not answer.
    pub(crate) fn check_eviction(&self, server: &Server, deadline: Instant) {
        if !self.log.has_warned(WarningKind::Eviction) {
            drop(self.open_and_ask(server, true, deadline));
        }
    }

    fn open_and_ask(&self, server: &Server, asks: bool, deadline: Instant) -> Result<BlockingConnection, Failure> {
        if !server.is_followed {
            return Err(not_followed(&server.shown));
        }
        let login = server.login.current().map_err(Failure::of_call)?;
        let mut connection = self.connect(server, deadline).map_err(|error| server.failure(&error, false))?;
        let mut handshake = Handshake::new(&login, server.role);
        if asks {
            handshake = handshake.with_memory();
        }
        let mut exchange = Exchange::new(&handshake.commands, handshake.reply_count(), MAX_SHORT_REPLY);
        let done = connection.run(&mut exchange, deadline);
        done.map_err(|interrupted| server.failure(&connection.not_plain(interrupted.error), false))?;
        let replies = exchange.into_replies();
        handshake.check(&replies, &login, server.role, &server.shown)?;
        if asks {
            self.note_eviction(server, handshake.eviction(&replies));
        }
        if !connection.is_in_step() {
            return Err(server.failure(&out_of_step(), false));
        }
        Ok(connection)
    }

    fn note_eviction(&self, server: &Server, policy: Option<Cow<'_, str>>) {
        let mut asked = self.asked.lock();
        if asked.len() < MAX_ASKED {
            asked.insert(server.address.clone());
        }
        drop(asked);
        let Some(policy) = policy else { return };
        self.log.warn_once(WarningKind::Eviction, || {
            format!(
                "{} evicts keys when its memory is full (maxmemory-policy {policy}): it would forget limits and blocks, and \
                 callers would get past them. Set maxmemory-policy noeviction, or give the limits a separate server",
                server.shown
            )
        });
    }

    fn connect(&self, server: &Server, deadline: Instant) -> io::Result<BlockingConnection> {
        let socket = Socket::open(&server.address, deadline)?;
        let tls = match (&self.tls, &server.address) {
            (Some(config), Address::Tcp(host, _)) => Some(config.session(host)?),
            _ => None,
        };
        let buffer = ReplyBuffer::new();
        let used = Instant::now();
        let read_timeout = Duration::ZERO;
        let mut connection = BlockingConnection { socket, tls, buffer, used, read_timeout };
        connection.encrypt(deadline)?;
        Ok(connection)
    }
}

impl BlockingConnection {
    /// The handshake of TLS.
    fn encrypt(&mut self, deadline: Instant) -> io::Result<()> {
        let Some(tls) = &mut self.tls else { return Ok(()) };
        while tls.is_handshaking() {
            flush(tls, &self.socket, deadline)?;
            if tls.is_handshaking() {
                receive(tls, &self.socket, deadline).map_err(not_tls)?;
            }
        }
        flush(tls, &self.socket, deadline)
    }

    /// A TLS server refuses a greeting in plain text. The end of the connection may arrive before the refusal.
    fn not_plain(&self, error: io::Error) -> io::Error {
        match error.kind() {
            kind @ (io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe)
                if self.tls.is_none() =>
            {
                io::Error::new(
                    kind,
                    "it ended the connection before it answered; if the server speaks TLS, begin the store URL with rediss:// \
                     instead of redis://",
                )
            }
            _ => error,
        }
    }

    /// True if it seems usable, as far as one can see without a command. Bytes that answer no command are a bad sign,
    /// too.
    pub(crate) fn is_usable(&mut self, now: Instant) -> bool {
        if now.saturating_duration_since(self.used) < FRESH {
            return true;
        }
        let Some(tls) = &mut self.tls else { return self.socket.is_quiet() };
        loop {
            match tls.read_from(&mut &self.socket) {
                Ok(0) => return false,
                Ok(_) if tls.is_quiet() => {}
                Ok(_) => return false,
                Err(error) => return error.kind() == io::ErrorKind::WouldBlock,
            }
        }
    }

    /// True if every received byte belongs to a reply that was read.
    pub(crate) fn is_in_step(&mut self) -> bool {
        self.buffer.is_empty() && !self.tls.as_mut().is_some_and(Session::has_decrypted)
    }

    /// Sends the commands of an exchange and waits for their replies.
    pub(crate) fn run(&mut self, exchange: &mut Exchange<'_>, deadline: Instant) -> Result<(), Interrupted> {
        let done = self.send(exchange, deadline).and_then(|()| self.receive(exchange, deadline));
        done.map_err(|error| Interrupted { error, sent: exchange.is_sent() })
    }

    fn send(&mut self, exchange: &mut Exchange<'_>, deadline: Instant) -> io::Result<()> {
        while !exchange.is_sent() {
            let bytes = exchange.transmit();
            let written = match &mut self.tls {
                Some(tls) => {
                    let taken = tls.write(bytes)?;
                    flush(tls, &self.socket, deadline).map(|()| taken)
                }
                None => (&self.socket).write(bytes),
            };
            match written {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => exchange.handle_sent(count),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.socket.wait_writable(deadline)?,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn receive(&mut self, exchange: &mut Exchange<'_>, deadline: Instant) -> io::Result<()> {
        while !exchange.handle_received(&mut self.buffer)? {
            let count = match &mut self.tls {
                Some(tls) => match tls.read(self.buffer.space()) {
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                        receive(tls, &self.socket, deadline)?;
                        continue;
                    }
                    result => result,
                },
                None => self.socket.read_by(deadline, &mut self.read_timeout, self.buffer.space()),
            };
            match count {
                Ok(0) => return Err(closed_by_server()),
                Ok(count) => self.buffer.received(count),
                Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Marks it as used now.
    pub(crate) const fn touch(&mut self, now: Instant) {
        self.used = now;
    }
}

/// A connection to a server for commands that are not script calls.
pub(crate) struct CommandConnection {
    connection: BlockingConnection,
    server: Server,
}

impl CommandConnection {
    /// Sends commands and returns their replies. `replies` is the number of commands.
    pub(crate) fn run(
        &mut self,
        commands: &[u8],
        replies: usize,
        max_reply: usize,
        deadline: Instant,
    ) -> Result<SmallVec<[Value; 1]>, Failure> {
        let mut exchange = Exchange::new(commands, replies, max_reply);
        let done = self.connection.run(&mut exchange, deadline);
        done.map_err(|interrupted| self.server.failure(&interrupted.error, false))?;
        if !self.connection.is_in_step() {
            return Err(self.server.failure(&out_of_step(), false));
        }
        Ok(exchange.into_replies())
    }

    /// The error for a server's error reply.
    pub(crate) fn refused(&self, error: &redis::ServerError) -> Error {
        refused(&self.server.shown, error)
    }
}

/// A server that ends the connection in the middle of the handshake hardly speaks TLS. A silent one may wait for the
/// end of a line, as a Redis without TLS does.
fn not_tls(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset => malformed(
            "it ended the connection instead of speaking TLS: begin the store URL with redis:// instead of rediss://, or give \
             the port of TLS",
        ),
        io::ErrorKind::TimedOut => io::Error::new(
            io::ErrorKind::TimedOut,
            "if the server does not speak TLS, begin the store URL with redis:// instead of rediss://, or give the TLS port",
        ),
        _ => error,
    }
}

fn flush(tls: &mut Session, socket: &Socket, deadline: Instant) -> io::Result<()> {
    while tls.wants_write() {
        match tls.write_to(&mut &*socket) {
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => socket.wait_writable(deadline)?,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn receive(tls: &mut Session, socket: &Socket, deadline: Instant) -> io::Result<()> {
    socket.wait_readable(deadline)?;
    match tls.read_from(&mut &*socket) {
        Ok(0) => return Err(closed_by_server()),
        Ok(_) => {}
        Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {}
        Err(error) => return Err(error),
    }
    let decrypted = tls.decrypt();
    if decrypted.is_err() {
        // The server gets the alert, if it still reads.
        let _ = tls.write_to(&mut &*socket);
    }
    decrypted
}
