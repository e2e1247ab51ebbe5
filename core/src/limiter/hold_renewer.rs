//! One thread renews all holds of a limiter. It starts with the first hold and ends with the limiter. With a clock that
//! is moved by hand there is no thread: the thread that moves the clock renews the holds that are due.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use crate::process::lock::{Condvar, Mutex};

use super::LimiterCore;
use super::call::gone;
use super::hold_lifetime::{HoldLifetime, Renewed, ttl};
use crate::algorithm::HoldId;
use crate::decision::Decision;
use crate::error::Result;
use crate::plan::Plan;
use crate::process::fork::PerProcess;
use crate::resilience::ask;
use crate::store::request::{Entry, Operation};

/// A hold is renewed this many times within its ttl, so that one lost renewal does not lose it.
const RENEWALS_PER_TTL: u32 = 3;

/// Renews all holds of a limiter, three times within each ttl.
pub(super) struct HoldRenewer {
    /// Each process renews its own holds. The parent renews those that a child inherits, and its thread may have held
    /// the lock during the fork.
    shared: PerProcess<Shared>,
    began: Instant,
    /// Renewals that the store did not answer.
    pub(super) failed: AtomicU64,
    /// Holds that were lost.
    pub(super) lost: AtomicU64,
    /// True if a failure, and a loss, was logged since the last renewal that succeeded.
    failure_logged: AtomicBool,
    loss_logged: AtomicBool,
}

type Shared = (Mutex<Schedule>, Condvar);

impl Default for HoldRenewer {
    fn default() -> Self {
        let (failed, lost) = (AtomicU64::new(0), AtomicU64::new(0));
        let (failure_logged, loss_logged) = (AtomicBool::new(false), AtomicBool::new(false));
        Self { shared: PerProcess::new(), began: Instant::now(), failed, lost, failure_logged, loss_logged }
    }
}

#[derive(Default)]
struct Schedule {
    running: bool,
    stopped: bool,
    holds: BTreeMap<HoldId, Renewal>,
    /// The holds that a shared store was asked for, and their policies and keys.
    asked: BTreeMap<HoldId, (Arc<Plan>, Box<str>)>,
}

/// A hold that a limiter gives back when it closes.
pub(super) struct LeftHold {
    pub(super) id: HoldId,
    pub(super) plan: Arc<Plan>,
    pub(super) key: Box<str>,
}

/// The next renewal of a hold.
struct Renewal {
    plan: Arc<Plan>,
    key: Box<str>,
    interval: Duration,
    lifetime: Arc<HoldLifetime>,
    /// When it is due, by the renewer's time.
    due: Duration,
    /// The time from which it is not renewed any more.
    ends: Option<Duration>,
}

impl HoldRenewer {
    /// Notes that a shared store is about to be asked for a hold.
    pub(super) fn ask(&self, id: HoldId, plan: &Arc<Plan>, key: &str) {
        self.shared.with(Shared::default, |(schedule, _)| {
            schedule.lock().asked.insert(id, (Arc::clone(plan), key.into()));
        });
    }

    /// Renews the hold of a Decision from now on, unless the limiter is closed. Its check began at `began`.
    pub(super) fn add(
        &self,
        core: &Arc<LimiterCore>,
        id: HoldId,
        decision: &Decision,
        began: Duration,
    ) -> Result<Arc<HoldLifetime>> {
        let lifetime = Arc::new(HoldLifetime::new(decision, began));
        // A policy without such a limit has nothing to renew.
        let is_open = if let Some(ttl) = ttl(decision.plan()) {
            let plan = Arc::clone(decision.plan());
            let key = decision.key().into();
            let interval = ttl / RENEWALS_PER_TTL;
            let due = self.time(core) + interval;
            let longest = plan.policy.options().max_hold;
            let ends = longest.map(|longest| began + Duration::from_micros(longest.micros()));
            self.schedule(core, id, Renewal { plan, key, interval, lifetime: Arc::clone(&lifetime), due, ends })
        } else {
            core.open().is_ok()
        };
        if is_open { Ok(lifetime) } else { Err(gone()) }
    }

    /// Schedules a renewal. True if the limiter is open.
    fn schedule(&self, core: &Arc<LimiterCore>, id: HoldId, renewal: Renewal) -> bool {
        let shared = self.shared.get_or_init(Shared::default);
        let (schedule, changed) = &**shared;
        let mut schedule = schedule.lock();
        if schedule.stopped {
            return false;
        }
        schedule.asked.remove(&id);
        schedule.holds.insert(id, renewal);
        if !schedule.running && core.clock.is_none() {
            let core = Arc::downgrade(core);
            let shared = Arc::clone(&shared);
            let thread = std::thread::Builder::new().name("tidegate-holds".to_owned());
            // Without the thread the holds end with their ttl, as they would if the process died.
            schedule.running = thread.spawn(move || run(&core, &shared)).is_ok();
        }
        changed.notify_one();
        true
    }

    /// The time of the clock that was given, or the time since this was made.
    pub(super) fn time(&self, core: &LimiterCore) -> Duration {
        core.clock.as_ref().map_or_else(|| self.began.elapsed(), |clock| clock.now())
    }

    /// Renews the holds that are due. Returns the time until the next one is due, if there is any.
    pub(super) fn renew(&self, core: &LimiterCore) -> Option<Duration> {
        let shared = self.shared.get()?;
        loop {
            let now = self.time(core);
            let (id, plan, key, lifetime) = {
                let mut schedule = shared.0.lock();
                if schedule.stopped {
                    return None;
                }
                let (id, renewal) = schedule.holds.iter_mut().min_by_key(|(_, renewal)| renewal.due)?;
                if renewal.due > now {
                    return Some(renewal.due - now);
                }
                if renewal.ends.is_some_and(|ends| now >= ends) {
                    let id = *id;
                    schedule.holds.remove(&id);
                    continue;
                }
                renewal.due = now + renewal.interval;
                (*id, Arc::clone(&renewal.plan), renewal.key.clone(), Arc::clone(&renewal.lifetime))
            };
            let plan = core.current(&plan, &key);
            let entry = Entry { plan: &plan, key: &key, operation: Operation::Renew { hold: id } };
            let (plan, answer) = match ask(&*core.store, &entry, core.context()) {
                Ok(answer) if answer.changed_override().is_some() => {
                    let overrides = &core.answers.overrides;
                    let repeated = overrides.repeated(&*core.store, (&entry, None), answer, core.now(), true);
                    repeated.map_or_else(|| (Arc::clone(&plan), Err(gone())), |(moved, answer)| (moved.plan, answer))
                }
                answer => (Arc::clone(&plan), answer),
            };
            match lifetime.renewed(&plan, now, answer) {
                Renewed::Kept => {
                    self.failure_logged.store(false, Ordering::Relaxed);
                    self.loss_logged.store(false, Ordering::Relaxed);
                }
                Renewed::Gone => {
                    self.remove(id);
                    self.lose(core, &plan, &lifetime, "the store does not have it any more");
                }
                // It is tried again after a third of the ttl.
                Renewed::Failed(error) => {
                    self.failed.fetch_add(1, Ordering::Relaxed);
                    if !self.failure_logged.swap(true, Ordering::Relaxed) {
                        let why = error.map_or_else(|| "the store is lost".to_owned(), |error| error.to_string());
                        core.log.warn(&format!(
                            "a hold of the policy {:?} was not renewed: {why}. Tidegate tries again until its ttl has passed, \
                             and then the hold is lost",
                            plan.policy.name()
                        ));
                    }
                    self.is_lost(core, &plan, &lifetime);
                }
            }
        }
    }

    /// True if the units of a hold cannot be relied on any more.
    pub(super) fn is_lost(&self, core: &LimiterCore, plan: &Plan, lifetime: &HoldLifetime) -> bool {
        if !lifetime.is_lost() && lifetime.is_over(self.time(core)) {
            self.lose(core, plan, lifetime, "it was not renewed within its ttl");
        }
        lifetime.is_lost()
    }

    #[cold]
    fn lose(&self, core: &LimiterCore, plan: &Plan, lifetime: &HoldLifetime, why: &str) {
        if lifetime.lose() {
            self.lost.fetch_add(1, Ordering::Relaxed);
            if !self.loss_logged.swap(true, Ordering::Relaxed) {
                core.log.warn(&format!(
                    "a hold of the policy {:?} is lost: {why}. Other callers may have its units now. Check `lost` of the \
                     hold, and stop the work",
                    plan.policy.name()
                ));
            }
        }
    }

    /// Removes a hold that goes back or was not granted. A limiter that closes gives back all that are left.
    pub(super) fn remove(&self, id: HoldId) {
        if let Some(shared) = self.shared.get() {
            let mut schedule = shared.0.lock();
            schedule.holds.remove(&id);
            if !schedule.stopped {
                schedule.asked.remove(&id);
            }
        }
    }

    /// From now on there are no new holds, and none is renewed.
    pub(super) fn stop(&self) {
        let shared = self.shared.get_or_init(Shared::default);
        shared.0.lock().stopped = true;
        shared.1.notify_one();
    }

    /// Takes all holds when a limiter closes. Their owners lose them.
    pub(super) fn take_all(&self) -> Vec<LeftHold> {
        let Some(shared) = self.shared.get() else { return Vec::new() };
        let mut schedule = shared.0.lock();
        let asked = std::mem::take(&mut schedule.asked).into_iter().map(|(id, (plan, key))| LeftHold { id, plan, key });
        let mut left: Vec<LeftHold> = asked.collect();
        left.extend(std::mem::take(&mut schedule.holds).into_iter().map(
            |(id, Renewal { plan, key, lifetime, .. })| {
                lifetime.lose();
                LeftHold { id, plan, key }
            },
        ));
        left
    }
}

fn run(core: &Weak<LimiterCore>, (schedule, changed): &Shared) {
    while let Some(core) = core.upgrade() {
        let pause = core.hold_renewer.renew(&core);
        // The thread does not keep the limiter alive while it sleeps.
        drop(core);
        let schedule = schedule.lock();
        match pause {
            _ if schedule.stopped => return,
            Some(pause) => drop(changed.wait_until(schedule, Instant::now() + pause)),
            None if schedule.holds.is_empty() => drop(changed.wait(schedule)),
            None => {}
        }
    }
}
