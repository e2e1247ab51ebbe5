//! A proxy that changes the script on its way to the server, so that a test can show that it finds a wrong script.
//!
//! It reads commands and leaves replies as they are. An EVALSHA becomes an EVAL of the changed text once the text is
//! known: a client sends the text when the server answers that it does not know the script.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::relay_listener::RelayListener;

/// Texts of the script, each with the text that replaces it everywhere.
pub type Mutation = &'static [(&'static str, &'static str)];

struct Shared {
    mutation: Mutation,
    script: Mutex<Option<Vec<u8>>>,
    mutated: AtomicU64,
}

/// Passes commands on with a changed script.
pub struct MutatingProxy {
    shared: Arc<Shared>,
    listener: RelayListener,
}

impl MutatingProxy {
    /// A proxy for a server on this machine.
    ///
    /// # Panics
    /// When the machine has no ports left.
    #[must_use]
    pub fn to(server: u16, mutation: Mutation) -> Self {
        let shared = Arc::new(Shared { mutation, script: Mutex::new(None), mutated: AtomicU64::new(0) });
        let changes = Arc::clone(&shared);
        let listener = RelayListener::start(server, move |_, client, server| relay(client, server, &changes));
        Self { shared, listener }
    }

    /// The port on which it listens.
    #[must_use]
    pub const fn port(&self) -> u16 {
        self.listener.port()
    }

    /// How many calls ran the changed script.
    #[must_use]
    pub fn mutated(&self) -> u64 {
        self.shared.mutated.load(Ordering::Relaxed)
    }
}

fn relay(client: &TcpStream, server: &TcpStream, shared: &Shared) {
    std::thread::scope(|scope| {
        scope.spawn(|| {
            drop(std::io::copy(&mut &*server, &mut &*client));
            drop(client.shutdown(Shutdown::Both));
        });
        let (mut buffer, mut read) = (Vec::new(), vec![0; 65_536]);
        while let Ok(count @ 1..) = (&mut &*client).read(&mut read) {
            buffer.extend_from_slice(&read[..count]);
            let mut at = 0;
            let mut out = Vec::new();
            while let Some((words, length)) = command(&buffer[at..]) {
                at += length;
                write_command(&mut out, &changed(words, shared));
            }
            buffer.drain(..at);
            if (&mut &*server).write_all(&out).is_err() {
                break;
            }
        }
        drop(server.shutdown(Shutdown::Both));
    });
}

fn changed(mut words: Vec<Vec<u8>>, shared: &Shared) -> Vec<Vec<u8>> {
    let mut script = shared.script.lock().unwrap_or_else(PoisonError::into_inner);
    if words[0] == b"EVAL" && script.is_none() {
        let text = String::from_utf8_lossy(&words[1]);
        if shared.mutation.iter().all(|(from, _)| text.contains(from)) {
            let changed = shared.mutation.iter().fold(text.into_owned(), |text, (from, to)| text.replace(from, to));
            *script = Some(changed.into_bytes());
        }
    }
    if let (b"EVAL" | b"EVALSHA", Some(script)) = (words[0].as_slice(), script.as_ref()) {
        (words[0], words[1]) = (b"EVAL".to_vec(), script.clone());
        shared.mutated.fetch_add(1, Ordering::Relaxed);
    }
    words
}

/// The words of the command at the front, and how many bytes it has.
fn command(bytes: &[u8]) -> Option<(Vec<Vec<u8>>, usize)> {
    let (count, mut at) = number(bytes, b'*')?;
    let mut words = Vec::with_capacity(count);
    for _ in 0..count {
        let (length, head) = number(&bytes[at..], b'$')?;
        let word = bytes.get(at + head..at + head + length + 2)?;
        words.push(word[..length].to_vec());
        at += head + length + 2;
    }
    Some((words, at))
}

/// The number of a line that begins with a mark, and the bytes of the line.
fn number(bytes: &[u8], mark: u8) -> Option<(usize, usize)> {
    let end = bytes.windows(2).position(|pair| pair == b"\r\n")?;
    let (first, digits) = bytes[..end].split_first()?;
    assert_eq!(*first, mark, "clients send arrays of texts");
    let number = std::str::from_utf8(digits).ok()?.parse().ok()?;
    Some((number, end + 2))
}

fn write_command(out: &mut Vec<u8>, words: &[Vec<u8>]) {
    out.extend_from_slice(format!("*{}\r\n", words.len()).as_bytes());
    for word in words {
        out.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        out.extend_from_slice(word);
        out.extend_from_slice(b"\r\n");
    }
}
