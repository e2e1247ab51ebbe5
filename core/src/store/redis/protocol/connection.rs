//! A pipelined connection as bytes: what is to be sent, and what was received.

use super::resp::ReplyBuffer;

/// The largest capacity that an empty send buffer keeps.
const KEPT_CAPACITY: usize = 1_024 * 1_024;

/// Names a connection, or an attempt to open one, for good.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct ConnectionId {
    /// The index of the pipeline it belongs to.
    pub(crate) pipeline: usize,
    pub(crate) number: u64,
}

/// The bytes to be sent, and those that were received.
pub(crate) struct PipelinedConnection {
    pub(crate) id: ConnectionId,
    pub(crate) replies: ReplyBuffer,
    out: Vec<u8>,
    /// How much of `out` was sent.
    sent: usize,
    /// Bytes of the stream before `out`.
    before: u64,
}

impl PipelinedConnection {
    pub(crate) const fn new(id: ConnectionId) -> Self {
        Self { id, replies: ReplyBuffer::new(), out: Vec::new(), sent: 0, before: 0 }
    }

    /// Where commands are written.
    pub(crate) const fn out(&mut self) -> &mut Vec<u8> {
        &mut self.out
    }

    /// The length of the stream so far.
    pub(crate) const fn end(&self) -> u64 {
        self.before + self.out.len() as u64
    }

    /// How much of the stream was sent.
    pub(crate) const fn sent(&self) -> u64 {
        self.before + self.sent as u64
    }

    pub(crate) fn transmit(&self) -> &[u8] {
        &self.out[self.sent..]
    }

    pub(crate) fn handle_sent(&mut self, count: usize) {
        self.sent += count;
        if self.sent == self.out.len() {
            self.before += self.out.len() as u64;
            self.sent = 0;
            self.out.clear();
            if self.out.capacity() > KEPT_CAPACITY {
                self.out = Vec::new();
            }
        }
    }

    /// Removes what was written from there on, which was not sent.
    pub(crate) fn recall(&mut self, from: u64) {
        self.out.truncate((from - self.before) as usize);
    }
}
