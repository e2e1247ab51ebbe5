//! Sockets that are one file to an event loop: the file is readable while one of the sockets is.

use std::sync::Arc;

#[cfg(target_os = "linux")]
pub(crate) use linux::{EpollSet, PolledSocket};
#[cfg(not(target_os = "linux"))]
pub(crate) use none::EpollSet;

/// The set of an event loop that reads replies, or `None` if the engine's thread reads them.
pub(crate) type ReplyReader = Option<Arc<EpollSet>>;

#[cfg(target_os = "linux")]
mod linux {
    use std::io::{self, Read, Write};
    use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
    use std::sync::Arc;
    use std::task::Poll;

    use rustix::event::epoll;

    use crate::store::redis::io::socket::Socket;

    /// A set of sockets that an event loop watches as one file.
    pub(crate) struct EpollSet(OwnedFd);

    impl EpollSet {
        pub(crate) fn new() -> io::Result<Self> {
            Ok(Self(epoll::create(epoll::CreateFlags::CLOEXEC)?))
        }

        /// Adds a socket, until it is closed or removed.
        fn add(&self, socket: impl AsFd) -> io::Result<()> {
            Ok(epoll::add(&self.0, socket, epoll::EventData::new_u64(0), epoll::EventFlags::IN)?)
        }

        /// With `report`, the file is also readable while the socket has room to write.
        fn report_room(&self, socket: impl AsFd, report: bool) -> io::Result<()> {
            let room = if report { epoll::EventFlags::OUT } else { epoll::EventFlags::empty() };
            Ok(epoll::modify(&self.0, socket, epoll::EventData::new_u64(0), epoll::EventFlags::IN | room)?)
        }

        fn remove(&self, socket: impl AsFd) -> io::Result<()> {
            Ok(epoll::delete(&self.0, socket)?)
        }
    }

    impl AsFd for EpollSet {
        fn as_fd(&self) -> BorrowedFd<'_> {
            self.0.as_fd()
        }
    }

    /// A socket that an event loop watches, as a member of a set.
    pub(crate) struct PolledSocket {
        socket: Socket,
        set: Arc<EpollSet>,
        /// True if there may be bytes to read.
        readable: bool,
        /// True if the set reports room to write.
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
}

/// On other systems the engine's thread reads.
#[cfg(not(target_os = "linux"))]
mod none {
    pub(crate) enum EpollSet {}

    impl EpollSet {
        pub(crate) fn new() -> std::io::Result<Self> {
            Err(std::io::ErrorKind::Unsupported.into())
        }
    }
}
