//! A connection of the engine: reads and writes what it can, and never waits.

use std::io::{self, Read, Write};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use redis::Value;
use rustls::ClientConnection;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
#[cfg(unix)]
use tokio::net::UnixStream;

use super::failure;
use super::lookout::Set;
use super::resp::Inbound;
use super::socket::Socket;
#[cfg(target_os = "linux")]
use super::watched::Watched;
use super::wire::Wire;

/// What the buffer for sending may keep once it is empty.
const KEPT: usize = 1_024 * 1_024;

enum Stream {
    Tcp(TcpStream),
    #[cfg(unix)]
    Unix(UnixStream),
    /// An event loop reads it.
    #[cfg(target_os = "linux")]
    Watched(Watched),
}

impl Stream {
    /// Within a runtime.
    fn new(socket: Socket, set: Option<&Arc<Set>>) -> io::Result<Self> {
        #[cfg(target_os = "linux")]
        if let Some(set) = set {
            return Ok(Self::Watched(Watched::new(socket, Arc::clone(set))?));
        }
        let _ = set;
        socket.set_nonblocking(true)?;
        Ok(match socket {
            Socket::Tcp(stream) => Self::Tcp(TcpStream::from_std(stream)?),
            #[cfg(unix)]
            Socket::Unix(stream) => Self::Unix(UnixStream::from_std(stream)?),
        })
    }

    fn into_socket(self) -> io::Result<Socket> {
        Ok(match self {
            Self::Tcp(stream) => Socket::Tcp(stream.into_std()?),
            #[cfg(unix)]
            Self::Unix(stream) => Socket::Unix(stream.into_std()?),
            #[cfg(target_os = "linux")]
            Self::Watched(watched) => watched.into_socket()?,
        })
    }

    fn poll_read(&mut self, cx: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        let mut buffer = ReadBuf::new(buffer);
        let done = match self {
            Self::Tcp(stream) => Pin::new(stream).poll_read(cx, &mut buffer),
            #[cfg(unix)]
            Self::Unix(stream) => Pin::new(stream).poll_read(cx, &mut buffer),
            #[cfg(target_os = "linux")]
            Self::Watched(watched) => return watched.poll_read(buffer.initialize_unfilled()),
        };
        done.map_ok(|()| buffer.filled().len())
    }

    fn try_write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.try_write(bytes),
            #[cfg(unix)]
            Self::Unix(stream) => stream.try_write(bytes),
            #[cfg(target_os = "linux")]
            Self::Watched(watched) => watched.try_write(bytes),
        }
    }

    fn poll_write(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self {
            Self::Tcp(stream) => Pin::new(stream).poll_write(cx, bytes),
            #[cfg(unix)]
            Self::Unix(stream) => Pin::new(stream).poll_write(cx, bytes),
            #[cfg(target_os = "linux")]
            Self::Watched(watched) => match watched.try_write(bytes) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => Poll::Pending,
                written => Poll::Ready(written),
            },
        }
    }
}

/// The stream as TLS sees it.
struct Bridge<'a, 'b> {
    stream: &'a mut Stream,
    cx: &'a mut Context<'b>,
}

fn now<T>(poll: Poll<io::Result<T>>) -> io::Result<T> {
    match poll {
        Poll::Ready(result) => result,
        Poll::Pending => Err(io::ErrorKind::WouldBlock.into()),
    }
}

impl Read for Bridge<'_, '_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        now(self.stream.poll_read(self.cx, buffer))
    }
}

impl Write for Bridge<'_, '_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        now(self.stream.poll_write(self.cx, bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// See the module.
pub(super) struct Link {
    stream: Stream,
    tls: Option<Box<ClientConnection>>,
    inbound: Inbound,
    out: Vec<u8>,
    written: usize,
    /// Bytes that left before `out`.
    before: u64,
}

impl Link {
    /// Within a runtime.
    pub(super) fn new(wire: Wire, set: Option<&Arc<Set>>) -> io::Result<Self> {
        let Wire { socket, tls, inbound, .. } = wire;
        let stream = Stream::new(socket, set)?;
        Ok(Self { stream, tls, inbound, out: Vec::new(), written: 0, before: 0 })
    }

    /// The same, read by an event loop or by the thread again. Within a runtime.
    pub(super) fn watched_by(self, set: Option<&Arc<Set>>) -> io::Result<Self> {
        let stream = Stream::new(self.stream.into_socket()?, set)?;
        Ok(Self { stream, ..self })
    }

    pub(super) const fn is_watched(&self) -> bool {
        #[cfg(target_os = "linux")]
        return matches!(self.stream, Stream::Watched(_));
        #[cfg(not(target_os = "linux"))]
        false
    }

    /// Something may have come that nobody tells the thread of.
    pub(super) const fn listen(&mut self) {
        #[cfg(target_os = "linux")]
        if let Stream::Watched(watched) = &mut self.stream {
            watched.listen();
        }
    }

    /// Where commands are written; `end` says where the last one ended.
    pub(super) const fn out(&mut self) -> &mut Vec<u8> {
        &mut self.out
    }

    /// How many bytes were ever written here.
    pub(super) const fn end(&self) -> u64 {
        self.before + self.out.len() as u64
    }

    /// How many of them have left.
    pub(super) const fn left(&self) -> u64 {
        self.before + self.written as u64
    }

    pub(super) fn has_to_send(&self) -> bool {
        self.written < self.out.len() || self.tls.as_ref().is_some_and(|tls| tls.wants_write())
    }

    /// Takes back what was written from there on, which has not left.
    pub(super) fn take_back(&mut self, from: u64) {
        self.out.truncate((from - self.before) as usize);
    }

    /// The next reply.
    pub(super) fn poll_reply(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Value>> {
        loop {
            if let Some(value) = self.inbound.next().map_err(|_| failure::garbled())? {
                return Poll::Ready(Ok(value));
            }
            let count = match &mut self.tls {
                None => match self.stream.poll_read(cx, self.inbound.room()) {
                    Poll::Ready(count) => count?,
                    Poll::Pending => return Poll::Pending,
                },
                Some(tls) => match tls.reader().read(self.inbound.room()) {
                    Ok(count) => count,
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                        match tls.read_tls(&mut Bridge { stream: &mut self.stream, cx }) {
                            Ok(0) => return Poll::Ready(Err(failure::hung_up())),
                            Ok(_) => {
                                let state = tls.process_new_packets();
                                state.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
                                continue;
                            }
                            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Poll::Pending,
                            Err(error) => return Poll::Ready(Err(error)),
                        }
                    }
                    Err(error) => return Poll::Ready(Err(error)),
                },
            };
            if count == 0 {
                return Poll::Ready(Err(failure::hung_up()));
            }
            self.inbound.arrived(count);
        }
    }

    /// Sends what the system takes at once; says whether that was all. What failed is found out by `poll_send`.
    pub(super) fn try_send(&mut self) -> bool {
        if self.tls.is_some() {
            return !self.has_to_send();
        }
        while self.written < self.out.len() {
            match self.stream.try_write(&self.out[self.written..]) {
                Ok(count) if count > 0 => self.written += count,
                _ => return false,
            }
        }
        self.tidy();
        true
    }

    fn tidy(&mut self) {
        if self.written == self.out.len() {
            self.before += self.out.len() as u64;
            (self.written, self.out) = (0, kept(std::mem::take(&mut self.out)));
        }
    }

    /// Sends what can be sent.
    pub(super) fn poll_send(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        let sent = self.send(cx);
        self.tidy();
        match sent {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(()),
            sent => sent,
        }
    }

    fn send(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        let Self { stream, tls, out, written, .. } = self;
        let Some(tls) = tls else {
            while *written < out.len() {
                *written += now(stream.poll_write(cx, &out[*written..]))?;
            }
            return Ok(());
        };
        loop {
            while tls.wants_write() {
                tls.write_tls(&mut Bridge { stream, cx })?;
            }
            if *written == out.len() {
                return Ok(());
            }
            *written += tls.writer().write(&out[*written..])?;
        }
    }
}

fn kept(mut out: Vec<u8>) -> Vec<u8> {
    out.clear();
    if out.capacity() > KEPT { Vec::new() } else { out }
}
