//! A socket on which nothing waits longer than it is told to.

use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream, ToSocketAddrs};
#[cfg(unix)]
use std::os::fd::{AsFd, BorrowedFd};
#[cfg(unix)]
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::store::url::Address;

/// Connected, and never blocking by itself.
pub(super) enum Socket {
    Tcp(TcpStream),
    #[cfg(unix)]
    Unix(UnixStream),
}

impl Socket {
    pub(super) fn open(address: &Address, deadline: Instant) -> io::Result<Self> {
        match address {
            Address::Tcp(host, port) => {
                let stream = connect(&resolve(host, *port, deadline)?, deadline)?;
                // A call is one packet and wants to leave at once.
                stream.set_nodelay(true)?;
                stream.set_nonblocking(true)?;
                Ok(Self::Tcp(stream))
            }
            #[cfg(unix)]
            Address::Unix(path) => connect_unix(path, deadline).map(Self::Unix),
            #[cfg(not(unix))]
            Address::Unix(_) => Err(io::Error::new(io::ErrorKind::Unsupported, "this system has no unix sockets")),
        }
    }

    /// Waits until there is something to read, or room to write.
    fn wait(&self, what: PollFlags, deadline: Instant) -> io::Result<()> {
        loop {
            let left = left(deadline)?;
            let left = Timespec { tv_sec: left.as_secs() as _, tv_nsec: left.subsec_nanos() as _ };
            let mut fds = [match self {
                Self::Tcp(stream) => PollFd::new(stream, what),
                #[cfg(unix)]
                Self::Unix(stream) => PollFd::new(stream, what),
            }];
            match poll(&mut fds, Some(&left)) {
                Ok(0) | Err(rustix::io::Errno::INTR) => {}
                Ok(_) => return Ok(()),
                Err(error) => return Err(error.into()),
            }
        }
    }

    pub(super) fn wait_readable(&self, deadline: Instant) -> io::Result<()> {
        self.wait(PollFlags::IN, deadline)
    }

    pub(super) fn wait_writable(&self, deadline: Instant) -> io::Result<()> {
        self.wait(PollFlags::OUT, deadline)
    }

    /// Whether nothing waits to be read, not even an end.
    pub(super) fn is_quiet(&self) -> bool {
        let mut byte = [0];
        let peeked = match self {
            Self::Tcp(stream) => stream.peek(&mut byte),
            #[cfg(unix)]
            Self::Unix(stream) => rustix::net::recv(stream, &mut byte, rustix::net::RecvFlags::PEEK)
                .map(|(count, _)| count)
                .map_err(Into::into),
        };
        peeked.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
    }
}

#[cfg(unix)]
impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp(stream) => stream.as_fd(),
            Self::Unix(stream) => stream.as_fd(),
        }
    }
}

impl Read for &Socket {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Socket::Tcp(stream) => (&mut &*stream).read(buffer),
            #[cfg(unix)]
            Socket::Unix(stream) => (&mut &*stream).read(buffer),
        }
    }
}

impl Write for &Socket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Socket::Tcp(stream) => (&mut &*stream).write(bytes),
            #[cfg(unix)]
            Socket::Unix(stream) => (&mut &*stream).write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The time that is left, never none.
pub(super) fn left(deadline: Instant) -> io::Result<Duration> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return Err(io::ErrorKind::TimedOut.into());
    }
    Ok(left)
}

/// The system's resolver takes no deadline, so that it gets a thread which may come late.
fn resolve(host: &Arc<str>, port: u16, deadline: Instant) -> io::Result<Vec<SocketAddr>> {
    if let Ok(address) = host.parse::<IpAddr>() {
        return Ok(vec![SocketAddr::new(address, port)]);
    }
    let (answer, answered) = channel();
    let name = Arc::clone(host);
    std::thread::Builder::new().name("tidegate-resolver".to_owned()).spawn(move || {
        // Nobody may be waiting any more.
        let _ = answer.send((&*name, port).to_socket_addrs().map(Vec::from_iter));
    })?;
    match answered.recv_timeout(left(deadline)?) {
        Ok(found) => found.map_err(|error| io::Error::new(error.kind(), format!("its name is not known: {error}"))),
        Err(RecvTimeoutError::Timeout) => Err(io::ErrorKind::TimedOut.into()),
        Err(RecvTimeoutError::Disconnected) => Err(io::Error::other("its name cannot be looked up")),
    }
}

/// The first of them that accepts; none may use up the time of those after it.
fn connect(addresses: &[SocketAddr], deadline: Instant) -> io::Result<TcpStream> {
    let mut failure = io::Error::new(io::ErrorKind::NotFound, "its name has no address");
    for (index, address) in addresses.iter().enumerate() {
        let share = left(deadline)? / (addresses.len() - index) as u32;
        match TcpStream::connect_timeout(address, share.max(Duration::from_micros(1))) {
            Ok(stream) => return Ok(stream),
            Err(error) => failure = error,
        }
    }
    Err(failure)
}

#[cfg(unix)]
fn connect_unix(path: &std::path::Path, deadline: Instant) -> io::Result<UnixStream> {
    use rustix::net::{AddressFamily, SocketAddrUnix, SocketType, connect, socket};

    let address = SocketAddrUnix::new(path)?;
    let socket = UnixStream::from(socket(AddressFamily::UNIX, SocketType::STREAM, None)?);
    rustix::io::fcntl_setfd(&socket, rustix::io::FdFlags::CLOEXEC)?;
    socket.set_nonblocking(true)?;
    loop {
        match connect(&socket, &address) {
            Ok(()) => return Ok(socket),
            // The server's line is full, and nothing tells when it is not.
            Err(rustix::io::Errno::AGAIN) => std::thread::sleep(left(deadline)?.min(Duration::from_millis(1))),
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}
