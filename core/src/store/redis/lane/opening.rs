//! How a lane gets its connection: an attempt that is silent is joined by another, and the first that succeeds is used.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::{Lane, Outcome, Why};
use crate::error::ErrorKind;
use crate::store::redis::SURVEYS;
use crate::store::redis::failure::{self, Failure};
use crate::store::redis::link::Link;
use crate::store::redis::wire::Wire;

/// An attempt to connect that is not answered within this time is joined by another …
pub(super) const AGAIN: Duration = Duration::from_millis(250);
/// … and so on: as many as an attempt lasts.
pub(super) const ATTEMPTS: usize = 4;

/// An attempt to connect, since when.
pub(super) struct Opening {
    attempt: JoinHandle<Result<Wire, Failure>>,
    pub(super) began: Instant,
}

impl Lane {
    /// How long an attempt to connect lasts. Short enough for packets that were lost to be sent again soon; not so short
    /// that a slow handshake never succeeds because calls have little time.
    fn attempt(&self) -> Duration {
        self.server.timeout.clamp(Duration::from_millis(250), Duration::from_secs(1))
    }

    pub(super) fn open(&mut self) {
        let (server, deadline) = (Arc::clone(&self.server), std::time::Instant::now() + self.attempt());
        let (attempt, began) = (tokio::task::spawn_blocking(move || Wire::open(&server, deadline)), Instant::now());
        self.openings.push(Opening { attempt, began });
        self.alarm_by(began + AGAIN);
    }

    pub(super) fn poll_opening(&mut self, cx: &mut Context<'_>, outcome: &mut Outcome) -> bool {
        let mut ended = None;
        for (index, opening) in self.openings.iter_mut().enumerate() {
            if let Poll::Ready(opened) = Pin::new(&mut opening.attempt).poll(cx) {
                ended = Some((index, opened));
                break;
            }
        }
        let Some((index, opened)) = ended else { return false };
        self.openings.remove(index);
        let opened = opened.unwrap_or_else(|_| {
            Err(self.server.failure(&io::Error::other("the attempt to connect was given up"), false))
        });
        let reader = self.reader.as_ref();
        let link = opened.and_then(|wire| Link::new(wire, reader).map_err(|error| self.server.failure(&error, false)));
        match link {
            Ok(link) => {
                if self.link.is_some() {
                    // The old one has been silent for long.
                    self.lose(&failure::hung_up(), outcome);
                }
                (self.link, self.doubt) = (Some(link), None);
                self.openings.clear();
                self.turn =
                    self.lines.iter().filter(|(_, line)| !line.waiting.is_empty()).map(|(slot, _)| *slot).collect();
                for line in self.lines.values_mut() {
                    line.queued = !line.waiting.is_empty();
                }
            }
            // What waits has its own time; the next attempt begins at once.
            Err(failure) if failure.error.kind() == ErrorKind::StoreTimeout => {
                if self.link.is_some() && self.openings.is_empty() {
                    self.open();
                }
            }
            Err(_) if self.link.is_some() => self.alarm_by(Instant::now() + SURVEYS),
            Err(failure) => {
                for job in self.take_waiting() {
                    outcome.returned.push(self.returns(job, Why::Failed(failure.clone())));
                }
            }
        }
        true
    }
}
