//! Checks of several slots that stand or fall together.
//!
//! No script reaches over slots, so that the nodes are asked twice: first whether they would admit, all at the same time,
//! which costs nothing where one refuses; then they charge. Where one refuses after all, since somebody was faster, the
//! others give back exactly what they charged.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::engine::Engine;
use super::job::Job;
use super::script::{Grouping, Request};
use crate::error::Result;
use crate::fork::ProcessValue;
use crate::store::completion::{BatchCompletion, WakeTarget};
use crate::store::request::Answer;

/// See the module.
pub(super) struct Party {
    engine: Arc<ProcessValue<Engine>>,
    groups: Vec<Group>,
    entries: usize,
    now: Option<u64>,
    deadline: Instant,
    /// What a call may take.
    timeout: Duration,
    state: Mutex<State>,
}

/// What goes to one slot, which is one atomic step.
struct Group {
    slot: u16,
    requests: Vec<Request>,
    /// Their places among all.
    places: Vec<usize>,
}

type Reply = Option<Result<Vec<Answer>>>;
type Replies = Vec<Reply>;

struct State {
    step: Step,
    /// Groups that have not answered.
    missing: usize,
    replies: Replies,
    /// What each answered when it was first asked.
    asked: Vec<Vec<Answer>>,
    done: Option<BatchCompletion>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Step {
    Ask,
    Charge,
    Refuse,
    /// Gives back; with what came of charging.
    GiveBack,
}

impl Party {
    pub(super) fn gather(
        engine: Arc<ProcessValue<Engine>>,
        requests: Vec<Request>,
        slots: Vec<u16>,
        now: Option<u64>,
        (deadline, timeout): (Instant, Duration),
        done: BatchCompletion,
    ) {
        let entries = requests.len();
        let mut groups: Vec<Group> = Vec::new();
        for (place, (request, slot)) in requests.into_iter().zip(slots).enumerate() {
            let at = groups.iter().position(|group| group.slot == slot).unwrap_or_else(|| {
                groups.push(Group { slot, requests: Vec::new(), places: Vec::new() });
                groups.len() - 1
            });
            groups[at].requests.push(request);
            groups[at].places.push(place);
        }
        let state = State { step: Step::Ask, missing: 0, replies: Vec::new(), asked: Vec::new(), done: Some(done) };
        let party = Arc::new(Self { engine, groups, entries, now, deadline, timeout, state: Mutex::new(state) });
        let all = party.groups.iter().map(|group| Some(group.requests.clone())).collect();
        party.submit(Step::Ask, Grouping::DryRun, all, deadline);
    }

    /// Sends each group what is meant for it.
    fn submit(
        self: &Arc<Self>,
        step: Step,
        grouping: Grouping,
        requests: Vec<Option<Vec<Request>>>,
        deadline: Instant,
    ) {
        {
            let mut state = self.state.lock();
            state.step = step;
            state.missing = requests.iter().flatten().count();
            state.replies = requests.iter().map(|_| None).collect();
        }
        for (index, requests) in requests.into_iter().enumerate() {
            let Some(requests) = requests else { continue };
            let party = Arc::clone(self);
            let done = Box::new(move |reply| party.arrived(index, reply));
            let slot = self.groups[index].slot;
            self.engine.enqueue(Job::all(requests, grouping, self.now, slot, deadline, done), None);
        }
    }

    fn arrived(self: &Arc<Self>, index: usize, reply: Result<Vec<Answer>>) -> WakeTarget {
        let (step, replies) = {
            let mut state = self.state.lock();
            state.replies[index] = Some(reply);
            state.missing -= 1;
            if state.missing > 0 {
                return None;
            }
            (state.step, std::mem::take(&mut state.replies))
        };
        match step {
            Step::Ask => self.asked(replies),
            Step::Charge => self.charged(replies),
            Step::Refuse | Step::GiveBack => self.refused(replies),
        }
    }

    /// All have said whether they would admit.
    fn asked(self: &Arc<Self>, replies: Replies) -> WakeTarget {
        let asked = match replies.into_iter().flatten().collect::<Result<Vec<_>>>() {
            Ok(asked) => asked,
            Err(error) => return self.end(Err(error)),
        };
        let stands = self.groups.iter().zip(&asked).all(|(group, answers)| group.stands(answers));
        if stands {
            let all = self.groups.iter().map(|group| Some(group.requests.clone())).collect();
            self.submit(Step::Charge, Grouping::AllOrNothing, all, self.deadline);
            return None;
        }
        let remembers = |group: &Group| group.requests.iter().any(Request::remembers_refusals);
        let some = |group: &Group| remembers(group).then(|| group.requests.clone());
        let refusals: Vec<_> = self.groups.iter().map(some).collect();
        if refusals.iter().all(Option::is_none) {
            return self.end(Ok(self.merged(asked)));
        }
        self.state.lock().asked = asked;
        self.submit(Step::Refuse, Grouping::RecordRefusals, refusals, self.deadline);
        None
    }

    /// All have charged, or have not.
    fn charged(self: &Arc<Self>, replies: Replies) -> WakeTarget {
        let stood = |(group, reply): (&Group, &Option<Result<Vec<Answer>>>)| matches!(reply, Some(Ok(answers)) if group.stands(answers));
        let stood: Vec<bool> = self.groups.iter().zip(&replies).map(stood).collect();
        if !stood.contains(&false) {
            let answers = replies.into_iter().flatten().filter_map(Result::ok).collect();
            return self.end(Ok(self.merged(answers)));
        }
        // What a group without an answer has charged is not known, and so not given back.
        let undo = |((group, reply), stood): ((&Group, &Reply), &bool)| match reply {
            Some(Ok(answers)) if *stood => {
                let charged = group.requests.iter().zip(answers).filter(|(_, answer)| answer.applied);
                let undo: Vec<Request> = charged.map(|(request, answer)| request.undo(answer.now)).collect();
                (!undo.is_empty()).then_some(undo)
            }
            _ => None,
        };
        let undo: Vec<_> = self.groups.iter().zip(&replies).zip(&stood).map(undo).collect();
        let failure = replies.iter().flatten().find_map(|reply| reply.as_ref().err().cloned());
        let outcome = match failure {
            Some(error) => Err(error),
            None => Ok(replies.into_iter().flatten().filter_map(Result::ok).collect()),
        };
        if undo.iter().all(Option::is_none) {
            return self.end(outcome.map(|answers| self.merged(answers)));
        }
        match outcome {
            Ok(answers) => {
                self.state.lock().asked = answers;
                self.submit(Step::GiveBack, Grouping::Independent, undo, self.deadline);
                None
            }
            Err(error) => {
                // Nobody waits for what is given back after a failure, which may have taken all of the call's time.
                let home = self.end(Err(error));
                self.submit(Step::GiveBack, Grouping::Independent, undo, Instant::now() + self.timeout);
                home
            }
        }
    }

    /// What was refused is written down, or what was charged is given back: their newer answers replace the first.
    fn refused(&self, replies: Replies) -> WakeTarget {
        let mut answers = std::mem::take(&mut self.state.lock().asked);
        for ((group, first), reply) in self.groups.iter().zip(&mut answers).zip(replies) {
            match reply {
                Some(Ok(newer)) if newer.len() == group.requests.len() => {
                    for (first, newer) in first.iter_mut().zip(newer) {
                        let (applied, refused) = (first.applied, first.refused);
                        *first = Answer { applied, refused: newer.refused.or(refused), ..newer };
                    }
                }
                Some(Err(error)) => return self.end(Err(error)),
                _ => {}
            }
        }
        self.end(Ok(self.merged(answers)))
    }

    /// The answers in the order of the entries.
    fn merged(&self, answers: Vec<Vec<Answer>>) -> Vec<Answer> {
        let mut merged: Vec<Answer> = vec![Answer::default(); self.entries];
        for (group, answers) in self.groups.iter().zip(answers) {
            for (place, answer) in group.places.iter().zip(answers) {
                merged[*place] = answer;
            }
        }
        merged
    }

    fn end(&self, result: Result<Vec<Answer>>) -> WakeTarget {
        let done = self.state.lock().done.take();
        done.and_then(|done| done(result))
    }
}

impl Group {
    fn stands(&self, answers: &[Answer]) -> bool {
        let shadow = |request: &Request| request.plan.policy.options().shadow;
        self.requests.iter().zip(answers).all(|(request, answer)| answer.applied || shadow(request))
    }
}
