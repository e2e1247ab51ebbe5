//! A proxy at fault: it repeats, drops and swaps replies, and loses or repeats bytes of them.

use crate::random::Random;

/// Replies of a connection that are kept to be sent again.
const KEPT: usize = 4;

/// The state of a proxy for one connection.
#[derive(Default)]
pub(super) struct Proxy {
    /// A reply that the next one overtakes.
    held: Option<Vec<u8>>,
    sent: Vec<Vec<u8>>,
    faults: u32,
}

impl Proxy {
    /// Passes a reply on, and returns the bytes that the host receives.
    pub(super) fn pass(&mut self, reply: Vec<u8>, is_faulty: bool, random: &mut Random) -> Vec<u8> {
        let held = self.held.take();
        let passed = if is_faulty && random.chance(200) { self.corrupt(reply, random) } else { self.keep(reply) };
        match held {
            Some(held) => [passed, held].concat(),
            None => passed,
        }
    }

    /// True if its faults can cancel out. If a reply was lost and an old error came in its place, no client can see
    /// that the error is old.
    pub(super) const fn is_beyond_notice(&self) -> bool {
        self.faults > 1
    }

    fn keep(&mut self, reply: Vec<u8>) -> Vec<u8> {
        if self.sent.len() == KEPT {
            self.sent.remove(0);
        }
        self.sent.push(reply.clone());
        reply
    }

    fn corrupt(&mut self, reply: Vec<u8>, random: &mut Random) -> Vec<u8> {
        self.faults += 1;
        let from = random.below(reply.len() as u64) as usize;
        let to = random.between(from as u64, reply.len() as u64) as usize;
        match random.below(6) {
            0 => reply.repeat(2),
            1 => Vec::new(),
            2 => {
                self.held = Some(reply);
                Vec::new()
            }
            3 => [&reply[..to], &reply[from..]].concat(),
            4 => [&reply[..from], &reply[to..]].concat(),
            _ => {
                let older = random.below(self.sent.len().max(1) as u64) as usize;
                let older = self.sent.get(older).cloned().unwrap_or_default();
                [older, self.keep(reply)].concat()
            }
        }
    }
}
