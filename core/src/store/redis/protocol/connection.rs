//! A pipelined connection without its socket: the bytes to send, the commands in flight, and the received bytes.

use std::collections::VecDeque;
use std::io;

use redis::Value;

use super::effects::ConnectionId;
use super::failure;
use super::in_flight::{Command, InFlight, ScriptCall};
use super::in_step::{MAX_SHORT_REPLY, write_question};
use super::pending_call::Callers;
use super::resp::ReplyBuffer;

/// The largest capacity that an empty send buffer keeps.
const KEPT_CAPACITY: usize = 1_024 * 1_024;

/// The bytes to send and the commands in flight.
pub(crate) struct PipelinedConnection<C: Callers> {
    pub(crate) id: ConnectionId,
    pub(crate) replies: ReplyBuffer,
    pub(crate) in_flight: VecDeque<InFlight<C>>,
    out: Vec<u8>,
    /// How much of `out` was sent.
    sent: usize,
    /// Bytes of the stream before `out`.
    before: u64,
}

impl<C: Callers> PipelinedConnection<C> {
    pub(crate) const fn new(id: ConnectionId) -> Self {
        Self { id, replies: ReplyBuffer::new(), in_flight: VecDeque::new(), out: Vec::new(), sent: 0, before: 0 }
    }

    /// The length of the stream so far.
    const fn end(&self) -> u64 {
        self.before + self.out.len() as u64
    }

    /// Adds a command. Its bytes go from `begin` to the end of the stream.
    fn add(&mut self, begin: u64, command: Command<C>) {
        let (end, max_reply) = (self.end(), command.max_reply());
        self.in_flight.push_back(InFlight { command, begin, end, max_reply });
    }

    /// Writes a script call.
    pub(crate) fn send(&mut self, call: ScriptCall<C>) {
        let begin = self.end();
        call.script.write(call.asking, call.in_full, &mut self.out);
        if call.asking {
            self.add(begin, Command::Asking);
        }
        self.add(begin, Command::Script(call));
    }

    fn write_question(&mut self, number: u32, command: Command<C>) {
        let begin = self.end();
        write_question(number, &mut self.out);
        self.add(begin, command);
    }

    /// Asks if the connection is in step, because the error for this call decides if the call is sent again.
    pub(crate) fn send_question(&mut self, call: ScriptCall<C>) {
        self.write_question(call.script.number(), Command::Script(call));
    }

    /// Takes back the calls that were not sent yet, and sends a PING instead. A reply to it shows that the server is
    /// there again. Returns the last call first.
    pub(crate) fn send_probe(&mut self) -> Vec<ScriptCall<C>> {
        let sent = self.sent();
        let at = self.in_flight.iter().position(|command| command.begin >= sent).unwrap_or(self.in_flight.len());
        let recalled = self.in_flight.split_off(at);
        if let Some(first) = recalled.front() {
            self.out.truncate((first.begin - self.before) as usize);
        }
        let number = self.end() as u32;
        self.write_question(number, Command::Probe(number));
        let mut unsent = Vec::new();
        for sent in recalled.into_iter().rev() {
            match sent.command {
                Command::Script(call) if call.doubtful.is_some() && call.is_awaited() => self.send_question(call),
                Command::Script(call) => unsent.push(call),
                Command::Asking | Command::Probe(_) => {}
            }
        }
        unsent
    }

    /// True if a script call is in flight that no caller waits for any more.
    pub(crate) fn has_given_up(&self) -> bool {
        self.in_flight.iter().any(|sent| matches!(&sent.command, Command::Script(call) if !call.is_awaited()))
    }

    /// The next reply that was received, and the command that it answers.
    ///
    /// # Errors
    /// `InvalidData` for bytes that are not RESP, for a reply that is too long, and for one that answers another command.
    pub(crate) fn next_reply(&mut self) -> io::Result<Option<(Command<C>, Value)>> {
        let max_reply = self.in_flight.front().map_or(MAX_SHORT_REPLY, |sent| sent.max_reply);
        let reply = self.replies.next(max_reply).map_err(|malformed| failure::malformed(malformed.0))?;
        let Some(reply) = reply else { return Ok(None) };
        if !self.in_flight.front().is_some_and(|sent| sent.command.is_answered_by(&reply)) {
            return Err(failure::out_of_step());
        }
        Ok(self.in_flight.pop_front().map(|sent| (sent.command, reply)))
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
}
