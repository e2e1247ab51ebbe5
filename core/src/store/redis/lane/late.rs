//! What a lane does about answers that are late.

use std::io;

use tokio::time::Instant;

use super::opening::{AGAIN, ATTEMPTS};
use super::{Lane, Outcome, Why};
use crate::store::redis::flight::{Cargo, Flight};

impl Lane {
    /// Gives up what is late, and sets the next alarm.
    pub(in crate::store::redis) fn expire(&mut self, now: Instant, outcome: &mut Outcome) {
        if self.alarm.is_none_or(|alarm| alarm > now) {
            return;
        }
        let mut late = Vec::new();
        let mut next: Option<Instant> = None;
        let mut look = |at: Instant| next = Some(next.map_or(at, |next: Instant| next.min(at)));
        let lines = self.lines.values_mut().map(|line| &mut line.waiting).chain(std::iter::once(&mut self.asked));
        for waiting in lines {
            // Those that were sent elsewhere stand before older ones, so that all are looked at.
            if waiting.iter().any(|job| job.ride.until <= now) {
                for job in std::mem::take(waiting) {
                    if job.ride.until <= now { late.push(job) } else { waiting.push_back(job) }
                }
            }
            waiting.iter().for_each(|job| look(job.ride.until));
        }
        self.waiting -= late.len();
        for (slot, line) in &mut self.lines {
            match line.patience_ends(self.server.timeout) {
                Some(end) if !line.queued && end <= now => {
                    line.queued = true;
                    self.turn.push_back(*slot);
                }
                Some(end) if !line.queued => look(end),
                _ => {}
            }
        }
        let mut silent = false;
        for flight in &mut self.flights {
            let Cargo::Call(call) = &mut flight.cargo else { continue };
            silent |= call.expire(now, &mut look, &mut late);
        }
        let failure = self.server.failure(&io::ErrorKind::TimedOut.into(), false);
        outcome.troubled |= !late.is_empty();
        for job in late {
            if job.ride.deadline <= now {
                outcome.homes.add(job.fail(&failure.error));
            } else {
                outcome.returned.push(self.returns(job, Why::Failed(failure.clone())));
            }
        }
        if silent && self.doubt.is_none() {
            self.doubt = Some(now);
            self.probe();
        }
        if let Some(since) = self.doubt {
            let wait = since + AGAIN;
            if now < wait {
                look(wait);
            } else if self.openings.is_empty() {
                // Packets that were lost on the way are sent again later and later; a new connection is faster.
                self.open();
            }
        }
        if let Some(newest) = self.openings.last()
            && self.openings.len() < ATTEMPTS
            && (self.waiting > 0 || self.doubt.is_some())
        {
            // The same holds for an attempt; the older one goes on, since the server may be far away.
            let again = newest.began + AGAIN;
            if now < again {
                look(again);
            } else {
                self.open();
                look(now + AGAIN);
            }
        }
        self.alarm = next;
    }

    /// Takes back what has not left, and asks for a sign of life instead.
    fn probe(&mut self) {
        let Some(link) = &mut self.link else { return };
        let left = link.left();
        let at = self.flights.iter().position(|flight| flight.from >= left).unwrap_or(self.flights.len());
        let recalled = self.flights.split_off(at);
        if let Some(first) = recalled.front() {
            link.take_back(first.from);
        }
        let from = link.end();
        redis::cmd("PING").write_packed_command(link.out());
        self.flights.push_back(Flight { cargo: Cargo::Probe, from, end: link.end() });
        for flight in recalled.into_iter().rev() {
            if let Cargo::Call(call) = flight.cargo {
                self.landed(call.slot, call.passengers.len());
                self.board_again(call);
            }
        }
    }
}
