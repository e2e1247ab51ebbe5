//! A bad network between a client and a server: a TCP proxy that delays, drops, cuts or swallows what passes, on order.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How often a connection looks whether the weather has changed.
const GLANCE: Duration = Duration::from_millis(2);

/// What happens to what passes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Weather {
    /// Everything arrives at once.
    Clear,
    /// Every reply arrives that much later.
    Slow(Duration),
    /// Nothing arrives, in neither direction and without a word; what was sent arrives when the weather clears, as it
    /// does when packets are sent again.
    Silent,
    /// Requests arrive, their replies never do.
    Swallow,
    /// The first half of a reply arrives, and then the connection ends.
    Cut,
    /// The first half of a reply arrives, and then nothing more.
    Stall,
    /// Replies arrive byte by byte, one every so often.
    Trickle(Duration),
    /// Connections end as soon as they begin, and those that are open end too.
    Refuse,
}

/// See the module. Dropping it ends its threads and connections.
pub struct Proxy {
    port: u16,
    shared: Arc<Shared>,
    listener: Option<JoinHandle<()>>,
}

struct Shared {
    weather: Mutex<Weather>,
    ended: AtomicBool,
    open: AtomicUsize,
    accepted: AtomicUsize,
}

impl Shared {
    fn weather(&self) -> Weather {
        *self.weather.lock().unwrap_or_else(PoisonError::into_inner)
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
    pub fn before(server: u16) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
        let port = listener.local_addr().expect("an address").port();
        listener.set_nonblocking(true).expect("a listener that does not block");
        let shared = Arc::new(Shared {
            weather: Mutex::new(Weather::Clear),
            ended: AtomicBool::new(false),
            open: AtomicUsize::new(0),
            accepted: AtomicUsize::new(0),
        });
        let accepts = Arc::clone(&shared);
        let listener = std::thread::spawn(move || accept(&listener, server, &accepts));
        Self { port, shared, listener: Some(listener) }
    }

    /// Where it listens.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// From now on it is like that, for connections that are open and for new ones.
    pub fn set(&self, weather: Weather) {
        *self.shared.weather.lock().unwrap_or_else(PoisonError::into_inner) = weather;
    }

    /// Connections that are open through it.
    #[must_use]
    pub fn open(&self) -> usize {
        self.shared.open.load(Ordering::Relaxed)
    }

    /// Connections that were ever made through it.
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
            std::thread::sleep(GLANCE);
        }
    }
}

fn accept(listener: &TcpListener, server: u16, shared: &Arc<Shared>) {
    while !shared.is_over() {
        let Ok((client, _)) = listener.accept() else {
            std::thread::sleep(GLANCE);
            continue;
        };
        shared.accepted.fetch_add(1, Ordering::Relaxed);
        if shared.weather() == Weather::Refuse {
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

/// Reads what comes within a glance, nothing perhaps; `None` when the connection has ended or is to end.
fn read(from: &TcpStream, buffer: &mut [u8], shared: &Shared) -> Option<usize> {
    match shared.weather() {
        Weather::Refuse => return None,
        _ if shared.is_over() => return None,
        Weather::Silent => {
            std::thread::sleep(GLANCE);
            return Some(0);
        }
        _ => {}
    }
    from.set_read_timeout(Some(GLANCE)).ok()?;
    match (&mut &*from).read(buffer) {
        Ok(0) => None,
        Ok(count) => Some(count),
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => Some(0),
        Err(_) => None,
    }
}

/// Waits, unless the weather changes.
fn wait(time: Duration, shared: &Shared) {
    let (until, weather) = (Instant::now() + time, shared.weather());
    while Instant::now() < until && shared.weather() == weather && !shared.is_over() {
        std::thread::sleep(GLANCE.min(until - Instant::now().min(until)));
    }
}

fn requests(client: &TcpStream, server: &TcpStream, shared: &Shared) {
    let mut buffer = vec![0; 65_536];
    let _ = client.set_nodelay(true);
    while let Some(count) = read(client, &mut buffer, shared) {
        // What was read while silence fell waits too.
        while shared.weather() == Weather::Silent && !shared.is_over() {
            std::thread::sleep(GLANCE);
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
        // When the weather clears everything late comes at once: nothing overtakes it.
        let slow = matches!(shared.weather(), Weather::Slow(_));
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
        while shared.weather() == Weather::Silent && !shared.is_over() {
            std::thread::sleep(GLANCE);
        }
        let reply = &buffer[..count];
        let sent = match shared.weather() {
            // A stream with a hole in it is of no use to anybody.
            _ if stalled => break,
            Weather::Clear | Weather::Silent => (&mut &*client).write_all(reply),
            Weather::Slow(time) => {
                late.push_back((Instant::now() + time, reply.to_vec()));
                Ok(())
            }
            Weather::Swallow => {
                stalled = true;
                while shared.weather() == Weather::Swallow && !shared.is_over() {
                    // Requests go on arriving; their replies are read and thrown away.
                    let _ = server.set_read_timeout(Some(GLANCE));
                    if matches!((&mut &*server).read(&mut buffer), Ok(0)) {
                        break;
                    }
                }
                Ok(())
            }
            Weather::Cut => {
                let _ = (&mut &*client).write_all(&reply[..count / 2]);
                break;
            }
            Weather::Stall => {
                stalled = true;
                let sent = (&mut &*client).write_all(&reply[..count / 2]);
                while shared.weather() == Weather::Stall && !shared.is_over() {
                    std::thread::sleep(GLANCE);
                }
                sent
            }
            Weather::Trickle(pause) => reply.iter().try_for_each(|byte| {
                if matches!(shared.weather(), Weather::Trickle(_)) {
                    wait(pause, shared);
                }
                (&mut &*client).write_all(&[*byte])
            }),
            Weather::Refuse => break,
        };
        if sent.is_err() {
            break;
        }
    }
    end(client, server);
}
