//! A proxy that changes the script on its way to the server, so that a test can show that it finds a wrong script.
//!
//! It reads commands, and leaves replies as they are. An EVALSHA becomes an EVAL of the changed text once the text is known;
//! a client sends it when the server says that it does not know the script.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

/// A text of the script, and what replaces it.
pub type Mutation = (&'static str, &'static str);

struct Shared {
    mutation: Mutation,
    script: Mutex<Option<Vec<u8>>>,
    mutated: AtomicU64,
    ended: AtomicBool,
}

/// See the module.
pub struct MutatingProxy {
    port: u16,
    shared: Arc<Shared>,
    listener: Option<JoinHandle<()>>,
}

impl MutatingProxy {
    /// A proxy for a server on this machine.
    ///
    /// # Panics
    /// When the machine has no ports left.
    #[must_use]
    pub fn to(server: u16, mutation: Mutation) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let shared = Arc::new(Shared {
            mutation,
            script: Mutex::new(None),
            mutated: AtomicU64::new(0),
            ended: AtomicBool::new(false),
        });
        let accepts = Arc::clone(&shared);
        let listener = std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                if accepts.ended.load(Ordering::Relaxed) {
                    return;
                }
                let Ok(server) = TcpStream::connect(("127.0.0.1", server)) else { continue };
                let shared = Arc::clone(&accepts);
                std::thread::spawn(move || relay(&client, &server, &shared));
            }
        });
        Self { port, shared, listener: Some(listener) }
    }

    /// Where it listens.
    #[must_use]
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// How many calls ran the changed script.
    #[must_use]
    pub fn mutated(&self) -> u64 {
        self.shared.mutated.load(Ordering::Relaxed)
    }
}

impl Drop for MutatingProxy {
    fn drop(&mut self) {
        self.shared.ended.store(true, Ordering::Relaxed);
        // The listener looks at the flag when a connection comes.
        drop(TcpStream::connect(("127.0.0.1", self.port)));
        if let Some(listener) = self.listener.take() {
            drop(listener.join());
        }
    }
}

fn relay(client: &TcpStream, server: &TcpStream, shared: &Shared) {
    drop(client.set_nodelay(true));
    drop(server.set_nodelay(true));
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
        let (from, to) = shared.mutation;
        let text = String::from_utf8_lossy(&words[1]);
        if text.matches(from).count() == 1 {
            *script = Some(text.replace(from, to).into_bytes());
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
