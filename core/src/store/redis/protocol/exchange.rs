//! A fixed number of commands and their replies, on a connection that carries nothing else meanwhile: a handshake, a
//! question about the topology, or a blocking call.

use std::io;

use redis::Value;
use smallvec::SmallVec;

use super::failure;
use super::resp::ReplyBuffer;

/// Commands that are sent together, and their replies.
pub(crate) struct Exchange<'a> {
    commands: &'a [u8],
    sent: usize,
    expected: usize,
    /// The most bytes of a reply.
    max_reply: usize,
    replies: SmallVec<[Value; 1]>,
}

impl<'a> Exchange<'a> {
    /// `expected` is the number of commands in `commands`.
    pub(crate) fn new(commands: &'a [u8], expected: usize, max_reply: usize) -> Self {
        Self { commands, sent: 0, expected, max_reply, replies: SmallVec::new() }
    }

    /// The bytes that are still to be sent.
    pub(crate) fn transmit(&self) -> &'a [u8] {
        &self.commands[self.sent..]
    }

    pub(crate) const fn handle_sent(&mut self, count: usize) {
        self.sent += count;
    }

    /// True if the last byte was sent. A server does not run a command before its last byte.
    pub(crate) const fn is_sent(&self) -> bool {
        self.sent == self.commands.len()
    }

    /// Takes received replies. Returns true once all are there.
    ///
    /// # Errors
    /// `InvalidData` for bytes that are not RESP, and for a reply that is too long.
    pub(crate) fn handle_received(&mut self, buffer: &mut ReplyBuffer) -> io::Result<bool> {
        while self.replies.len() < self.expected {
            match buffer.next(self.max_reply).map_err(|malformed| failure::malformed(malformed.0))? {
                Some(reply) => self.replies.push(reply),
                None => return Ok(false),
            }
        }
        Ok(true)
    }

    pub(crate) fn into_replies(self) -> SmallVec<[Value; 1]> {
        self.replies
    }
}
