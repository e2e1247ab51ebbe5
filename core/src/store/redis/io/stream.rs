//! The socket of a pipelined connection, with or without TLS. It reads and writes as much as it can and never waits.

use std::io::{self, Read, Write};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
#[cfg(unix)]
use tokio::net::UnixStream;

use super::connection::BlockingConnection;
use super::epoll_set::EpollSet;
#[cfg(target_os = "linux")]
use super::epoll_set::PolledSocket;
use super::socket::Socket;
use super::tls::Session;
use crate::store::redis::protocol::closed_by_server;

enum Transport {
    Tcp(TcpStream),
    #[cfg(unix)]
    Unix(UnixStream),
    /// An event loop reads it.
    #[cfg(target_os = "linux")]
    Polled(PolledSocket),
}

/// A socket that never waits.
pub(crate) struct Stream {
    transport: Transport,
    tls: Option<Session>,
}

impl Transport {
    /// Takes over a socket. Call it within a runtime.
    fn new(socket: Socket, set: Option<&Arc<EpollSet>>) -> io::Result<Self> {
        #[cfg(target_os = "linux")]
        if let Some(set) = set {
            return Ok(Self::Polled(PolledSocket::new(socket, Arc::clone(set))?));
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
            Self::Polled(polled) => polled.into_socket()?,
        })
    }

    fn poll_read(&mut self, cx: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        let mut buffer = ReadBuf::new(buffer);
        let done = match self {
            Self::Tcp(stream) => Pin::new(stream).poll_read(cx, &mut buffer),
            #[cfg(unix)]
            Self::Unix(stream) => Pin::new(stream).poll_read(cx, &mut buffer),
            #[cfg(target_os = "linux")]
            Self::Polled(polled) => return polled.poll_read(buffer.initialize_unfilled()),
        };
        done.map_ok(|()| buffer.filled().len())
    }

    /// With a context, room to write wakes the task. Without one it does not.
    fn write(&mut self, cx: Option<&mut Context<'_>>, bytes: &[u8]) -> io::Result<usize> {
        let written = match (self, cx) {
            (Self::Tcp(stream), None) => return stream.try_write(bytes),
            (Self::Tcp(stream), Some(cx)) => Pin::new(stream).poll_write(cx, bytes),
            #[cfg(unix)]
            (Self::Unix(stream), None) => return stream.try_write(bytes),
            #[cfg(unix)]
            (Self::Unix(stream), Some(cx)) => Pin::new(stream).poll_write(cx, bytes),
            #[cfg(target_os = "linux")]
            (Self::Polled(polled), _) => return polled.try_write(bytes),
        };
        now(written)
    }
}

/// A transport in the form that TLS reads and writes.
struct Bridge<'a, 'b, 'c> {
    transport: &'a mut Transport,
    cx: Option<&'b mut Context<'c>>,
}

fn now<T>(poll: Poll<io::Result<T>>) -> io::Result<T> {
    match poll {
        Poll::Ready(result) => result,
        Poll::Pending => Err(io::ErrorKind::WouldBlock.into()),
    }
}

impl Read for Bridge<'_, '_, '_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match &mut self.cx {
            Some(cx) => now(self.transport.poll_read(cx, buffer)),
            None => Err(io::ErrorKind::WouldBlock.into()),
        }
    }
}

impl Write for Bridge<'_, '_, '_> {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        self.transport.write(self.cx.as_deref_mut(), buffer)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Stream {
    /// Makes a connection pipelined. With a set, an event loop reads it. Call it within a runtime.
    pub(crate) fn new(connection: BlockingConnection, set: Option<&Arc<EpollSet>>) -> io::Result<Self> {
        let BlockingConnection { socket, tls, .. } = connection;
        Ok(Self { transport: Transport::new(socket, set)?, tls })
    }

    /// Lets an event loop read the connection, or the engine's thread again. Call it within a runtime.
    pub(crate) fn read_through(self, set: Option<&Arc<EpollSet>>) -> io::Result<Self> {
        let transport = Transport::new(self.transport.into_socket()?, set)?;
        Ok(Self { transport, ..self })
    }

    /// True if an event loop reads it.
    pub(crate) const fn is_polled(&self) -> bool {
        #[cfg(target_os = "linux")]
        return matches!(self.transport, Transport::Polled(_));
        #[cfg(not(target_os = "linux"))]
        false
    }

    /// There may be bytes to read that no waker has reported.
    pub(crate) const fn mark_readable(&mut self) {
        #[cfg(target_os = "linux")]
        if let Transport::Polled(polled) = &mut self.transport {
            polled.mark_readable();
        }
    }

    /// Reads the bytes that have come. The end of the stream is an error.
    pub(crate) fn poll_read(&mut self, cx: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        let read = match &mut self.tls {
            None => self.transport.poll_read(cx, buffer),
            Some(tls) => read_encrypted(tls, &mut self.transport, cx, buffer),
        };
        match read {
            Poll::Ready(Ok(0)) => Poll::Ready(Err(closed_by_server())),
            read => read,
        }
    }

    /// True if encrypted bytes wait to be written.
    pub(crate) fn has_unsent(&self) -> bool {
        self.tls.as_ref().is_some_and(Session::wants_write)
    }

    /// Writes as much as there is room for, and returns how much that was. With a context, room for more wakes the
    /// task. Without one the caller tries again when it likes.
    pub(crate) fn write(&mut self, mut cx: Option<&mut Context<'_>>, bytes: &[u8]) -> io::Result<usize> {
        let mut written = 0;
        loop {
            let done = match &mut self.tls {
                None if written == bytes.len() => return Ok(written),
                None => self.transport.write(cx.as_deref_mut(), &bytes[written..]),
                Some(tls) if tls.wants_write() => {
                    tls.write_to(&mut Bridge { transport: &mut self.transport, cx: cx.as_deref_mut() }).map(|_| 0)
                }
                Some(_) if written == bytes.len() => return Ok(written),
                Some(tls) => tls.write(&bytes[written..]),
            };
            match done {
                Ok(count) => written += count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(written),
                Err(error) => return Err(error),
            }
        }
    }
}

fn read_encrypted(
    tls: &mut Session,
    transport: &mut Transport,
    cx: &mut Context<'_>,
    buffer: &mut [u8],
) -> Poll<io::Result<usize>> {
    loop {
        match tls.read(buffer) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            read => return Poll::Ready(read),
        }
        match tls.read_from(&mut Bridge { transport, cx: Some(cx) }) {
            Ok(0) => return Poll::Ready(Ok(0)),
            Ok(_) => tls.decrypt()?,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Poll::Pending,
            Err(error) => return Poll::Ready(Err(error)),
        }
    }
}
