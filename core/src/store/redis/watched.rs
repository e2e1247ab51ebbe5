//! A socket that an event loop watches, as one of a set.

use std::io::{self, Read, Write};
use std::sync::Arc;
use std::task::Poll;

use super::lookout::Set;
use super::socket::Socket;

/// See the module.
pub(super) struct Watched {
    socket: Socket,
    set: Arc<Set>,
    /// Whether there may be something to read.
    ready: bool,
    /// Whether the loop is to be told of room to write.
    full: bool,
}

impl Watched {
    pub(super) fn new(socket: Socket, set: Arc<Set>) -> io::Result<Self> {
        set.add(&socket)?;
        Ok(Self { socket, set, ready: true, full: false })
    }

    pub(super) fn into_socket(self) -> io::Result<Socket> {
        self.set.remove(&self.socket)?;
        Ok(self.socket)
    }

    /// See `Link::listen`.
    pub(super) const fn listen(&mut self) {
        self.ready = true;
    }

    pub(super) fn poll_read(&mut self, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        while self.ready {
            match (&self.socket).read(buffer) {
                Ok(count) => {
                    // A short one was the last, unless it is the end.
                    self.ready = count == 0 || count == buffer.len();
                    return Poll::Ready(Ok(count));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.ready = false,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
        Poll::Pending
    }

    pub(super) fn try_write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = (&self.socket).write(bytes);
        let full = written.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock);
        if full != self.full {
            self.set.tell_of_room(&self.socket, full)?;
            self.full = full;
        }
        written
    }
}
