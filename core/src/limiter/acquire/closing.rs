//! How a limiter closes. It ends the waiting, takes nothing any more, gives back the units and turns of its callers,
//! and then closes its store. docs/adr/0036 has the states.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use smallvec::SmallVec;
use tokio::sync::oneshot;

use super::wait_queue::WaitQueue;
use crate::algorithm::{HoldId, Rule};
use crate::decision::Decision;
use crate::error::Result;
use crate::limiter::call::{gone, sent};
use crate::limiter::file_watch::FileWatch;
use crate::limiter::hold_renewer::LeftHold;
use crate::limiter::translation::Asking;
use crate::limiter::{CLOSED, LimiterCore};
use crate::plan::Plan;
use crate::process::pending_count::CountedCall;
use crate::process::waits::Waits;
use crate::store::request::{Charge, ChargedAmount, Operation, Source};

impl LimiterCore {
    /// Closes the limiter. It waits for the store, at most for two timeouts of a call, and for one more if there are leases.
    pub(in crate::limiter) fn close(self: &Arc<Self>) {
        if let Some(queues) = self.begin_closing() {
            self.give_back(&queues);
        }
    }

    /// From now on no call is made and nothing is granted. Returns the queues if the limiter was open, for [`Self::give_back`].
    pub(crate) fn begin_closing(&self) -> Option<Vec<Arc<WaitQueue>>> {
        let (queues, was_closed) =
            self.answers.wait_queues.close(|| self.state.swap(CLOSED, Ordering::SeqCst) == CLOSED);
        if was_closed {
            return None;
        }
        self.hold_renewer.stop();
        self.watch.iter().for_each(FileWatch::end);
        Some(queues)
    }

    /// Counts a call that takes or gives back units, until this is dropped. A limiter that closes waits for it. A
    /// memory store has already answered when its call returns.
    pub(in crate::limiter) fn counted(&self) -> Option<CountedCall> {
        self.layers.is_some().then(|| self.pending.begin())
    }

    /// Ends the waiting, gives back units and turns of the callers, and closes the store.
    pub(crate) fn give_back(self: &Arc<Self>, queues: &[Arc<WaitQueue>]) {
        let lines: Vec<Vec<HoldId>> = queues.iter().map(|queue| queue.line_numbers()).collect();
        queues.iter().for_each(|queue| queue.signal().notify());
        // The store may still grant calls that are under way now.
        self.pending.wait(Instant::now() + self.timeout);
        for (queue, lines) in queues.iter().zip(lines) {
            // The store takes a turn back only if none is behind it. Servers answer in order, and a file answers here.
            for turn in queue.turns().take_all().into_iter().rev() {
                if !self.is_file {
                    self.refund_turn(&queue.key, turn);
                    continue;
                }
                let (plan, operation) = turn.refund();
                if self.run_here(plan, &queue.key, operation).is_err() {
                    break;
                }
            }
            for waiter in lines.into_iter().filter(|_| self.layers.is_some()) {
                self.post(Arc::clone(&queue.plan), &queue.key, Operation::Leave { waiter });
            }
        }
        for LeftHold { id, plan, key } in self.hold_renewer.take_all() {
            self.post(self.current(&plan, &key), &key, Operation::Close { hold: id });
        }
        self.pending.wait(Instant::now() + self.timeout);
        self.store.close();
    }

    /// Asks the store on behalf of a caller that may wait, unless the limiter is closed. Calls `answered` with the
    /// Decision when the store has given it, even if the caller is gone.
    pub(super) async fn ask_waiting<T: Send + 'static>(
        self: &Arc<Self>,
        plan: &Arc<Plan>,
        key: &str,
        asking: impl Into<Asking>,
        waits: Waits,
        answered: impl FnOnce(&Arc<Self>, Decision) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        // The order matters: either a close waits for the answer, or the close is seen here.
        let mut counted = self.counted();
        self.open()?;
        if waits == Waits::Here {
            let decision = self.run_here(Arc::clone(plan), key, asking)?;
            return answered(self, decision);
        }
        let (mut answered, mut receiver) = (Some(answered), None);
        let make = || {
            let (core, counted, answered) = (Arc::clone(self), counted.take(), answered.take());
            let (answer, answer_received) = oneshot::channel();
            receiver = Some(answer_received);
            move |decision: Result<Decision>| {
                let result = match answered {
                    Some(answered) => decision.and_then(|decision| answered(&core, decision)),
                    None => Err(gone()),
                };
                drop(counted);
                sent(answer, result)
            }
        };
        match (self.run(Arc::clone(plan), key, asking, Waits::Later((None, make))), receiver) {
            (None, Some(receiver)) => receiver.await.unwrap_or_else(|_| Err(gone())),
            (Some(decision), _) => match answered.take() {
                Some(answered) => decision.and_then(|decision| answered(self, decision)),
                None => Err(gone()),
            },
            (None, None) => Err(gone()),
        }
    }

    /// The Decision of a caller that waited. If the limiter is closed, the units of a check go back instead.
    pub(super) fn unless_closed(self: &Arc<Self>, decision: Decision) -> Result<Decision> {
        let Err(error) = self.open() else { return Ok(decision) };
        let (plan, key) = (self.current(decision.plan(), decision.key()), decision.key());
        if decision.allowed() && !plan.rules.iter().all(|rule| matches!(rule, Rule::Concurrency(_))) {
            let amounts: SmallVec<[ChargedAmount; 2]> =
                decision.charged_amounts(&plan).map(|charged| ChargedAmount { back: charged, charged }).collect();
            let units = amounts.iter().map(|amount| amount.back).max().unwrap_or(0);
            let charge = Arc::new(Charge { amounts, ..decision.charge(&plan) });
            match (Operation::GiveBack { units, charge }, decision.source()) {
                (operation, Source::Fallback) => self.settle_in_fallback(&plan, key, operation),
                (operation, _) if units > 0 => self.post(plan, key, operation),
                _ => {}
            }
        }
        Err(error)
    }
}
