//! Blocking calls: each uses a connection on its own thread, without a hop.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use arc_swap::ArcSwapOption;
use parking_lot::Mutex;
use redis::Value;

use super::chart::{Chart, Shard};
use super::failure::{self, Failure};
use super::script::{Batch, Grouping, Request};
use super::survey::Survey;
use super::verdict::Verdict;
use super::wire::{Server, Wire};
use super::{HOPS, PAUSE, REPLICAS, SURVEYS};
use crate::error::Result;
use crate::store::request::Answer;
use crate::store::url::Address;

/// Connections to all servers of a place.
pub(super) struct Pools {
    survey: Arc<Survey>,
    prefix: Arc<str>,
    known: ArcSwapOption<Known>,
    /// Set when the chart may be wrong; the next call draws it anew.
    doubt: AtomicBool,
    /// When it was last drawn; held by whoever draws.
    drawn: Mutex<Option<Instant>>,
}

/// A chart and the connections that belong to it.
struct Known {
    chart: Chart,
    /// One for each shard.
    primaries: Vec<Arc<Pool>>,
    others: Mutex<HashMap<(Address, bool), Arc<Pool>>>,
}

/// What a call is about to do next.
enum Turn {
    Primary,
    Replica,
    Ask(Address),
}

impl Pools {
    pub(super) fn new(survey: Arc<Survey>, prefix: Arc<str>) -> Self {
        let (known, doubt) = (ArcSwapOption::empty(), AtomicBool::new(false));
        Self { survey, prefix, known, doubt, drawn: Mutex::default() }
    }

    pub(super) const fn prefix(&self) -> &Arc<str> {
        &self.prefix
    }

    /// Runs requests of one slot. `reads` allows a replica to answer.
    pub(super) fn run(
        &self,
        requests: Vec<Request>,
        grouping: Grouping,
        now: Option<u64>,
        slot: u16,
        reads: bool,
        deadline: Instant,
    ) -> Result<Vec<Result<Answer>>> {
        let batch = Batch::new(Arc::clone(&self.prefix), now, grouping, requests);
        let reply = self.call(&batch, slot, reads, deadline).map_err(|failure| failure.error)?;
        batch.answers(reply)
    }

    fn call(&self, batch: &Batch, slot: u16, reads: bool, deadline: Instant) -> std::result::Result<Value, Failure> {
        if reads && self.drawn.try_lock().is_some_and(|drawn| drawn.is_some_and(|at| at.elapsed() > REPLICAS)) {
            self.doubt.store(true, Ordering::Relaxed);
        }
        let mut known = self.known(deadline)?;
        let others = self.survey.has_others();
        let (mut turn, mut hops) = (if reads { Turn::Replica } else { Turn::Primary }, 0);
        loop {
            let (asking, replica) = (matches!(turn, Turn::Ask(_)), matches!(turn, Turn::Replica));
            let pool = match std::mem::replace(&mut turn, Turn::Primary) {
                Turn::Primary => self.primary(&known, slot),
                Turn::Replica => known.replica(&self.survey, slot),
                Turn::Ask(address) => Some(known.other(&self.survey, address, false)),
            };
            let Some(pool) = pool else {
                if !replica {
                    known = self.wait(known, Failure::elsewhere(uncovered(self.survey.shown(), slot)), deadline)?;
                }
                continue;
            };
            // A replica that is silent leaves time to ask the primary.
            let until = if replica {
                Instant::now() + deadline.saturating_duration_since(Instant::now()) / 2
            } else {
                deadline
            };
            let shown = &pool.server.shown;
            let reply = match pool.call(batch, asking, until) {
                Ok(reply) => reply,
                Err(_) if replica => continue,
                Err(failure) => {
                    if !others || !failure.elsewhere {
                        return Err(failure);
                    }
                    self.doubt.store(true, Ordering::Relaxed);
                    if failure.may_have_run {
                        return Err(failure);
                    }
                    let before = pool.server.address.clone();
                    known = self.draw(known, deadline);
                    if asking || self.primary(&known, slot).is_some_and(|pool| pool.server.address == before) {
                        return Err(failure);
                    }
                    continue;
                }
            };
            match Verdict::of(&reply, &pool.server.address, others) {
                Verdict::Answered | Verdict::Unknown => return Ok(reply),
                _ if replica => {}
                Verdict::Refused(error) => return Err(Failure::settled(failure::refused(shown, &error))),
                Verdict::Moved(slot, address) => {
                    known = self.moved(&known, slot, address);
                    hops += 1;
                    if hops % HOPS == 0 {
                        pause(Failure::elsewhere(uncovered(self.survey.shown(), slot)), deadline)?;
                    }
                }
                Verdict::Ask(address) => turn = Turn::Ask(address),
                Verdict::Split(error) => pause(Failure::settled(failure::refused(shown, &error)), deadline)?,
                Verdict::Astray(error) => {
                    // It may have become a replica: a new greeting will tell.
                    pool.clear();
                    known = self.wait(known, Failure::elsewhere(failure::refused(shown, &error)), deadline)?;
                }
            }
        }
    }

    pub(super) fn chart(&self, deadline: Instant) -> Result<Chart> {
        self.known(deadline).map(|known| known.chart.clone()).map_err(|failure| failure.error)
    }

    fn primary(&self, known: &Known, slot: u16) -> Option<Arc<Pool>> {
        known.chart.shard_of(slot).and_then(|number| known.primaries.get(number)).cloned()
    }

    /// The chart, drawn where there is none and where there is reason to doubt it.
    fn known(&self, deadline: Instant) -> std::result::Result<Arc<Known>, Failure> {
        match self.known.load_full() {
            Some(known) if !self.doubt.load(Ordering::Relaxed) => Ok(known),
            Some(known) => Ok(self.draw(known, deadline)),
            None => {
                let Some(mut drawn) = self.drawn.try_lock_until(deadline) else {
                    return Err(Failure::elsewhere(failure::late(self.survey.shown(), self.survey.timeout())));
                };
                if let Some(known) = self.known.load_full() {
                    return Ok(known);
                }
                let chart = self.survey.draw(None, deadline)?;
                *drawn = Some(Instant::now());
                Ok(self.keep(chart, None))
            }
        }
    }

    /// Draws the chart anew, unless somebody does or has just done so. What was known stays when nobody knows better.
    fn draw(&self, known: Arc<Known>, deadline: Instant) -> Arc<Known> {
        let Some(mut drawn) = self.drawn.try_lock() else { return known };
        if deadline <= Instant::now() + PAUSE || drawn.is_some_and(|at| at.elapsed() < SURVEYS) {
            return self.known.load_full().unwrap_or(known);
        }
        let half = Instant::now() + deadline.saturating_duration_since(Instant::now()) / 2;
        let chart = self.survey.draw(Some(&known.chart), half);
        *drawn = Some(Instant::now());
        match chart {
            Ok(chart) => {
                self.doubt.store(false, Ordering::Relaxed);
                self.keep(chart, Some(&known))
            }
            Err(_) => known,
        }
    }

    /// After a while the chart may be another.
    fn wait(&self, known: Arc<Known>, failure: Failure, deadline: Instant) -> std::result::Result<Arc<Known>, Failure> {
        self.doubt.store(true, Ordering::Relaxed);
        pause(failure, deadline)?;
        Ok(self.draw(known, deadline))
    }

    fn moved(&self, known: &Known, slot: u16, address: Address) -> Arc<Known> {
        self.doubt.store(true, Ordering::Relaxed);
        let newest = self.known.load_full();
        let known = newest.as_deref().unwrap_or(known);
        let mut chart = known.chart.clone();
        chart.move_slot(slot, address);
        self.keep(chart, Some(known))
    }

    fn keep(&self, chart: Chart, before: Option<&Known>) -> Arc<Known> {
        let old = |address: &Address| {
            before.and_then(|known| known.primaries.iter().find(|pool| pool.server.address == *address)).cloned()
        };
        let pool = |shard: &Shard| {
            old(&shard.primary).unwrap_or_else(|| Arc::new(Pool::new(self.survey.server(shard.primary.clone(), false))))
        };
        let primaries = chart.shards().iter().map(pool).collect();
        let mut others = before.map(|known| known.others.lock().clone()).unwrap_or_default();
        others.retain(|(address, _), _| chart.shards().iter().any(|shard| shard.replicas.contains(address)));
        let known = Arc::new(Known { chart, primaries, others: Mutex::new(others) });
        self.known.store(Some(Arc::clone(&known)));
        known
    }

    pub(super) fn clear(&self) {
        if let Some(known) = self.known.load_full() {
            known.primaries.iter().for_each(|pool| pool.clear());
            known.others.lock().values().for_each(|pool| pool.clear());
        }
    }
}

impl Known {
    fn other(&self, survey: &Survey, address: Address, replica: bool) -> Arc<Pool> {
        if let Some(pool) = self.primaries.iter().find(|pool| !replica && pool.server.address == address) {
            return Arc::clone(pool);
        }
        let mut others = self.others.lock();
        let pool = others
            .entry((address, replica))
            .or_insert_with_key(|(address, _)| Arc::new(Pool::new(survey.server(address.clone(), replica))));
        Arc::clone(pool)
    }

    fn replica(&self, survey: &Survey, slot: u16) -> Option<Arc<Pool>> {
        let shard = &self.chart.shards()[self.chart.shard_of(slot)?];
        let which = usize::from(slot) % shard.replicas.len().max(1);
        shard.replicas.get(which).map(|address| self.other(survey, address.clone(), true))
    }
}

/// Nobody serves the slot.
pub(super) fn uncovered(shown: &str, slot: u16) -> crate::error::Error {
    crate::error::Error::new(
        crate::error::ErrorKind::StoreUnavailable,
        format!("no node of {shown} serves the slot {slot}: the cluster is not whole"),
    )
}

/// Waits a little before another try; when there is no time for one, fails with the reason there was.
fn pause(failure: Failure, deadline: Instant) -> std::result::Result<(), Failure> {
    if deadline.saturating_duration_since(Instant::now()) <= 2 * PAUSE {
        return Err(failure);
    }
    std::thread::sleep(PAUSE);
    Ok(())
}

/// Idle connections to one server; the one used last is used next, so that few stay warm.
struct Pool {
    server: Server,
    idle: Mutex<Vec<Wire>>,
}

impl Pool {
    fn new(server: Server) -> Self {
        Self { server, idle: Mutex::default() }
    }

    /// A connection on which nobody has hung up. A new one was greeted: a server that stands still gets no calls that
    /// it would run when it goes on.
    fn take(&self, now: Instant, deadline: Instant) -> std::result::Result<Wire, Failure> {
        loop {
            let idle = self.idle.lock().pop();
            let Some(mut wire) = idle else { return Wire::open(&self.server, deadline) };
            if wire.is_alive(now) {
                return Ok(wire);
            }
            // The others were left at the same moment.
            self.clear();
        }
    }

    fn call(&self, batch: &Batch, asking: bool, deadline: Instant) -> std::result::Result<Value, Failure> {
        let now = Instant::now();
        let mut wire = self.take(now, deadline)?;
        let reply = if asking { ask_there(&mut wire, batch, deadline) } else { ask(&mut wire, batch, deadline) };
        match reply {
            Ok(reply) => {
                wire.touch(now);
                self.idle.lock().push(wire);
                Ok(reply)
            }
            // It is out of step now, and whatever befell it may have befallen the others.
            Err(broken) => {
                self.clear();
                Err(self.server.failure(&broken.error, broken.sent))
            }
        }
    }

    fn clear(&self) {
        self.idle.lock().clear();
    }
}

fn ask(wire: &mut Wire, batch: &Batch, deadline: Instant) -> std::result::Result<Value, super::wire::Broken> {
    let reply = wire.ask(&batch.command().get_packed_command(), deadline)?;
    if is_unknown(&reply) {
        return wire.ask(&batch.command_in_full().get_packed_command(), deadline);
    }
    Ok(reply)
}

fn ask_there(wire: &mut Wire, batch: &Batch, deadline: Instant) -> std::result::Result<Value, super::wire::Broken> {
    let mut reply = Value::Nil;
    for command in [batch.command(), batch.command_in_full()] {
        let mut packed = redis::cmd("ASKING").get_packed_command();
        command.write_packed_command(&mut packed);
        reply = wire.exchange(&packed, 2, deadline)?.pop().unwrap_or(Value::Nil);
        if !is_unknown(&reply) {
            break;
        }
    }
    Ok(reply)
}

fn is_unknown(reply: &Value) -> bool {
    matches!(reply, Value::ServerError(error) if error.code() == "NOSCRIPT")
}
