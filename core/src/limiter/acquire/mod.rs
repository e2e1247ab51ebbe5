//! How `acquire`, and `hold` with a timeout, wait: for a turn of buckets, else in a queue for each policy and key. The
//! first callers of the queues stand in the line of the key over all processes. docs/adr/0036 has the reasons.

mod bucket_turns;
mod closing;
mod queue_estimate;
mod turn_taking;
mod wait_deadline;
mod wait_queue;
mod wait_queues;

use std::mem::replace;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::LimiterCore;
use super::call::NoCompletion;
use super::operations::{CheckOptions, attempt, rank, whole_operation};
use super::policy_ref::AsPolicy;
use super::spans::{SpanName, may_be_on, spanned};
use super::translation::Asking;
use crate::algorithm::HoldId;
use crate::decision::Decision;
use crate::error::{ErrorKind, Result};
use crate::plan::Plan;
use crate::process::clock::Signal;
use crate::process::waits::Waits;
use crate::store::request::{Operation, Source};
use queue_estimate::{QueueEstimate, WantedUnits};
use turn_taking::takes_turns;
use wait_deadline::{Pause, WaitDeadline};
use wait_queue::{QueuePosition, Wanted};
use wait_queues::Joined;
pub(super) use wait_queues::{WaitBounds, WaitQueues};

/// The least time for a question at the end of a caller's time.
const LAST_QUESTION: Duration = Duration::from_millis(10);

/// How often a caller looks again at most because those ahead of it moved.
const MAX_REPEATED_LOOKS: u8 = 8;

/// The next step of a caller that waits.
enum AcquireStep {
    /// It asks the store, and gives the answer to [`Acquire::answered`].
    Ask(Operation),
    /// It sleeps until the signal has another count, for at most `longest`.
    Sleep { signal: Arc<Signal>, count: u64, longest: Option<Duration> },
}

/// The state of a caller that waits.
enum CallerState {
    Queued(QueuePosition),
    /// It asks how long the others take.
    GivesUp(QueueEstimate),
    /// It did not get its units in time, and its policy punishes that. It makes a check like one that never waited.
    Checks,
}

/// A caller that waits in a queue.
struct Acquire<'a> {
    core: &'a Arc<LimiterCore>,
    plan: &'a Arc<Plan>,
    key: &'a str,
    operation: &'a Operation,
    deadline: &'a WaitDeadline<'a>,
    state: CallerState,
    /// Its number in the line of all processes, while it stands there.
    in_line: Option<HoldId>,
    /// True if its time was over when it asked the store.
    asked_late: bool,
    /// The count of the signal before it asked the store, and the sleep after the refusal.
    count: u64,
    pause: Option<Pause>,
    /// The time of its first question.
    asked_since: Option<Duration>,
    /// The question of a caller that is not first: can its turn come in the time that is left?
    looks: Option<(QueueEstimate, Duration)>,
    has_looked: bool,
    /// How often it may still look again, so that a first caller that asks all the time does not keep it from an answer.
    looks_left: u8,
    /// The end of the last block of its key that it has seen.
    known_block: u64,
    /// The last refusal of the store, and the longest time that an answer took.
    refusal: Option<Decision>,
    slowest: Option<Duration>,
}

impl<'a> Acquire<'a> {
    /// Enters the queue, or gives up at once if it is full.
    fn begin(
        core: &'a Arc<LimiterCore>,
        plan: &'a Arc<Plan>,
        key: &'a str,
        (operation, rank): (&'a Operation, u64),
        deadline: &'a WaitDeadline<'a>,
    ) -> Result<Self> {
        let wanted = Wanted { rank, units: WantedUnits::of(operation), since: core.time() };
        let state = match core.answers.wait_queues.join(core, plan, key, wanted)? {
            Joined::Position(position) => {
                deadline.listen(position.signal());
                CallerState::Queued(position)
            }
            Joined::Full(ahead) => CallerState::GivesUp(QueueEstimate::new(operation, ahead)),
        };
        Ok(Self {
            core,
            plan,
            key,
            operation,
            deadline,
            state,
            in_line: None,
            asked_late: false,
            count: 0,
            pause: None,
            asked_since: None,
            looks: None,
            has_looked: false,
            looks_left: MAX_REPEATED_LOOKS,
            known_block: 0,
            refusal: None,
            slowest: None,
        })
    }

    /// # Errors
    /// `closed`.
    fn step(&mut self) -> Result<AcquireStep> {
        let position = match &self.state {
            CallerState::Queued(position) => position,
            CallerState::GivesUp(estimate) => return Ok(AcquireStep::Ask(estimate.operation(self.plan))),
            CallerState::Checks => return Ok(AcquireStep::Ask(self.operation.clone())),
        };
        let signal = Arc::clone(position.signal());
        if let Some(pause) = self.pause.take() {
            return Ok(AcquireStep::Sleep { signal, count: self.count, longest: self.deadline.sleep(Some(pause)) });
        }
        // Before it checks that the limiter is open, so that it does not miss a close.
        self.count = signal.count();
        self.core.open()?;
        self.asked_late = self.deadline.is_over();
        let block = position.blocked_until();
        let has_looked = replace(&mut self.has_looked, true) & (block <= replace(&mut self.known_block, block));
        match position.units_ahead() {
            None => {
                position.begin_question();
                // In memory there are no callers of other processes.
                let place = self.core.layers.is_some().then(|| position.line_place(self.core.time()));
                self.in_line = place.map(|place| place.waiter);
                Ok(AcquireStep::Ask(attempt(self.operation, place)))
            }
            Some(ahead) if self.asked_late => {
                let estimate = QueueEstimate::new(self.operation, ahead);
                let asked = estimate.operation(self.plan);
                self.state = CallerState::GivesUp(estimate);
                Ok(AcquireStep::Ask(asked))
            }
            Some(ahead) if !has_looked && self.deadline.left().is_some() => {
                let left = self.deadline.left().unwrap_or_default();
                let (estimate, _) = self.looks.insert((QueueEstimate::new(self.operation, ahead), left));
                Ok(AcquireStep::Ask(estimate.operation(self.plan)))
            }
            Some(_) => Ok(AcquireStep::Sleep { signal, count: self.count, longest: self.deadline.sleep(None) }),
        }
    }

    /// The denial of a caller that looked, if its turn comes too late.
    fn looked(&mut self, estimate: &QueueEstimate, left: Duration, decision: Decision) -> Option<Decision> {
        let wait = Duration::from_micros(estimate.least_wait(decision.plan(), decision.answer()));
        if wait <= left {
            return None;
        }
        // The estimate may have counted the units of a caller that was admitted meanwhile twice: as charged and as wanted.
        let has_moved = matches!(&self.state, CallerState::Queued(position) if position.has_moved(self.count));
        if has_moved && self.looks_left > 0 {
            (self.has_looked, self.looks_left) = (false, self.looks_left - 1);
            return None;
        }
        let plan = Arc::clone(decision.plan());
        let denied = estimate.denied(self.core.id, plan, self.key, decision.into_answer());
        self.core.answers.decisions.count_check(denied.plan(), denied.key(), denied.answer());
        Some(denied)
    }

    /// The Decision, unless the caller sleeps or asks again.
    fn answered(&mut self, decision: Decision) -> Option<Decision> {
        if let Some((estimate, left)) = self.looks.take() {
            return self.looked(&estimate, left, decision);
        }
        let decision = match &self.state {
            CallerState::GivesUp(estimate) => {
                let plan = Arc::clone(decision.plan());
                estimate.denied(self.core.id, plan, self.key, decision.into_answer())
            }
            CallerState::Queued(position) => {
                if !decision.allowed() {
                    position.tell_block(decision.answer().blocked_until);
                }
                let now = self.core.time();
                let asked_for = now.saturating_sub(*self.asked_since.get_or_insert(now));
                self.pause = self.deadline.pause(&decision, asked_for);
                // Its last look is at the end of its time, even if the answer before that arrived late.
                let looks_again = !decision.allowed() && !self.asked_late && self.deadline.is_over();
                if self.pause.is_some() || looks_again {
                    position.end_question();
                    self.refusal = (decision.source() != Source::Fallback).then_some(decision);
                    return None;
                }
                if decision.allowed() {
                    self.in_line = None;
                } else if decision.plan().punishes_denials() {
                    self.leave_line();
                    self.state = CallerState::Checks;
                    return None;
                }
                decision
            }
            // It is counted already.
            CallerState::Checks => return Some(decision),
        };
        self.core.answers.decisions.count_check(decision.plan(), decision.key(), decision.answer());
        Some(decision)
    }
}

/// The time that a caller gives a question.
#[derive(Clone, Copy)]
struct GivenTime {
    until: Instant,
    /// True if the caller's time is over by then.
    is_last: bool,
}

impl Acquire<'_> {
    /// The time for the next question: the time left, and near its end twice the longest answer. The first has the time of any call.
    fn given(&self) -> Option<GivenTime> {
        let (end, slowest) = (self.deadline.end()?, self.slowest?);
        let least = Instant::now() + (2 * slowest).max(LAST_QUESTION);
        Some(GivenTime { until: end.max(least), is_last: end < least })
    }

    /// The answer to a question. If the last question has no answer in time, the refusal before it stands.
    fn heard(&mut self, asked: Result<Decision>, given: Option<GivenTime>, took: Duration) -> Result<Decision> {
        let is_lost = asked.as_ref().map_or_else(
            |error| error.kind() == ErrorKind::StoreTimeout,
            |decision| decision.source() == Source::Fallback,
        );
        if !is_lost {
            self.slowest = self.slowest.max(Some(took));
        }
        let refusal = self.refusal.take().filter(|_| is_lost && given.is_some_and(|given| given.is_last));
        if let (Some(_), Operation::Check { hold: hold @ 1.., .. }) = (&refusal, self.operation) {
            // The store may have granted it all the same.
            self.core.post(Arc::clone(self.plan), self.key, Operation::Close { hold: *hold });
        }
        refusal.map_or(asked, Ok)
    }

    /// Leaves the line of all processes, unless another caller of this process takes the place over. A limiter that closes does so itself.
    fn leave_line(&mut self) {
        let (Some(waiter), CallerState::Queued(position)) = (self.in_line.take(), &self.state) else { return };
        if position.next().is_none() && self.core.open().is_ok() {
            self.core.post(Arc::clone(self.plan), self.key, Operation::Leave { waiter });
        }
    }
}

impl Drop for Acquire<'_> {
    fn drop(&mut self) {
        self.leave_line();
    }
}

/// Sleeps until the signal has another count than this, for at most `longest`.
async fn sleep(signal: &Signal, count: u64, longest: Option<Duration>, waits: Waits) {
    match waits {
        Waits::Here => signal.wait(count, longest),
        _ => signal.wait_async(count, longest).await,
    }
}

impl LimiterCore {
    /// Makes a call without waiting for its answer, which no one reads.
    fn post(self: &Arc<Self>, plan: Arc<Plan>, key: &str, operation: Operation) {
        self.run(plan, key, operation, Waits::Later((None, || |_: Result<Decision>| None)));
    }

    /// Notes in the journal that a caller was denied, if none of its calls noted it there.
    async fn note_denial(
        self: &Arc<Self>,
        plan: &Arc<Plan>,
        key: &str,
        operation: &Operation,
        decision: &Decision,
        waits: Waits,
    ) {
        let is_noted = decision.answer().applied || decision.source() == Source::Fallback;
        if plan.policy.options().journal > 0 && !is_noted {
            // Its loss changes no Decision.
            let _ = self.decision(Arc::clone(plan), key, operation.as_noted_denial(), waits).await;
        }
    }

    /// Waits until the call is admitted.
    pub(crate) async fn acquire(
        self: &Arc<Self>,
        policy: &impl AsPolicy,
        key: &str,
        options: &CheckOptions,
        timeout: Option<Duration>,
        waits: Waits,
    ) -> Result<Decision> {
        if let Some(decision) = self.acquire_at_once(policy, key, options)? {
            return Ok(decision);
        }
        let plan = self.plan(policy, key)?;
        let operation = whole_operation("acquire", options, &plan, 0)?;
        // In a box, so that the future of a call that need not wait is small.
        let waited = Box::pin(self.wait_for(&plan, key, (&operation, rank(options, &plan)), timeout, waits));
        let waited = async { waited.await.map(|(decision, _)| decision) };
        if !may_be_on() {
            return waited.await;
        }
        Box::pin(spanned(self, SpanName::Acquire, || self.policy_name(policy), waits, waited)).await
    }

    /// The Decision of a call that a memory store admits at once. `None` if it may have to wait.
    pub(crate) fn acquire_at_once(
        self: &Arc<Self>,
        policy: &impl AsPolicy,
        key: &str,
        options: &CheckOptions,
    ) -> Result<Option<Decision>> {
        if self.layers.is_some() || self.answers.wait_queues.has_callers() {
            return Ok(None);
        }
        let plan = self.plan(policy, key)?;
        let operation = whole_operation("acquire", options, &plan, 0)?;
        let asked = self.run(plan, key, attempt(&operation, None), Waits::<NoCompletion>::Never);
        // A shadow policy also allows calls that its limits deny. Those take the usual way.
        let Some(decision) = asked.transpose()?.filter(|decision| decision.answer().applied) else { return Ok(None) };
        self.answers.decisions.count_check(decision.plan(), decision.key(), decision.answer());
        Ok(Some(decision))
    }

    /// Waits until a check is admitted. `rank` is the place of its class in the line. Also returns when the store was
    /// last asked, by the time of the limiter.
    pub(super) async fn wait_for(
        self: &Arc<Self>,
        plan: &Arc<Plan>,
        key: &str,
        (operation, rank): (&Operation, u64),
        timeout: Option<Duration>,
        waits: Waits,
    ) -> Result<(Decision, Duration)> {
        let deadline = WaitDeadline::new(self, timeout);
        if takes_turns(plan, operation)
            && let Some(decision) = self.acquire_turn(plan, key, operation, &deadline, waits).await?
        {
            self.answers.decisions.count_check(decision.plan(), decision.key(), decision.answer());
            return Ok((decision, self.time()));
        }
        let holds = matches!(operation, Operation::Check { hold: 1.., .. });
        // A limiter that closes gives back all holds.
        let answered =
            move |core: &Arc<Self>, decision| if holds { Ok(decision) } else { core.unless_closed(decision) };
        if deadline.is_over() {
            let asked_at = self.time();
            let decision = self.ask_waiting(plan, key, operation.clone(), waits, answered).await?;
            return Ok((decision, asked_at));
        }
        let mut acquire = Acquire::begin(self, plan, key, (operation, rank), &deadline)?;
        loop {
            match acquire.step()? {
                AcquireStep::Ask(asks) => {
                    let (asked_at, began) = (self.time(), Instant::now());
                    let given = acquire.given();
                    let asking = Asking::until(asks, given.map(|given| given.until));
                    let asked = self.ask_waiting(plan, key, asking, waits, answered).await;
                    if asked.is_err() && acquire.looks.take().is_some() {
                        continue;
                    }
                    let asked = acquire.heard(asked, given, began.elapsed());
                    if let Some(decision) = acquire.answered(asked?) {
                        if !matches!(acquire.state, CallerState::Checks) {
                            self.note_denial(plan, key, operation, &decision, waits).await;
                        }
                        return Ok((decision, asked_at));
                    }
                }
                AcquireStep::Sleep { signal, count, longest } => sleep(&signal, count, longest, waits).await,
            }
        }
    }
}
