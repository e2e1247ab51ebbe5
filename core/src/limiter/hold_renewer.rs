//! One thread renews all holds of a limiter. It starts with the first hold and ends with the limiter. With a clock that is
//! moved by hand there is no thread: the thread that moves the clock renews what is due.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use super::LimiterCore;
use crate::algorithm::HoldId;
use crate::fork::PerProcess;
use crate::plan::Plan;
use crate::policy::Algorithm;
use crate::store::request::{Entry, Operation};

/// A hold is renewed this many times within its ttl, so that one lost renewal does not lose it.
const RENEWALS_PER_TTL: u32 = 3;

/// See the module.
pub(super) struct HoldRenewer {
    /// Each process renews its own holds: what a child inherits is renewed by its parent, whose thread may have held the
    /// lock during the fork.
    shared: PerProcess<Shared>,
    began: Instant,
}

type Shared = (Mutex<Schedule>, Condvar);

impl Default for HoldRenewer {
    fn default() -> Self {
        Self { shared: PerProcess::new(), began: Instant::now() }
    }
}

#[derive(Default)]
struct Schedule {
    running: bool,
    stopped: bool,
    holds: BTreeMap<HoldId, Renewal>,
}

/// The next renewal of a hold.
struct Renewal {
    plan: Arc<Plan>,
    key: Box<str>,
    interval: Duration,
    /// When it is due, by the renewer's time.
    due: Duration,
}

impl HoldRenewer {
    pub(super) fn add(&self, core: &Arc<LimiterCore>, id: HoldId, plan: &Arc<Plan>, key: &str) {
        let limits = plan.policy.limits().iter().filter(|limit| limit.algorithm() == Algorithm::Concurrency);
        // A policy without such a limit has nothing to renew.
        let Some(ttl) = limits.map(|limit| limit.period().micros()).min() else { return };
        let interval = Duration::from_micros(ttl) / RENEWALS_PER_TTL;
        let renewal = Renewal { plan: Arc::clone(plan), key: key.into(), interval, due: self.time(core) + interval };
        let Ok(shared) = self.shared.get_or_try_init(|| Ok(Shared::default())) else { return };
        let (schedule, changed) = &**shared;
        let mut schedule = schedule.lock();
        schedule.holds.insert(id, renewal);
        if !schedule.running && !schedule.stopped && core.clock.is_none() {
            let (core, shared) = (Arc::downgrade(core), Arc::clone(&shared));
            let thread = std::thread::Builder::new().name("tidegate-holds".to_owned());
            // Without the thread the holds end with their ttl, as they would if the process died.
            schedule.running = thread.spawn(move || run(&core, &shared)).is_ok();
        }
        changed.notify_one();
    }

    /// The time of a clock that was given, or the time since this was made.
    fn time(&self, core: &LimiterCore) -> Duration {
        core.clock.as_ref().map_or_else(|| self.began.elapsed(), |clock| clock.now())
    }

    /// Renews the holds that are due; returns the time until the next one is, if there is any.
    pub(super) fn renew(&self, core: &LimiterCore) -> Option<Duration> {
        let shared = self.shared.get()?;
        loop {
            let now = self.time(core);
            let (id, plan, key) = {
                let mut schedule = shared.0.lock();
                let (id, renewal) = schedule.holds.iter_mut().min_by_key(|(_, renewal)| renewal.due)?;
                if renewal.due > now {
                    return Some(renewal.due - now);
                }
                renewal.due = now + renewal.interval;
                (*id, Arc::clone(&renewal.plan), renewal.key.clone())
            };
            let plan = core.policies.current(&plan);
            let entry = Entry { plan: &plan, key: &key, operation: Operation::Renew { hold: id } };
            // A renewal that fails is tried again after a third of the ttl.
            drop(core.store.ask(&entry, core.context()));
        }
    }

    pub(super) fn remove(&self, id: HoldId) {
        if let Some(shared) = self.shared.get() {
            shared.0.lock().holds.remove(&id);
        }
    }

    pub(super) fn stop(&self) {
        if let Some(shared) = self.shared.get() {
            shared.0.lock().stopped = true;
            shared.1.notify_one();
        }
    }
}

fn run(core: &Weak<LimiterCore>, (schedule, changed): &Shared) {
    while let Some(core) = core.upgrade() {
        let pause = core.hold_renewer.renew(&core);
        // The thread does not keep the limiter alive while it sleeps.
        drop(core);
        let mut schedule = schedule.lock();
        match pause {
            _ if schedule.stopped => return,
            Some(pause) => {
                changed.wait_for(&mut schedule, pause);
            }
            None if schedule.holds.is_empty() => changed.wait(&mut schedule),
            None => {}
        }
    }
}
