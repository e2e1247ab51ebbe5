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
use rustix::io::Errno;
#[cfg(target_os = "linux")]
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{RecvFlags, SendFlags, recv, send};

use crate::store::url::Address;

/// The system's timer of a read is coarse, and later by an eighth than it was set to: it is set to end so much earlier
/// that `poll` can wait for the rest, and not used for what is shorter than this.
#[cfg(target_os = "linux")]
const COARSE: Duration = Duration::from_millis(50);

/// Of calls that do not wait. Nobody is told of a connection that is gone by a signal.
#[cfg(target_os = "linux")]
const PROMPT_RECV: RecvFlags = RecvFlags::DONTWAIT;
#[cfg(target_os = "linux")]
const PROMPT_SEND: SendFlags = SendFlags::DONTWAIT.union(SendFlags::NOSIGNAL);
#[cfg(not(target_os = "linux"))]
const PROMPT_RECV: RecvFlags = RecvFlags::empty();
#[cfg(not(target_os = "linux"))]
const PROMPT_SEND: SendFlags = SendFlags::empty();

/// Connected, and never waiting by itself.
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
                Self::Tcp(stream).settled()
            }
            #[cfg(unix)]
            Address::Unix(path) => Self::Unix(connect_unix(path, deadline)?).settled(),
            #[cfg(not(unix))]
            Address::Unix(_) => Err(io::Error::new(io::ErrorKind::Unsupported, "this system has no unix sockets")),
        }
    }

    /// On Linux each call says whether it may wait; elsewhere none does.
    fn settled(self) -> io::Result<Self> {
        self.set_nonblocking(cfg!(not(target_os = "linux")))?;
        Ok(self)
    }

    pub(super) fn set_nonblocking(&self, nonblocking: bool) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.set_nonblocking(nonblocking),
            #[cfg(unix)]
            Self::Unix(stream) => stream.set_nonblocking(nonblocking),
        }
    }

    /// What there is to read, waited for; `WouldBlock` when it is worth another look. `patience` is how long the system
    /// was told to wait, and belongs to the socket.
    ///
    /// A read that waits is one call of the system, to wait and then to read are two.
    #[cfg(target_os = "linux")]
    pub(super) fn read_by(&self, deadline: Instant, patience: &mut Duration, buffer: &mut [u8]) -> io::Result<usize> {
        let left = left(deadline)?;
        if left < COARSE {
            self.wait_readable(deadline)?;
            return (&mut &*self).read(buffer);
        }
        if patience.is_zero() || *patience > left * 4 / 5 {
            *patience = left * 3 / 4;
            set_socket_timeout(self, Timeout::Recv, Some(*patience))?;
        }
        Ok(recv(self, buffer, RecvFlags::empty())?.0)
    }

    #[cfg(not(target_os = "linux"))]
    pub(super) fn read_by(&self, deadline: Instant, _: &mut Duration, buffer: &mut [u8]) -> io::Result<usize> {
        self.wait_readable(deadline)?;
        (&mut &*self).read(buffer)
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
                Ok(0) | Err(Errno::INTR) => {}
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
        let flags = RecvFlags::PEEK | PROMPT_RECV;
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
            Socket::Tcp(stream) => recv(stream, buffer, PROMPT_RECV)?,
            #[cfg(unix)]
            Socket::Unix(stream) => recv(stream, buffer, PROMPT_RECV)?,
        };
        Ok(count)
    }
}

impl Write for &Socket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(match self {
            Socket::Tcp(stream) => send(stream, bytes, PROMPT_SEND)?,
            #[cfg(unix)]
            Socket::Unix(stream) => send(stream, bytes, PROMPT_SEND)?,
        })
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
            Err(Errno::AGAIN) => std::thread::sleep(left(deadline)?.min(Duration::from_millis(1))),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}
