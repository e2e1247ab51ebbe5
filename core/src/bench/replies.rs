//! The reader of replies in isolation.

use redis::Value;

use crate::store::redis::ReplyBuffer;

/// Bytes of a connection, from which replies are read.
pub struct BenchReplies(ReplyBuffer);

impl Default for BenchReplies {
    fn default() -> Self {
        Self(ReplyBuffer::new())
    }
}

impl BenchReplies {
    /// Receives bytes, as from a socket.
    pub fn receive(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let space = self.0.space();
            let part = bytes.len().min(space.len());
            space[..part].copy_from_slice(&bytes[..part]);
            self.0.received(part);
            bytes = &bytes[part..];
        }
    }

    /// The next reply, of at most `max` bytes, if it has arrived completely.
    ///
    /// # Errors
    /// The reason why the bytes are no reply.
    pub fn next(&mut self, max: usize) -> Result<Option<Value>, &'static str> {
        self.0.next(max).map_err(|malformed| malformed.0)
    }

    /// The bytes that it has allocated.
    #[must_use]
    pub fn allocated(&self) -> usize {
        self.0.allocated()
    }
}
