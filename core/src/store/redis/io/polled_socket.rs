//! A socket that an event loop watches, as a member of a set.

use std::io::{self, Read, Write};
use std::sync::Arc;
use std::task::Poll;

use super::epoll_set::EpollSet;
use super::socket::Socket;

/// A socket of a set.
pub(crate) struct PolledSocket {
    socket: Socket,
    set: Arc<EpollSet>,
    /// Whether there may be bytes to read.
    readable: bool,
    /// Whether the set reports room to write.
    awaits_room: bool,
}

impl PolledSocket {
    pub(crate) fn new(socket: Socket, set: Arc<EpollSet>) -> io::Result<Self> {
        set.add(&socket)?;
        Ok(Self { socket, set, readable: true, awaits_room: false })
    }

    pub(crate) fn into_socket(self) -> io::Result<Socket> {
        self.set.remove(&self.socket)?;
        Ok(self.socket)
    }

    pub(crate) const fn mark_readable(&mut self) {
        self.readable = true;
    }

    pub(crate) fn poll_read(&mut self, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        while self.readable {
            match (&self.socket).read(buffer) {
                Ok(count) => {
                    // A short read was the last one, unless it is the end of the stream.
                    self.readable = count == 0 || count == buffer.len();
                    return Poll::Ready(Ok(count));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.readable = false,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
        Poll::Pending
    }

    pub(crate) fn try_write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = (&self.socket).write(bytes);
        let full = written.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock);
        if full != self.awaits_room {
            self.set.report_room(&self.socket, full)?;
            self.awaits_room = full;
        }
        written
    }
}
