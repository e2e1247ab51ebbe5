//! A faulty proxy: it repeats, drops, swaps or cuts some replies, or repeats some of their bytes. Or it replaces each
//! reply of a connection except the first by one without end.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::random::Random;
use crate::relay_listener::RelayListener;

/// The length of a reply without end.
const FLOOD: usize = 500_000_000;

/// Passes replies on with faults.
pub struct FaultyProxy {
    faults: Arc<AtomicU64>,
    listener: RelayListener,
}

impl FaultyProxy {
    /// A proxy for a server on this machine. It corrupts one reply in `one_in`.
    ///
    /// # Panics
    /// When the machine has no ports left.
    #[must_use]
    pub fn to(server: u16, seed: u64, one_in: u64) -> Self {
        Self::start(server, seed, Fault::Corrupts { one_in })
    }

    /// A proxy that replaces replies by `begin` and half a gigabyte of numbers.
    ///
    /// # Panics
    /// When the machine has no ports left.
    #[must_use]
    pub fn that_floods(server: u16, begin: &'static str) -> Self {
        Self::start(server, 0, Fault::Floods { begin })
    }

    fn start(server: u16, seed: u64, fault: Fault) -> Self {
        let faults = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&faults);
        let listener = RelayListener::start(server, move |number, client, server| {
            let (random, counted) = (Random::new(seed ^ number << 32), Arc::clone(&counted));
            relay(client, server, Corruption { random, fault, held: None, passed: 0, counted });
        });
        Self { faults, listener }
    }

    /// The port on which it listens.
    #[must_use]
    pub const fn port(&self) -> u16 {
        self.listener.port()
    }

    /// How many replies it corrupted.
    #[must_use]
    pub fn faults(&self) -> u64 {
        self.faults.load(Ordering::Relaxed)
    }
}

#[derive(Clone, Copy)]
enum Fault {
    /// One reply in `one_in`.
    Corrupts {
        one_in: u64,
    },
    Floods {
        begin: &'static str,
    },
}

struct Corruption {
    random: Random,
    fault: Fault,
    passed: u64,
    /// A reply that the next one overtakes.
    held: Option<Vec<u8>>,
    counted: Arc<AtomicU64>,
}

impl Corruption {
    /// The bytes that pass instead of a reply, and true if the connection goes on.
    fn pass(&mut self, reply: &[u8]) -> (Vec<u8>, bool) {
        let mut ends = false;
        let mut passed = reply.to_vec();
        self.passed += 1;
        let one_in = match self.fault {
            Fault::Corrupts { one_in } => one_in,
            Fault::Floods { .. } if self.passed == 1 => return (passed, true),
            Fault::Floods { begin } => {
                self.counted.fetch_add(1, Ordering::Relaxed);
                return (begin.as_bytes().to_vec(), false);
            }
        };
        if self.random.one_in(one_in) {
            self.counted.fetch_add(1, Ordering::Relaxed);
            let from = self.random.below(reply.len() as u64) as usize;
            let to = from + 1 + self.random.below((reply.len() - from) as u64) as usize;
            match self.random.below(6) {
                0 => passed = reply.repeat(2),
                1 => passed.clear(),
                2 if self.held.is_none() => {
                    self.held = Some(passed);
                    return (Vec::new(), true);
                }
                3 => passed = [&reply[..to], &reply[from..]].concat(),
                4 => passed = [&reply[..from], &reply[to..]].concat(),
                _ => (passed, ends) = (reply[..from].to_vec(), true),
            }
        }
        if let Some(held) = self.held.take() {
            passed.extend_from_slice(&held);
        }
        (passed, !ends)
    }
}

fn relay(client: &TcpStream, server: &TcpStream, mut corruption: Corruption) {
    std::thread::scope(|scope| {
        scope.spawn(|| {
            drop(std::io::copy(&mut &*client, &mut &*server));
            drop(server.shutdown(Shutdown::Both));
        });
        let (mut buffer, mut read) = (Vec::new(), vec![0; 65_536]);
        let mut goes_on = true;
        while goes_on && let Ok(count @ 1..) = (&mut &*server).read(&mut read) {
            buffer.extend_from_slice(&read[..count]);
            let (mut out, mut at) = (Vec::new(), 0);
            while goes_on && let Some(length) = reply_length(&buffer[at..]) {
                let (passed, more) = corruption.pass(&buffer[at..at + length]);
                out.extend_from_slice(&passed);
                (at, goes_on) = (at + length, more);
            }
            buffer.drain(..at);
            goes_on &= (&mut &*client).write_all(&out).is_ok();
        }
        if matches!(corruption.fault, Fault::Floods { .. }) {
            let numbers = b":1\r\n".repeat(16_384);
            let mut left = FLOOD / numbers.len();
            while left > 0 && (&mut &*client).write_all(&numbers).is_ok() {
                left -= 1;
            }
        }
        drop(client.shutdown(Shutdown::Both));
        drop(server.shutdown(Shutdown::Both));
    });
}

/// The length of the reply at the front, if all of it is there.
fn reply_length(bytes: &[u8]) -> Option<usize> {
    let line = bytes.windows(2).position(|pair| pair == b"\r\n")?;
    let number = || std::str::from_utf8(&bytes[1..line]).ok()?.parse::<i64>().ok();
    let mut at = line + 2;
    match bytes[0] {
        b'$' => at += usize::try_from(number()?).map_or(0, |length| length + 2),
        b'*' => {
            for _ in 0..number()? {
                at += reply_length(bytes.get(at..)?)?;
            }
        }
        _ => {}
    }
    (at <= bytes.len()).then_some(at)
}
