//! A socket with reads and writes that wait until a deadline, and no longer.

use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
#[cfg(unix)]
use std::os::fd::{AsFd, BorrowedFd};
#[cfg(unix)]
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
#[cfg(target_os = "linux")]
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{RecvFlags, SendFlags, recv, send};

use super::name_lookup::addresses_of;
use crate::store::url::Address;

/// The system's read timeout is coarse: it ends up to an eighth later than it was set to. So it is set to end earlier
/// and `poll` waits for the rest. Waits shorter than this use `poll` alone.
#[cfg(target_os = "linux")]
const MIN_READ_TIMEOUT: Duration = Duration::from_millis(50);

/// For calls that do not wait. A connection that is gone is an error, not a signal.
#[cfg(target_os = "linux")]
const NO_WAIT_RECV: RecvFlags = RecvFlags::DONTWAIT;
#[cfg(target_os = "linux")]
const NO_WAIT_SEND: SendFlags = SendFlags::DONTWAIT.union(SendFlags::NOSIGNAL);
#[cfg(not(target_os = "linux"))]
const NO_WAIT_RECV: RecvFlags = RecvFlags::empty();
#[cfg(not(target_os = "linux"))]
const NO_WAIT_SEND: SendFlags = SendFlags::empty();

/// A socket of a blocking call, with or without TLS.
pub(crate) enum Socket {
    Tcp(TcpStream),
    #[cfg(unix)]
    Unix(UnixStream),
}

impl Socket {
    pub(crate) fn open(address: &Address, deadline: Instant) -> io::Result<Self> {
        match address {
            Address::Tcp(host, port) => {
                let stream = connect(&resolve(host, *port, deadline)?, deadline)?;
                // A call is one packet, which must leave at once.
                stream.set_nodelay(true)?;
                Self::Tcp(stream).with_mode()
            }
            #[cfg(unix)]
            Address::Unix(path) => Self::Unix(connect_unix(path, deadline)?).with_mode(),
            #[cfg(not(unix))]
            Address::Unix(_) => Err(io::Error::new(io::ErrorKind::Unsupported, "this system has no unix sockets")),
        }
    }

    /// On Linux each read and write chooses if it waits. Elsewhere none does.
    fn with_mode(self) -> io::Result<Self> {
        self.set_nonblocking(cfg!(not(target_os = "linux")))?;
        Ok(self)
    }

    pub(crate) fn set_nonblocking(&self, nonblocking: bool) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.set_nonblocking(nonblocking),
            #[cfg(unix)]
            Self::Unix(stream) => stream.set_nonblocking(nonblocking),
        }
    }

    /// Reads, and waits for bytes until the deadline. `WouldBlock` means that the caller should try again.
    /// `read_timeout` is the current read timeout of the socket.
    ///
    /// A read that waits is one system call. Waiting and then reading are two.
    #[cfg(target_os = "linux")]
    pub(crate) fn read_by(
        &self,
        deadline: Instant,
        read_timeout: &mut Duration,
        buffer: &mut [u8],
    ) -> io::Result<usize> {
        let left = time_left(deadline)?;
        if left < MIN_READ_TIMEOUT {
            self.wait_readable(deadline)?;
            return (&mut &*self).read(buffer);
        }
        if read_timeout.is_zero() || *read_timeout > left * 4 / 5 {
            *read_timeout = left * 3 / 4;
            set_socket_timeout(self, Timeout::Recv, Some(*read_timeout))?;
        }
        Ok(recv(self, buffer, RecvFlags::empty())?.0)
    }

    #[cfg(not(target_os = "linux"))]
    pub(crate) fn read_by(&self, deadline: Instant, _: &mut Duration, buffer: &mut [u8]) -> io::Result<usize> {
        self.wait_readable(deadline)?;
        (&mut &*self).read(buffer)
    }

    /// Waits until there is something to read, or room to write.
    fn wait(&self, what: PollFlags, deadline: Instant) -> io::Result<()> {
        loop {
            let left = time_left(deadline)?;
            let left = Timespec { tv_sec: left.as_secs() as _, tv_nsec: left.subsec_nanos() as _ };
            let mut fds = [match self {
                Self::Tcp(stream) => PollFd::new(stream, what),
                #[cfg(unix)]
                Self::Unix(stream) => PollFd::new(stream, what),
            }];
            match poll(&mut fds, Some(&left)) {
                Ok(0) | Err(Errno::INTR) => {}
                Ok(_) => return Ok(()),
                Err(error) => return Err(error.into()),
            }
        }
    }

    pub(crate) fn wait_readable(&self, deadline: Instant) -> io::Result<()> {
        self.wait(PollFlags::IN, deadline)
    }

    pub(crate) fn wait_writable(&self, deadline: Instant) -> io::Result<()> {
        self.wait(PollFlags::OUT, deadline)
    }

    /// True if there is nothing to read, not even the end.
    pub(crate) fn is_quiet(&self) -> bool {
        let mut byte = [0];
        let flags = RecvFlags::PEEK | NO_WAIT_RECV;
        let peeked = match self {
            Self::Tcp(stream) => recv(stream, &mut byte, flags),
            #[cfg(unix)]
            Self::Unix(stream) => recv(stream, &mut byte, flags),
        };
        matches!(peeked, Err(Errno::WOULDBLOCK))
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
        let (count, _) = match self {
            Socket::Tcp(stream) => recv(stream, buffer, NO_WAIT_RECV)?,
            #[cfg(unix)]
            Socket::Unix(stream) => recv(stream, buffer, NO_WAIT_RECV)?,
        };
        Ok(count)
    }
}

impl Write for &Socket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(match self {
            Socket::Tcp(stream) => send(stream, bytes, NO_WAIT_SEND)?,
            #[cfg(unix)]
            Socket::Unix(stream) => send(stream, bytes, NO_WAIT_SEND)?,
        })
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The time until the deadline.
///
/// # Errors
/// `TimedOut` if there is none.
pub(crate) fn time_left(deadline: Instant) -> io::Result<Duration> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return Err(io::ErrorKind::TimedOut.into());
    }
    Ok(left)
}

fn resolve(host: &Arc<str>, port: u16, deadline: Instant) -> io::Result<Vec<SocketAddr>> {
    if let Ok(address) = host.parse::<IpAddr>() {
        return Ok(vec![SocketAddr::new(address, port)]);
    }
    let addresses = addresses_of(host, deadline)?;
    Ok(addresses.iter().map(|address| SocketAddr::new(*address, port)).collect())
}

/// Connects to the first address that accepts. Each gets an equal share of the time that is left.
fn connect(addresses: &[SocketAddr], deadline: Instant) -> io::Result<TcpStream> {
    let mut failure = io::Error::new(io::ErrorKind::NotFound, "its name has no address");
    for (index, address) in addresses.iter().enumerate() {
        let share = time_left(deadline)? / (addresses.len() - index) as u32;
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
            // The server's backlog is full, and no event reports when it has room.
            Err(Errno::AGAIN) => std::thread::sleep(time_left(deadline)?.min(Duration::from_millis(1))),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}
