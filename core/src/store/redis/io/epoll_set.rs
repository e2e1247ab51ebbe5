//! Sockets that are one file to an event loop: the file is readable while one of the sockets is.

use std::sync::Arc;

#[cfg(target_os = "linux")]
pub(crate) use linux::EpollSet;
#[cfg(not(target_os = "linux"))]
pub(crate) use none::EpollSet;

/// The set of an event loop that reads replies; `None` where the engine's thread reads them.
pub(crate) type ReplyReader = Option<Arc<EpollSet>>;

#[cfg(target_os = "linux")]
mod linux {
    use std::io;
    use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

    use rustix::event::epoll;

    /// A set of sockets that an event loop watches as one file.
    pub(crate) struct EpollSet(OwnedFd);

    impl EpollSet {
        pub(crate) fn new() -> io::Result<Self> {
            Ok(Self(epoll::create(epoll::CreateFlags::CLOEXEC)?))
        }

        /// Adds a socket, until it is closed or removed.
        pub(crate) fn add(&self, socket: impl AsFd) -> io::Result<()> {
            Ok(epoll::add(&self.0, socket, epoll::EventData::new_u64(0), epoll::EventFlags::IN)?)
        }

        /// Whether the file is readable also while the socket has room to write.
        pub(crate) fn report_room(&self, socket: impl AsFd, report: bool) -> io::Result<()> {
            let room = if report { epoll::EventFlags::OUT } else { epoll::EventFlags::empty() };
            Ok(epoll::modify(&self.0, socket, epoll::EventData::new_u64(0), epoll::EventFlags::IN | room)?)
        }

        pub(crate) fn remove(&self, socket: impl AsFd) -> io::Result<()> {
            Ok(epoll::delete(&self.0, socket)?)
        }
    }

    impl AsFd for EpollSet {
        fn as_fd(&self) -> BorrowedFd<'_> {
            self.0.as_fd()
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
