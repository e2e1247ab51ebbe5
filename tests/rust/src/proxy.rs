//! A bad network between a client and a server: a TCP proxy that delays, drops or cuts the bytes, as a test orders.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How often a connection reads the current condition.
const POLL_INTERVAL: Duration = Duration::from_millis(2);

/// The effect of the network on requests and replies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Condition {
    /// Everything arrives at once.
    Healthy,
    /// Every reply arrives that much later.
    Slow(Duration),
    /// Nothing arrives in either direction, and no connection ends. The bytes arrive when the condition changes, as
    /// they do when packets are sent again.
    Silent,
    /// Requests arrive, but their replies never do.
    DropReplies,
    /// The first half of a reply arrives, then the connection ends.
    CutReplies,
    /// The first half of a reply arrives, then nothing.
    StallReplies,
    /// Replies arrive byte by byte, with this pause before each.
    TrickleReplies(Duration),
    /// New connections end at once, and open ones end too.
    Refuse,
}

/// Passes bytes on as well or badly as a test orders. Dropping it ends its threads and connections.
pub struct Proxy {
    port: u16,
    shared: Arc<Shared>,
    listener: Option<JoinHandle<()>>,
}

struct Shared {
    condition: Mutex<Condition>,
    ended: AtomicBool,
    open: AtomicUsize,
    accepted: AtomicUsize,
}

impl Shared {
    fn condition(&self) -> Condition {
        *self.condition.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_over(&self) -> bool {
        self.ended.load(Ordering::Relaxed)
    }
}

impl Proxy {
    /// A proxy for a server on this machine.
    ///
    /// # Panics
    /// When the machine has no ports or threads left.
    #[must_use]
    pub fn to(server: u16) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
        let port = listener.local_addr().expect("an address").port();
        listener.set_nonblocking(true).expect("a listener that does not block");
        let shared = Arc::new(Shared {
            condition: Mutex::new(Condition::Healthy),
            ended: AtomicBool::new(false),
            open: AtomicUsize::new(0),
            accepted: AtomicUsize::new(0),
        });
        let accepts = Arc::clone(&shared);
        let listener = std::thread::spawn(move || accept(&listener, server, &accepts));
        Self { port, shared, listener: Some(listener) }
    }

    /// The port on which it listens.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Changes the condition, for open and for new connections.
    pub fn set(&self, condition: Condition) {
        *self.shared.condition.lock().unwrap_or_else(PoisonError::into_inner) = condition;
    }

    /// The number of connections that are open through it.
    #[must_use]
    pub fn open(&self) -> usize {
        self.shared.open.load(Ordering::Relaxed)
    }

    /// The number of connections that were ever accepted.
    #[must_use]
    pub fn accepted(&self) -> usize {
        self.shared.accepted.load(Ordering::Relaxed)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.shared.ended.store(true, Ordering::Relaxed);
        if let Some(listener) = self.listener.take() {
            drop(listener.join());
        }
        while self.open() > 0 {
            std::thread::sleep(POLL_INTERVAL);
        }
    }
}

fn accept(listener: &TcpListener, server: u16, shared: &Arc<Shared>) {
    while !shared.is_over() {
        let Ok((client, _)) = listener.accept() else {
            std::thread::sleep(POLL_INTERVAL);
            continue;
        };
        shared.accepted.fetch_add(1, Ordering::Relaxed);
        if shared.condition() == Condition::Refuse {
            continue;
        }
        let Ok(server) = TcpStream::connect(("127.0.0.1", server)) else { continue };
        let shared = Arc::clone(shared);
        shared.open.fetch_add(1, Ordering::Relaxed);
        std::thread::spawn(move || {
            relay(&client, &server, &shared);
            shared.open.fetch_sub(1, Ordering::Relaxed);
        });
    }
}

fn relay(client: &TcpStream, server: &TcpStream, shared: &Arc<Shared>) {
    std::thread::scope(|scope| {
        scope.spawn(|| requests(client, server, shared));
        replies(server, client, shared);
    });
}

/// Ends both directions.
fn end(one: &TcpStream, other: &TcpStream) {
    for stream in [one, other] {
        // It may have ended already.
        let _ = stream.shutdown(Shutdown::Both);
    }
}

/// Reads the bytes that arrive within one interval, if any. `None` if the connection has ended or must end.
fn read(from: &TcpStream, buffer: &mut [u8], shared: &Shared) -> Option<usize> {
    match shared.condition() {
        Condition::Refuse => return None,
        _ if shared.is_over() => return None,
        Condition::Silent => {
            std::thread::sleep(POLL_INTERVAL);
            return Some(0);
        }
        _ => {}
    }
    from.set_read_timeout(Some(POLL_INTERVAL)).ok()?;
    match (&mut &*from).read(buffer) {
        Ok(0) => None,
        Ok(count) => Some(count),
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => Some(0),
        Err(_) => None,
    }
}

/// Waits, unless the condition changes.
fn wait(time: Duration, shared: &Shared) {
    let (until, condition) = (Instant::now() + time, shared.condition());
    while Instant::now() < until && shared.condition() == condition && !shared.is_over() {
        std::thread::sleep(POLL_INTERVAL.min(until - Instant::now().min(until)));
    }
}

fn requests(client: &TcpStream, server: &TcpStream, shared: &Shared) {
    let mut buffer = vec![0; 65_536];
    let _ = client.set_nodelay(true);
    while let Some(count) = read(client, &mut buffer, shared) {
        // Bytes that were read when the network fell silent wait too.
        while shared.condition() == Condition::Silent && !shared.is_over() {
            std::thread::sleep(POLL_INTERVAL);
        }
        if (&mut &*server).write_all(&buffer[..count]).is_err() {
            break;
        }
    }
    end(client, server);
}

fn replies(server: &TcpStream, client: &TcpStream, shared: &Shared) {
    let mut buffer = vec![0; 65_536];
    let _ = server.set_nodelay(true);
    let mut stalled = false;
    let mut late: VecDeque<(Instant, Vec<u8>)> = VecDeque::new();
    while let Some(count) = read(server, &mut buffer, shared) {
        // Once the network is fast again, delayed replies are sent at once, before newer ones.
        let slow = matches!(shared.condition(), Condition::Slow(_));
        while late.front().is_some_and(|(due, _)| !slow || *due <= Instant::now())
            && let Some((_, reply)) = late.pop_front()
        {
            if (&mut &*client).write_all(&reply).is_err() {
                return end(client, server);
            }
        }
        if count == 0 {
            continue;
        }
        while shared.condition() == Condition::Silent && !shared.is_over() {
            std::thread::sleep(POLL_INTERVAL);
        }
        let reply = &buffer[..count];
        let sent = match shared.condition() {
            // A stream with a gap is useless.
            _ if stalled => break,
            Condition::Healthy | Condition::Silent => (&mut &*client).write_all(reply),
            Condition::Slow(time) => {
                late.push_back((Instant::now() + time, reply.to_vec()));
                Ok(())
            }
            Condition::DropReplies => {
                stalled = true;
                while shared.condition() == Condition::DropReplies && !shared.is_over() {
                    // Requests still arrive. Their replies are read and dropped.
                    let _ = server.set_read_timeout(Some(POLL_INTERVAL));
                    if matches!((&mut &*server).read(&mut buffer), Ok(0)) {
                        break;
                    }
                }
                Ok(())
            }
            Condition::CutReplies => {
                let _ = (&mut &*client).write_all(&reply[..count / 2]);
                break;
            }
            Condition::StallReplies => {
                stalled = true;
                let sent = (&mut &*client).write_all(&reply[..count / 2]);
                while shared.condition() == Condition::StallReplies && !shared.is_over() {
                    std::thread::sleep(POLL_INTERVAL);
                }
                sent
            }
            Condition::TrickleReplies(pause) => reply.iter().try_for_each(|byte| {
                if matches!(shared.condition(), Condition::TrickleReplies(_)) {
                    wait(pause, shared);
                }
                (&mut &*client).write_all(&[*byte])
            }),
            Condition::Refuse => break,
        };
        if sent.is_err() {
            break;
        }
    }
    end(client, server);
}
