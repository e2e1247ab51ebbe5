//! How a caller takes a turn in the store and sleeps until then.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::bucket_turns::BucketTurn;
use super::sleep;
use super::wait_deadline::WaitDeadline;
use super::wait_queue::{TurnPlace, WaitQueue};
use crate::algorithm::MAX_SAFE_INTEGER;
use crate::decision::Decision;
use crate::error::Result;
use crate::limiter::LimiterCore;
use crate::limiter::call::gone;
use crate::limiter::translation::Asking;
use crate::plan::Plan;
use crate::process::waits::Waits;
use crate::store::request::{Operation, Source};

/// After a longer sleep, a caller asks if its key was blocked meanwhile.
const UNASKED_SLEEP: Duration = Duration::from_millis(50);

/// True if a call takes turns. One that leaves something free for others does not.
pub(super) fn takes_turns(plan: &Plan, operation: &Operation) -> bool {
    plan.takes_turns && operation.amounts().is_none_or(|amounts| amounts.iter().all(|amount| amount.reserve == 0))
}

/// Gives a turn up when it is dropped.
struct TurnHolder<'a> {
    core: &'a Arc<LimiterCore>,
    key: &'a str,
    place: Option<TurnPlace>,
}

impl Drop for TurnHolder<'_> {
    fn drop(&mut self) {
        if let Some(turn) = self.place.take().and_then(|place| place.give_up()) {
            self.core.refund_turn(self.key, turn);
        }
    }
}

impl LimiterCore {
    /// Waits for a turn in the store. `None` if the key has no turns, because of its override or of a learned limit that refuses it.
    pub(super) async fn acquire_turn(
        self: &Arc<Self>,
        plan: &Arc<Plan>,
        key: &str,
        operation: &Operation,
        deadline: &WaitDeadline<'_>,
        waits: Waits,
    ) -> Result<Option<Decision>> {
        let mut instead_of = 0;
        loop {
            let Some(place) = self.answers.wait_queues.join_turns(self, plan, key)? else {
                let denied = self.decision(Arc::clone(plan), key, operation.as_peek(), waits).await?.denied_by_others();
                self.note_denial(plan, key, operation, &denied, waits).await;
                return Ok(Some(denied));
            };
            deadline.listen(place.signal());
            let within = deadline.left().map_or(MAX_SAFE_INTEGER, |left| left.as_micros() as u64);
            let (queue, number) = place.destination();
            let mut holder = TurnHolder { core: self, key, place: Some(place) };
            let keep = move |core: &Arc<Self>, decision| core.keep_turn(&queue, number, decision);
            if let Some(decision) =
                self.ask_waiting(plan, key, operation.as_turn(within, instead_of), waits, keep).await?
            {
                let ends = decision.allowed() || decision.plan().takes_turns && !decision.learned();
                return Ok(ends.then_some(decision));
            }
            let (granted, began) = (holder.place.as_ref().and_then(TurnPlace::granted), self.time());
            let (source, asked_at) = granted.unzip();
            self.sleep_until_turn(&holder, waits).await?;
            if self.time().saturating_sub(began) > UNASKED_SLEEP {
                let blocked = self.is_blocked(plan, key, source, deadline.end(), waits).await;
                self.open()?;
                if blocked {
                    // Its charge counts for that moment, so it takes another turn.
                    instead_of = asked_at.unwrap_or(0);
                    continue;
                }
            }
            let place = holder.place.take();
            return place.and_then(|place| place.take(self.id, key)).ok_or_else(gone).map(Some);
        }
    }

    /// True if the key of a caller with a turn is blocked, as far as that shows by the end of its time. The turn is
    /// granted: neither a lost store nor an answer in its place takes it away.
    async fn is_blocked(
        self: &Arc<Self>,
        plan: &Arc<Plan>,
        key: &str,
        granted_by: Option<Source>,
        end: Option<Instant>,
        waits: Waits,
    ) -> bool {
        if end.is_some_and(|end| end <= Instant::now()) {
            return false;
        }
        let seen = self.decision(Arc::clone(plan), key, Asking::until(Operation::peek(1), end), waits).await;
        seen.is_ok_and(|seen| {
            let is_known = seen.source() != Source::Fallback || granted_by == Some(Source::Fallback);
            is_known && seen.answer().blocked_until > seen.answer().now
        })
    }

    /// The moment of a Decision's turn, by the time of the limiter. A clock that is moved by hand is also the store's.
    fn turn_due(&self, decision: &Decision) -> Option<Duration> {
        let answer = decision.answer();
        let after = Duration::from_micros(answer.turn_after()?);
        let from = if self.clock.is_some() { Duration::from_micros(answer.now) } else { self.time() };
        Some(from + after)
    }

    /// Keeps the turn of a Decision for its caller, or passes it on if the caller is gone. Returns a Decision without a turn.
    fn keep_turn(self: &Arc<Self>, queue: &WaitQueue, number: u64, decision: Decision) -> Result<Option<Decision>> {
        let due = match self.turn_due(&decision) {
            Some(due) => due,
            // Turns may be behind it, and they have to go back first.
            None if decision.allowed() && self.open().is_err() => Duration::ZERO,
            None => return Ok(Some(decision)),
        };
        let (cost, key) = (decision.cost(), decision.key().to_owned());
        if let Some(turn) = queue.turns().add(number, cost, BucketTurn::new(decision, due)) {
            let left = queue.turns().pass_on(turn);
            queue.signal().notify();
            self.refund_turn(&key, left);
        }
        Ok(None)
    }

    async fn sleep_until_turn(&self, holder: &TurnHolder<'_>, waits: Waits) -> Result<()> {
        let Some(place) = &holder.place else { return Ok(()) };
        loop {
            // Before it checks that the limiter is open, so that it does not miss a close.
            let count = place.signal().count();
            self.open()?;
            let left = place.due().unwrap_or_default().saturating_sub(self.time());
            if left.is_zero() {
                return Ok(());
            }
            // A clock that is moved by hand wakes the sleeper.
            let longest = self.clock.is_none().then_some(left);
            sleep(place.signal(), count, longest, waits).await;
        }
    }

    /// Gives back a turn that no caller of this process can use, without waiting. The store takes it if it is the last turn.
    pub(super) fn refund_turn(self: &Arc<Self>, key: &str, turn: BucketTurn) {
        let (plan, operation) = turn.refund();
        self.post(plan, key, operation);
    }
}
