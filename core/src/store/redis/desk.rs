//! Where jobs are sorted to lanes: it knows which server serves which slot, and keeps a lane to each.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::task::JoinHandle;
use tokio::time::{Instant, Sleep};

use super::chart::Chart;
use super::engine::Queue;
use super::failure::{self, Failure};
use super::job::Job;
use super::lane::{Lane, Outcome, PATIENCE, Returned, Why};
use super::lookout::Reader;
use super::survey::Survey;
use super::{HOPS, PAUSE, REPLICAS, SURVEYS, Target, pool};
use crate::error::{Error, ErrorKind};
use crate::store::completion::WakeSet;
use crate::store::url::Address;

/// See the module.
pub(super) struct Desk {
    target: Target,
    survey: Arc<Survey>,
    chart: Option<Chart>,
    lanes: Vec<Lane>,
    /// For each shard of the chart the number of its primary's lane, once it has one.
    primaries: Vec<Option<usize>>,
    /// Jobs that wait for a chart, for a better one, or for a moment.
    parked: Vec<Parked>,
    drawing: Option<JoinHandle<std::result::Result<Chart, Failure>>>,
    drawn: Option<Instant>,
    /// Whether the chart may be wrong.
    doubt: bool,
    /// When the thread looks here again even if nobody wakes it.
    alarm: Option<Instant>,
    /// Whether there were jobs since it last rang.
    worked: bool,
    /// Who reads.
    reader: Reader,
}

struct Parked {
    job: Job,
    /// When it goes on; without a time it waits for the next chart.
    until: Option<Instant>,
    /// What to say when there is no time left.
    error: Error,
    /// Who could not be reached: when the next chart names the same, there is nobody else.
    gone: Option<Address>,
}

impl Desk {
    pub(super) fn new(target: Target, survey: Arc<Survey>) -> Self {
        // One server is where the URL says.
        let chart = if survey.has_others() { None } else { survey.draw(None, std::time::Instant::now()).ok() };
        let mut desk = Self {
            target,
            survey,
            chart: None,
            lanes: Vec::new(),
            primaries: Vec::new(),
            parked: Vec::new(),
            drawing: None,
            drawn: None,
            doubt: false,
            alarm: None,
            worked: false,
            reader: None,
        };
        if let Some(chart) = chart {
            desk.adopt(chart);
        }
        desk
    }

    /// Gives the jobs of the queue to their lanes and lets them leave, where that takes no connection, no chart and no
    /// waiting. Says whether nothing is left to do for the thread before its alarm rings.
    pub(super) fn serve(&mut self, queue: &Mutex<Queue>) -> bool {
        if !self.parked.is_empty() || self.drawing.is_some() {
            return false;
        }
        let mut jobs = queue.lock();
        if jobs.closed {
            // The lanes may be gone; the thread answers.
            return false;
        }
        while let Some(job) = jobs.jobs.front() {
            let lane = match &self.chart {
                Some(chart) if !job.ride.reads => chart.shard_of(job.slot).and_then(|shard| self.primaries[shard]),
                _ => None,
            };
            let Some(lane) = lane else { return false };
            let Some(mut job) = jobs.jobs.pop_front() else { break };
            job.ride.until = job.ride.deadline;
            self.lanes[lane].push(job, false);
            self.worked = true;
        }
        drop(jobs);
        // A loop that reads itself may be busy for long: the thread comes to see.
        let mut served = self.reader.is_none() || self.alarm.is_some_and(|alarm| alarm <= Instant::now() + PATIENCE);
        for lane in &mut self.lanes {
            served &= lane.serve() && lane.alarm().is_none_or(|due| self.alarm.is_some_and(|alarm| alarm <= due));
        }
        served
    }

    /// Reads what has come, for an event loop. Says whether nothing is to be done by the thread.
    pub(super) fn look(&mut self, outcome: &mut Outcome) -> bool {
        let mut served = true;
        for lane in &mut self.lanes {
            served &= lane.look(outcome);
        }
        if !outcome.returned.is_empty() {
            self.take_back(outcome);
            served = false;
        }
        served
    }

    /// Ready when it was told to end.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>, queue: &Mutex<Queue>, alarm: &mut Pin<Box<Sleep>>) -> Poll<()> {
        let mut outcome = Outcome::default();
        self.lanes.iter_mut().for_each(Lane::listen);
        loop {
            let (jobs, closed, news) = {
                let mut queue = queue.lock();
                (std::mem::take(&mut queue.jobs), queue.closed, queue.news.take())
            };
            if let Some(reader) = news {
                for lane in &mut self.lanes {
                    lane.watched_by(reader.clone(), &mut outcome);
                }
                self.reader = reader;
            }
            if closed {
                // They are told with all others.
                queue.lock().jobs = jobs;
                return Poll::Ready(());
            }
            self.worked |= !jobs.is_empty();
            for job in jobs {
                self.route(job, &mut outcome);
            }
            let mut busy = self.poll_drawing(cx, &mut outcome);
            let now = Instant::now();
            for lane in &mut self.lanes {
                lane.expire(now, &mut outcome);
                busy |= lane.poll(cx, &mut outcome);
            }
            if !outcome.returned.is_empty() {
                self.take_back(&mut outcome);
                busy = true;
            }
            busy |= self.unpark(now, &mut outcome);
            self.doubt |= std::mem::take(&mut outcome.troubled);
            busy |= self.draw_if_needed(now);
            // Those whose answers came are woken before more is looked at.
            outcome.homes = WakeSet::default();
            if !busy && !self.sleep(cx, now, alarm) {
                return Poll::Pending;
            }
        }
    }

    /// Sets the alarm; says whether it has rung already.
    fn sleep(&mut self, cx: &mut Context<'_>, now: Instant, alarm: &mut Pin<Box<Sleep>>) -> bool {
        if self.alarm.is_some_and(|alarm| alarm <= now) {
            (self.alarm, self.worked) = (None, false);
        }
        let parked = self.parked.iter().map(|parked| match parked.until {
            Some(until) => until.min(parked.job.ride.deadline),
            None => parked.job.ride.deadline,
        });
        // While there is work it rings before anybody could have waited too long: callers that serve themselves need not
        // wake anybody only to set it.
        let works = self.worked || self.reader.is_some() && !self.lanes.iter().all(Lane::is_idle);
        let round = works.then(|| now + PATIENCE);
        self.alarm = match self.lanes.iter().filter_map(Lane::alarm).chain(parked).chain(round).min() {
            // To set it costs more than to hear it too early.
            Some(next) => self.alarm.filter(|alarm| *alarm > now && *alarm <= next).or(Some(next)),
            None => None,
        };
        let Some(next) = self.alarm else { return false };
        if alarm.deadline() != next {
            alarm.as_mut().reset(next);
        }
        // Whether it rings is told by the time, when everything was looked at once more.
        alarm.as_mut().poll(cx).is_ready()
    }

    /// Ends it; what waits and what is in flight fails.
    pub(super) fn close(&mut self, error: &Error, homes: &mut WakeSet) {
        for lane in self.lanes.drain(..) {
            lane.close(error, homes);
        }
        for parked in self.parked.drain(..) {
            homes.add(parked.job.fail(error));
        }
    }

    /// The number of the lane to a server, made now where it is missing.
    fn lane(&mut self, address: &Address, replica: bool) -> usize {
        let known = self.lanes.iter().position(|lane| lane.replica == replica && lane.address() == address);
        known.unwrap_or_else(|| {
            let server = self.survey.server(address.clone(), replica);
            let (prefix, fold) = (Arc::clone(&self.target.prefix), self.target.fold);
            self.lanes.push(Lane::new(server, replica, self.survey.has_others(), prefix, fold, self.reader.clone()));
            self.lanes.len() - 1
        })
    }

    fn primary(&mut self, shard: usize) -> usize {
        if let Some(lane) = self.primaries[shard] {
            return lane;
        }
        let address = self.chart.as_ref().map(|chart| chart.shards()[shard].primary.clone());
        // A shard has a number because a chart gave it one.
        let lane = address.map_or(0, |address| self.lane(&address, false));
        self.primaries[shard] = Some(lane);
        lane
    }

    /// Gives a job to the lane of its slot.
    fn route(&mut self, mut job: Job, outcome: &mut Outcome) {
        let Some(chart) = &self.chart else {
            let error = failure::late(self.survey.shown(), self.target.timeout);
            self.parked.push(Parked { job, until: None, error, gone: None });
            return;
        };
        let Some(shard) = chart.shard_of(job.slot) else {
            let error = pool::uncovered(self.survey.shown(), job.slot);
            self.doubt = true;
            self.park(job, error, outcome);
            return;
        };
        if job.ride.reads && job.ride.hops == 0 {
            self.doubt |= self.drawn.is_none_or(|at| at.elapsed() > REPLICAS);
            let replicas = &chart.shards()[shard].replicas;
            if !replicas.is_empty() {
                let address = replicas[usize::from(job.slot) % replicas.len()].clone();
                let now = Instant::now();
                // A replica that is silent leaves time to ask the primary.
                job.ride.until = now + job.ride.deadline.saturating_duration_since(now) / 2;
                let lane = self.lane(&address, true);
                self.lanes[lane].push(job, false);
                return;
            }
        }
        job.ride.until = job.ride.deadline;
        let (lane, returns) = (self.primary(shard), job.ride.hops > 0);
        self.lanes[lane].push(job, returns);
    }

    /// What to do with jobs that came back.
    fn take_back(&mut self, outcome: &mut Outcome) {
        // From the last to the first, each to the head of its line: so they stand as they stood.
        for Returned { mut job, why, from } in std::mem::take(&mut outcome.returned).into_iter().rev() {
            let from_replica = job.ride.until < job.ride.deadline;
            job.ride.hops = job.ride.hops.saturating_add(1);
            match why {
                // The primary is asked instead.
                Why::Failed(_) | Why::Moved(..) | Why::Ask(_) | Why::Split(_) | Why::Astray(_) if from_replica => {
                    self.doubt |= matches!(&why, Why::Failed(failure) if failure.elsewhere);
                    self.route(job, outcome);
                }
                Why::Failed(failure) => {
                    let stays = !self.survey.has_others() || !failure.elsewhere;
                    self.doubt |= !stays;
                    if stays || failure.may_have_run {
                        outcome.homes.add(job.fail(&failure.error));
                    } else {
                        self.parked.push(Parked { job, until: None, error: failure.error, gone: Some(from) });
                    }
                }
                Why::Moved(slot, address) => {
                    self.doubt = true;
                    self.move_slot(slot, address);
                    if job.ride.hops % HOPS == 0 {
                        let error = pool::uncovered(self.survey.shown(), slot);
                        self.park(job, error, outcome);
                    } else {
                        self.route(job, outcome);
                    }
                }
                Why::Ask(address) => {
                    let lane = self.lane(&address, false);
                    self.lanes[lane].push_asking(job);
                }
                Why::Split(error) => self.park(job, error, outcome),
                Why::Astray(error) => {
                    self.doubt = true;
                    let lane = self.lane(&from, false);
                    self.lanes[lane].greet_again();
                    self.park(job, error, outcome);
                }
            }
        }
    }

    fn move_slot(&mut self, slot: u16, address: Address) {
        if let Some(chart) = &mut self.chart {
            chart.move_slot(slot, address);
            self.primaries.resize(chart.shards().len(), None);
        }
    }

    /// Lets a job wait a little, if it has the time.
    fn park(&mut self, job: Job, error: Error, outcome: &mut Outcome) {
        let until = Instant::now() + PAUSE;
        if job.ride.deadline <= until + PAUSE {
            outcome.homes.add(job.fail(&error));
            return;
        }
        self.parked.push(Parked { job, until: Some(until), error, gone: None });
    }

    /// Sends on those who have waited long enough.
    fn unpark(&mut self, now: Instant, outcome: &mut Outcome) -> bool {
        if self.parked.is_empty() {
            return false;
        }
        // A chart that was just drawn is not drawn again for those who come now.
        let settled = self.drawing.is_none() && self.chart.is_some() && self.drawn.is_some_and(|at| now < at + SURVEYS);
        let mut went = false;
        for parked in std::mem::take(&mut self.parked) {
            if parked.job.ride.deadline <= now {
                outcome.homes.add(parked.job.fail(&parked.error));
                continue;
            }
            let goes = match parked.until {
                Some(until) => until <= now && self.chart.is_some(),
                None => settled,
            };
            if !goes {
                self.parked.push(parked);
                continue;
            }
            went = true;
            let same = parked.gone.as_ref().is_some_and(|gone| self.primary_of(parked.job.slot) == Some(gone));
            if same {
                outcome.homes.add(parked.job.fail(&parked.error));
            } else {
                self.route(parked.job, outcome);
            }
        }
        went
    }

    fn primary_of(&self, slot: u16) -> Option<&Address> {
        let chart = self.chart.as_ref()?;
        chart.shard_of(slot).map(|shard| &chart.shards()[shard].primary)
    }

    /// Says whether it began, so that somebody listens for its end.
    fn draw_if_needed(&mut self, now: Instant) -> bool {
        let wanted = self.chart.is_none() && !self.parked.is_empty()
            || self.doubt && self.survey.has_others() && self.drawn.is_none_or(|at| now >= at + SURVEYS);
        if self.drawing.is_some() || !wanted {
            return false;
        }
        let (survey, known) = (Arc::clone(&self.survey), self.chart.clone());
        let time = self.target.timeout.clamp(Duration::from_millis(250), Duration::from_secs(1));
        let deadline = std::time::Instant::now() + time;
        self.drawing = Some(tokio::task::spawn_blocking(move || survey.draw(known.as_ref(), deadline)));
        true
    }

    fn poll_drawing(&mut self, cx: &mut Context<'_>, outcome: &mut Outcome) -> bool {
        let Some(drawing) = &mut self.drawing else { return false };
        let Poll::Ready(drawn) = Pin::new(drawing).poll(cx) else { return false };
        (self.drawing, self.drawn) = (None, Some(Instant::now()));
        match drawn {
            Ok(Ok(chart)) => {
                self.doubt = false;
                self.adopt(chart);
            }
            Ok(Err(failure)) if self.chart.is_none() => {
                // Without a chart there is nobody to ask; whoever has time waits for the next.
                let late = failure.error.kind() == ErrorKind::StoreTimeout;
                for parked in std::mem::take(&mut self.parked) {
                    if late {
                        self.parked.push(parked);
                    } else {
                        outcome.homes.add(parked.job.fail(&failure.error));
                    }
                }
            }
            _ => {}
        }
        true
    }

    fn adopt(&mut self, chart: Chart) {
        let is_named = |lane: &Lane| {
            chart.shards().iter().any(|shard| match lane.replica {
                true => shard.replicas.contains(lane.address()),
                false => shard.primary == *lane.address(),
            })
        };
        // A lane to a server that left ends once nobody waits for it.
        self.lanes.retain(|lane| !lane.is_idle() || is_named(lane));
        self.primaries = vec![None; chart.shards().len()];
        self.chart = Some(chart);
    }
}
