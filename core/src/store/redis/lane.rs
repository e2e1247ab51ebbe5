//! One server of the engine: what waits for it, what is in flight to it, and its connection.
//!
//! What waits at the same moment for the same slot travels as one script call. A call that is alone is sent at once; while
//! calls are in flight newcomers gather, and go when there are enough of them or when nothing is in flight any more.
//! Sending before the answer is back keeps the server busy while the callers work.

mod late;
mod opening;

use std::collections::{HashMap, VecDeque};
use std::io;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use redis::Value;
use tokio::time::Instant;

use self::opening::Opening;
use super::failure::{self, Failure};
use super::flight::{Call, Cargo, Flight, Passenger};
use super::job::Job;
use super::link::Link;
use super::lookout::Reader;
use super::script::Batch;
use super::verdict::Verdict;
use super::wire::Server;
use crate::error::Error;
use crate::store::completion::WakeSet;
use crate::store::url::Address;

/// Calls of one slot in flight at once when they fold …
const FLIGHTS: usize = 4;
/// … and all calls, as when each travels alone.
const LONE_FLIGHTS: usize = 1_024;
/// While something is in flight, so many are worth a call of their own: a quarter of those who are under way, within
/// these bounds.
const WORTH: std::ops::RangeInclusive<usize> = 8..=32;
/// Nobody waits longer than that for company: over a slow link calls follow each other, however few they are.
pub(super) const PATIENCE: Duration = Duration::from_millis(12);
/// Slots that are remembered although nothing waits there.
const LINES: usize = 1_024;

/// What came of polling lanes: jobs that came back without an answer, and whom to wake.
#[derive(Default)]
pub(super) struct Outcome {
    pub(super) returned: Vec<Returned>,
    /// Whether a server was silent.
    pub(super) troubled: bool,
    pub(super) homes: WakeSet,
}

/// A job that came back.
pub(super) struct Returned {
    pub(super) job: Job,
    pub(super) why: Why,
    /// Who sent it back.
    pub(super) from: Address,
}

/// Why; only in the first case may it have run.
#[derive(Clone)]
pub(super) enum Why {
    Failed(Failure),
    Moved(u16, Address),
    Ask(Address),
    Split(Error),
    Astray(Error),
}

/// See the module.
pub(super) struct Lane {
    server: Arc<Server>,
    pub(super) replica: bool,
    /// Whether there are other servers.
    others: bool,
    prefix: Arc<str>,
    fold: usize,
    lines: HashMap<u16, Line, foldhash::fast::RandomState>,
    /// The lines in which somebody may depart.
    turn: VecDeque<u16>,
    /// Jobs that were sent here by a node that hands their keys over.
    asked: VecDeque<Job>,
    waiting: usize,
    flights: VecDeque<Flight>,
    link: Option<Link>,
    /// What an event loop watches that reads itself.
    reader: Reader,
    /// Attempts to connect, the newest last.
    openings: Vec<Opening>,
    /// Since when it has been silent. Until it answers it gets no calls: it would run them when their callers have left.
    doubt: Option<Instant>,
    /// Not later than the next thing that is to be done without anything having come.
    alarm: Option<Instant>,
}

#[derive(Default)]
struct Line {
    waiting: VecDeque<Job>,
    flights: usize,
    /// Who is under way in them.
    aboard: usize,
    queued: bool,
}

impl Line {
    /// Whether those who wait are worth another flight. OneOrMany callers go in few small calls, so that they and the server
    /// need not take turns; many go in large ones, which cost less.
    fn is_worth_it(&self) -> bool {
        self.flights < FLIGHTS && self.waiting.len() >= (self.aboard / 4).clamp(*WORTH.start(), *WORTH.end())
    }

    /// When its oldest has waited long enough for others.
    fn patience_ends(&self, timeout: Duration) -> Option<Instant> {
        Some(self.waiting.front()?.ride.deadline + PATIENCE - timeout.max(PATIENCE))
    }
}

impl Lane {
    pub(super) fn new(
        server: Server,
        replica: bool,
        others: bool,
        prefix: Arc<str>,
        fold: usize,
        reader: Reader,
    ) -> Self {
        Self {
            server: Arc::new(server),
            replica,
            others,
            prefix,
            fold,
            lines: HashMap::default(),
            turn: VecDeque::new(),
            asked: VecDeque::new(),
            waiting: 0,
            flights: VecDeque::new(),
            link: None,
            reader,
            openings: Vec::new(),
            doubt: None,
            alarm: None,
        }
    }

    pub(super) fn address(&self) -> &Address {
        &self.server.address
    }

    pub(super) fn is_idle(&self) -> bool {
        self.waiting == 0 && self.flights.is_empty()
    }

    pub(super) const fn alarm(&self) -> Option<Instant> {
        self.alarm
    }

    fn alarm_by(&mut self, at: Instant) {
        self.alarm = Some(self.alarm.map_or(at, |alarm| alarm.min(at)));
    }

    /// Takes a job; `first` when it has waited elsewhere.
    pub(super) fn push(&mut self, job: Job, first: bool) {
        self.alarm_by(job.ride.until);
        self.waiting += 1;
        let line = self.lines.entry(job.slot).or_default();
        if !line.queued {
            line.queued = true;
            self.turn.push_back(job.slot);
        }
        if first { line.waiting.push_front(job) } else { line.waiting.push_back(job) }
    }

    /// Takes a job that another node sent here for once.
    pub(super) fn push_asking(&mut self, job: Job) {
        self.alarm_by(job.ride.until);
        self.waiting += 1;
        self.asked.push_back(job);
    }

    /// Leaves reading to an event loop, or takes it back.
    pub(super) fn watched_by(&mut self, reader: Reader, outcome: &mut Outcome) {
        self.reader = reader;
        let Some(link) = self.link.take() else { return };
        let left = link.left();
        match link.watched_by(self.reader.as_ref()) {
            Ok(link) => self.link = Some(link),
            Err(error) => self.lost(left, &error, outcome),
        }
    }

    /// Something may have come that an event loop was to read.
    pub(super) fn listen(&mut self) {
        if let Some(link) = &mut self.link {
            link.listen();
        }
    }

    /// Reads what an event loop was told of, and writes what there is room for; says whether nothing is left to write.
    pub(super) fn look(&mut self, outcome: &mut Outcome) -> bool {
        if self.link.as_ref().is_some_and(Link::is_watched) {
            self.listen();
            self.read(&mut Context::from_waker(Waker::noop()), outcome);
        }
        self.link.as_mut().is_none_or(Link::try_send)
    }

    fn read(&mut self, cx: &mut Context<'_>, outcome: &mut Outcome) -> bool {
        let mut busy = false;
        while let Some(link) = &mut self.link {
            match link.poll_reply(cx) {
                Poll::Ready(Ok(reply)) => self.land(reply, outcome),
                Poll::Ready(Err(error)) => self.lose(&error, outcome),
                Poll::Pending => break,
            }
            busy = true;
        }
        busy
    }

    /// Does all that can be done now; says whether there may be more.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>, outcome: &mut Outcome) -> bool {
        let mut busy = self.poll_opening(cx, outcome);
        busy |= self.read(cx, outcome);
        if self.link.is_none() && self.openings.is_empty() && self.waiting > 0 {
            self.open();
            busy |= self.poll_opening(cx, outcome);
        }
        if self.link.is_some() && self.doubt.is_none() {
            self.board_all();
        }
        if let Some(link) = &mut self.link
            && link.has_to_send()
            && let Err(error) = link.poll_send(cx)
        {
            self.lose(&error, outcome);
            busy = true;
        }
        busy
    }

    /// Lets those depart who can, without having looked for replies; says whether nothing else is to be done now.
    pub(super) fn serve(&mut self) -> bool {
        if self.waiting == 0 {
            return true;
        }
        if self.link.is_none() || !self.openings.is_empty() || self.doubt.is_some() {
            return false;
        }
        self.board_all();
        self.link.as_mut().is_some_and(Link::try_send)
    }

    fn take_waiting(&mut self) -> Vec<Job> {
        self.waiting = 0;
        self.turn.clear();
        let mut jobs: Vec<Job> = self.asked.drain(..).collect();
        for line in self.lines.values_mut() {
            line.queued = false;
            jobs.extend(line.waiting.drain(..));
        }
        jobs
    }

    /// The connection is gone. What had left may have run, the rest goes with the next connection.
    fn lose(&mut self, error: &io::Error, outcome: &mut Outcome) {
        let left = self.link.take().map_or(0, |link| link.left());
        self.lost(left, error, outcome);
    }

    /// The same, of which so much had left.
    fn lost(&mut self, left: u64, error: &io::Error, outcome: &mut Outcome) {
        self.doubt = None;
        for flight in std::mem::take(&mut self.flights).into_iter().rev() {
            let Cargo::Call(call) = flight.cargo else { continue };
            self.landed(call.slot, call.passengers.len());
            if flight.end > left {
                self.board_again(call);
                continue;
            }
            let failure = self.server.failure(error, true);
            for job in call.into_jobs() {
                outcome.returned.push(self.returns(job, Why::Failed(failure.clone())));
            }
        }
    }

    /// Back to the head of its line: it never left.
    fn board_again(&mut self, call: Call) {
        let asking = call.asking;
        for job in call.into_jobs().rev() {
            if asking {
                self.waiting += 1;
                self.asked.push_front(job);
            } else {
                self.push(job, true);
            }
        }
    }

    /// One flight less of that line: somebody may depart.
    fn landed(&mut self, slot: u16, passengers: usize) {
        if let Some(line) = self.lines.get_mut(&slot) {
            line.flights -= 1;
            line.aboard -= passengers;
            if !line.queued && !line.waiting.is_empty() {
                line.queued = true;
                self.turn.push_back(slot);
            }
        }
    }

    fn board_all(&mut self) {
        while self.flights.len() < LONE_FLIGHTS
            && let Some(job) = self.asked.pop_front()
        {
            self.waiting -= 1;
            let line = self.lines.entry(job.slot).or_default();
            (line.flights, line.aboard) = (line.flights + 1, line.aboard + 1);
            let (slot, passengers) = (job.slot, vec![Passenger::of(&job.ride, job.requests.len(), job.waiter)]);
            let batch = Batch::new(Arc::clone(&self.prefix), job.now, job.grouping, job.requests.into_vec());
            self.depart(Call { batch, passengers, slot, in_full: false, asking: true });
        }
        while self.flights.len() < LONE_FLIGHTS
            && let Some(slot) = self.turn.pop_front()
        {
            if let Some(call) = self.board(slot) {
                self.depart(call);
            }
        }
        if self.lines.len() > LINES {
            self.lines.retain(|_, line| line.flights > 0 || line.queued || !line.waiting.is_empty());
        }
    }

    /// The next jobs of a line that may travel together, oldest first, if they go now.
    fn board(&mut self, slot: u16) -> Option<Call> {
        let line = self.lines.get_mut(&slot)?;
        line.queued = false;
        let patience_ends = line.patience_ends(self.server.timeout)?;
        let departs = self.fold == 1 || line.flights == 0 || line.is_worth_it() || patience_ends <= Instant::now();
        if !departs {
            self.alarm_by(patience_ends);
            return None;
        }
        let first = line.waiting.pop_front()?;
        let (fold, now, grouping) = (first.fold(), first.now, first.grouping);
        let mut passengers = vec![Passenger::of(&first.ride, first.requests.len(), first.waiter)];
        let mut requests = first.requests.into_vec();
        while fold.is_some()
            && passengers.len() < self.fold
            && line.waiting.front().is_some_and(|job| job.fold() == fold)
            && let Some(job) = line.waiting.pop_front()
        {
            passengers.push(Passenger::of(&job.ride, job.requests.len(), job.waiter));
            requests.extend(job.requests);
        }
        self.waiting -= passengers.len();
        (line.flights, line.aboard) = (line.flights + 1, line.aboard + passengers.len());
        if !line.waiting.is_empty() {
            line.queued = true;
            self.turn.push_back(slot);
        }
        let batch = Batch::new(Arc::clone(&self.prefix), now, grouping, requests);
        Some(Call { batch, passengers, slot, in_full: false, asking: false })
    }

    fn depart(&mut self, call: Call) {
        let Some(link) = &mut self.link else { return self.board_again(call) };
        let from = link.end();
        if call.asking {
            redis::cmd("ASKING").write_packed_command(link.out());
            self.flights.push_back(Flight { cargo: Cargo::Asking, from, end: link.end() });
        }
        let command = if call.in_full { call.batch.command_in_full() } else { call.batch.command() };
        command.write_packed_command(link.out());
        self.flights.push_back(Flight { cargo: Cargo::Call(call), from, end: link.end() });
    }

    fn land(&mut self, reply: Value, outcome: &mut Outcome) {
        let Some(flight) = self.flights.pop_front() else {
            // Nobody asked: the two are out of step.
            return self.lose(&failure::garbled(), outcome);
        };
        let call = match flight.cargo {
            Cargo::Call(call) => call,
            Cargo::Asking => return,
            Cargo::Probe => {
                self.doubt = None;
                return;
            }
        };
        let verdict = Verdict::of(&reply, &self.server.address, self.others);
        if verdict == Verdict::Unknown && !call.in_full && call.is_awaited() && self.doubt.is_none() {
            return self.depart(Call { in_full: true, ..call });
        }
        self.landed(call.slot, call.passengers.len());
        let shown = &self.server.shown;
        let why = match verdict {
            Verdict::Unknown if !call.in_full => return self.board_again(call),
            Verdict::Answered | Verdict::Unknown => return self.give_out(call, reply, outcome),
            Verdict::Moved(slot, address) => Why::Moved(slot, address),
            Verdict::Ask(address) => Why::Ask(address),
            Verdict::Split(error) => Why::Split(failure::refused(shown, &error)),
            Verdict::Astray(error) => Why::Astray(failure::refused(shown, &error)),
            Verdict::Refused(error) => Why::Failed(Failure::settled(failure::refused(shown, &error))),
        };
        let several = call.passengers.len() > 1;
        for mut job in call.into_jobs() {
            job.ride.alone |= several;
            outcome.returned.push(self.returns(job, why.clone()));
        }
    }

    fn give_out(&self, call: Call, reply: Value, outcome: &mut Outcome) {
        match call.batch.answers(reply) {
            Err(error) => {
                let waiters = call.passengers.into_iter().filter_map(|passenger| passenger.waiter);
                waiters.for_each(|waiter| outcome.homes.add(waiter.fail(&error)));
            }
            Ok(answers) => {
                let mut answers = answers.into_iter();
                for Passenger { requests, waiter, .. } in call.passengers {
                    let none = || failure::silence(&self.server.shown);
                    match waiter {
                        Some(waiter) => outcome.homes.add(waiter.answer(&mut answers, requests, none)),
                        None => drop(answers.by_ref().take(requests).last()),
                    }
                }
            }
        }
    }

    fn returns(&self, job: Job, why: Why) -> Returned {
        Returned { job, why, from: self.server.address.clone() }
    }

    /// Greets the server again before the next call: it may not be who it was.
    pub(super) fn greet_again(&mut self) {
        if self.flights.is_empty() {
            (self.link, self.doubt) = (None, None);
        }
    }

    /// Ends it; what waits and what is in flight fails.
    pub(super) fn close(mut self, error: &Error, homes: &mut WakeSet) {
        for job in self.take_waiting() {
            homes.add(job.fail(error));
        }
        for flight in self.flights {
            if let Cargo::Call(call) = flight.cargo {
                call.into_jobs().for_each(|job| homes.add(job.fail(error)));
            }
        }
    }
}
