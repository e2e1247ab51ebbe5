//! What is on its way to a server.

use tokio::time::Instant;

use super::job::{Job, Ride, Waiter};
use super::script::Batch;

/// What was sent; replies come in the same order.
pub(super) struct Flight {
    pub(super) cargo: Cargo,
    /// Where it ends in the stream of bytes.
    pub(super) from: u64,
    pub(super) end: u64,
}

pub(super) enum Cargo {
    Call(Call),
    /// A question to whose answer nobody listens: that there is one is what counts.
    Asking,
    Probe,
}

pub(super) struct Call {
    pub(super) batch: Batch,
    pub(super) passengers: Vec<Passenger>,
    pub(super) slot: u16,
    pub(super) in_full: bool,
    pub(super) asking: bool,
}

pub(super) struct Passenger {
    pub(super) ride: Ride,
    pub(super) requests: usize,
    /// Gone when its time was over.
    pub(super) waiter: Option<Waiter>,
}

impl Call {
    /// Those who still wait, as the jobs they were.
    pub(super) fn into_jobs(self) -> impl DoubleEndedIterator<Item = Job> {
        let (now, grouping, slot) = (self.batch.now(), self.batch.grouping(), self.slot);
        let mut requests = self.batch.into_requests().into_iter();
        let jobs: Vec<Job> = self
            .passengers
            .into_iter()
            .filter_map(|Passenger { ride, requests: count, waiter }| {
                let requests = requests.by_ref().take(count).collect();
                waiter.map(|waiter| Job { requests, grouping, now, slot, ride, waiter })
            })
            .collect();
        jobs.into_iter()
    }

    /// Gives up those whose time is over; says whether there were any. What else may be asked meanwhile goes to `late`.
    pub(super) fn expire(&mut self, now: Instant, look: &mut impl FnMut(Instant), late: &mut Vec<Job>) -> bool {
        let (mut first, mut silent) = (0, false);
        for passenger in &mut self.passengers {
            let its = first..first + passenger.requests;
            first = its.end;
            if passenger.waiter.is_some() && passenger.ride.until > now {
                look(passenger.ride.until);
            } else if let Some(waiter) = passenger.waiter.take() {
                silent = true;
                let requests = self.batch.requests()[its].iter().cloned().collect();
                let (now, grouping) = (self.batch.now(), self.batch.grouping());
                late.push(Job { requests, grouping, now, slot: self.slot, ride: passenger.ride, waiter });
            }
        }
        silent
    }

    pub(super) fn is_awaited(&self) -> bool {
        self.passengers.iter().any(|passenger| passenger.waiter.is_some())
    }
}

impl Passenger {
    pub(super) const fn of(ride: &Ride, requests: usize, waiter: Waiter) -> Self {
        Self { ride: *ride, requests, waiter: Some(waiter) }
    }
}
