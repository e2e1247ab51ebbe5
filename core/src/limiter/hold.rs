//! Units in progress: renewed while the hold lives, given back when it is dropped, also by a panic.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use tokio::sync::oneshot;

use super::LimiterCore;
use crate::algorithm::HoldId;
use crate::decision::Decision;
use crate::fork::{self, PerProcess};
use crate::plan::Plan;
use crate::policy::Algorithm;
use crate::store::completion::wake;
use crate::store::request::{Entry, Operation};
use crate::store::submit_then;

/// A hold is renewed this many times within its ttl, so that one lost renewal does not lose it.
const RENEWALS: u32 = 3;

/// Units of a `concurrency` limit. Drop it to give them back.
#[must_use = "the units are given back when the hold is dropped"]
pub struct Hold {
    core: Arc<LimiterCore>,
    id: HoldId,
    decision: Decision,
    /// Whether dropping it may block the thread.
    blocking: bool,
    /// Told when the store has answered that it was given back.
    told: Option<oneshot::Sender<()>>,
    /// The process that took it: a copy of it in a forked child gives nothing back.
    process: u64,
}

impl Hold {
    pub(super) fn new(core: &Arc<LimiterCore>, id: HoldId, decision: Decision, blocking: bool) -> Self {
        core.keeper.keep(core, id, decision.plan(), decision.key());
        Self { core: Arc::clone(core), id, decision, blocking, told: None, process: fork::generation() }
    }

    /// The Decision that let it in.
    #[must_use]
    pub const fn decision(&self) -> &Decision {
        &self.decision
    }

    /// Gives it back and waits until the store has it; dropping it does not wait. When the store cannot be reached the
    /// ttl gives it back.
    pub async fn release(mut self) {
        let (told, done) = oneshot::channel();
        (self.blocking, self.told) = (false, Some(told));
        drop(self);
        // A store that is closed does not answer; then there is nothing to wait for.
        let _ = done.await;
    }
}

impl std::fmt::Debug for Hold {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Hold").field("decision", &self.decision).finish_non_exhaustive()
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        if self.process != fork::generation() {
            return;
        }
        self.core.keeper.forget(self.id);
        let (plan, key) = (&self.core.policies.current(self.decision.plan()), self.decision.key());
        let entry = Entry { plan, key, operation: Operation::Close { hold: self.id } };
        // When the store cannot be reached the ttl gives it back.
        if self.blocking {
            drop(self.core.store.ask(&entry, self.core.context()));
            self.core.given_back(plan, key);
        } else {
            let (core, plan, key) = (Arc::clone(&self.core), Arc::clone(plan), Box::<str>::from(key));
            let told = self.told.take();
            let done = move |_| {
                core.given_back(&plan, &key);
                if let Some(told) = told {
                    // Whoever stopped waiting does not want to know.
                    let _ = told.send(());
                }
                None
            };
            wake(submit_then(&self.core.store, &entry, self.core.context(), done));
        }
    }
}

/// The answer to `hold`.
#[derive(Debug)]
#[must_use = "the units are given back when the hold is dropped"]
pub enum HoldAnswer {
    /// There was room: the units are held.
    Held(Hold),
    /// A limit refused.
    Denied(Decision),
}

impl HoldAnswer {
    /// The hold, if there was room.
    pub fn held(self) -> Option<Hold> {
        match self {
            Self::Held(hold) => Some(hold),
            Self::Denied(_) => None,
        }
    }

    /// The Decision of the limits, in either case.
    #[must_use]
    pub const fn decision(&self) -> &Decision {
        match self {
            Self::Held(hold) => hold.decision(),
            Self::Denied(decision) => decision,
        }
    }
}

/// One thread that renews all holds of a limiter; it starts with the first and ends with the limiter. With a clock that
/// is moved by hand whoever moves it renews what is due.
pub(super) struct Keeper {
    /// Each process renews its own: what a child inherits is renewed by its parent, whose thread may sleep on the lock.
    shared: PerProcess<Shared>,
    began: Instant,
}

type Shared = (Mutex<Kept>, Condvar);

impl Default for Keeper {
    fn default() -> Self {
        Self { shared: PerProcess::new(), began: Instant::now() }
    }
}

#[derive(Default)]
struct Kept {
    running: bool,
    stopped: bool,
    holds: BTreeMap<HoldId, Keep>,
}

struct Keep {
    plan: Arc<Plan>,
    key: Box<str>,
    every: Duration,
    /// When it is due, since the keeper began.
    next: Duration,
}

impl Keeper {
    fn keep(&self, core: &Arc<LimiterCore>, id: HoldId, plan: &Arc<Plan>, key: &str) {
        let limits = plan.policy.limits().iter().filter(|limit| limit.algorithm() == Algorithm::Concurrency);
        // A policy without such a limit has nothing to renew.
        let Some(ttl) = limits.map(|limit| limit.period().micros()).min() else { return };
        let every = Duration::from_micros(ttl) / RENEWALS;
        let keep = Keep { plan: Arc::clone(plan), key: key.into(), every, next: self.time(core) + every };
        let Ok(shared) = self.shared.get_or_try_init(|| Ok(Shared::default())) else { return };
        let (kept, changed) = &**shared;
        let mut kept = kept.lock();
        kept.holds.insert(id, keep);
        if !kept.running && !kept.stopped && core.clock.is_none() {
            let (core, shared) = (Arc::downgrade(core), Arc::clone(&shared));
            let thread = std::thread::Builder::new().name("tidegate-holds".to_owned());
            // Without the thread the holds end with their ttl, as they would if the process died.
            kept.running = thread.spawn(move || run(&core, &shared)).is_ok();
        }
        changed.notify_one();
    }

    fn time(&self, core: &LimiterCore) -> Duration {
        core.clock.as_ref().map_or_else(|| self.began.elapsed(), |clock| clock.now())
    }

    /// Renews the holds that are due; says how long it is until the next is, if there is any.
    pub(super) fn renew(&self, core: &LimiterCore) -> Option<Duration> {
        let shared = self.shared.get()?;
        loop {
            let now = self.time(core);
            let (id, plan, key) = {
                let mut kept = shared.0.lock();
                let (id, keep) = kept.holds.iter_mut().min_by_key(|(_, keep)| keep.next)?;
                if keep.next > now {
                    return Some(keep.next - now);
                }
                keep.next = now + keep.every;
                (*id, Arc::clone(&keep.plan), keep.key.clone())
            };
            let plan = core.policies.current(&plan);
            let entry = Entry { plan: &plan, key: &key, operation: Operation::Renew { hold: id } };
            // A renewal that fails is tried again after a third of the ttl.
            drop(core.store.ask(&entry, core.context()));
        }
    }

    fn forget(&self, id: HoldId) {
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

fn run(core: &Weak<LimiterCore>, (kept, changed): &Shared) {
    while let Some(core) = core.upgrade() {
        let pause = core.keeper.renew(&core);
        // Asleep, the thread keeps no limiter alive.
        drop(core);
        let mut kept = kept.lock();
        match pause {
            _ if kept.stopped => return,
            Some(pause) => {
                changed.wait_for(&mut kept, pause);
            }
            None if kept.holds.is_empty() => changed.wait(&mut kept),
            None => {}
        }
    }
}
