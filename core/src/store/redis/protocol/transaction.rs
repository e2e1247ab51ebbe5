//! Requests of several slots that stand or fall together.
//!
//! A script reaches one slot only, so the servers are asked twice. First all are asked at the same time if they would
//! admit their group. If one refuses, nothing was charged. Then they charge. If one refuses after all, because another
//! caller was faster, the others give back exactly the units that they charged.

use std::time::{Duration, Instant};

use super::pending_call::{Callers, Completions, Recipient};
use crate::error::{Error, Result};
use crate::store::redis::script::{Grouping, Request};
use crate::store::request::Answer;

/// A `check_all` over several slots.
pub(crate) struct CrossSlotTransaction {
    groups: Vec<Group>,
    entries: usize,
    deadline: Instant,
    /// How long a call may take.
    timeout: Duration,
    phase: Phase,
    /// Groups that have not answered.
    missing: usize,
    replies: Vec<Reply>,
    /// The answers that the caller gets unless newer ones come.
    answers: Vec<Vec<Answer>>,
    has_result: bool,
}

/// The requests of one slot, which one script call serves.
struct Group {
    slot: u16,
    requests: Vec<Request>,
    /// Their indices among all requests.
    indices: Vec<usize>,
}

type Reply = Option<Result<Vec<Answer>>>;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Every group is asked if it would admit.
    Ask,
    Charge,
    /// The effects of a refusal are applied: blocks begin, journals are written.
    Refuse,
    GiveBack,
}

/// A script call to send for a group.
pub(crate) struct GroupCall {
    pub(crate) group: usize,
    pub(crate) slot: u16,
    pub(crate) requests: Vec<Request>,
    pub(crate) grouping: Grouping,
    pub(crate) deadline: Instant,
}

/// The progress after the replies so far.
#[derive(Default)]
pub(crate) struct Progress {
    /// The result for the caller.
    pub(crate) result: Option<Result<Vec<Answer>>>,
    pub(crate) calls: Vec<GroupCall>,
}

impl CrossSlotTransaction {
    /// `slots` has the slot of each request.
    pub(crate) fn new(requests: Vec<Request>, slots: &[u16], deadline: Instant, timeout: Duration) -> Self {
        let entries = requests.len();
        let mut groups: Vec<Group> = Vec::new();
        for (index, (request, slot)) in requests.into_iter().zip(slots).enumerate() {
            let at = groups.iter().position(|group| group.slot == *slot).unwrap_or_else(|| {
                groups.push(Group { slot: *slot, requests: Vec::new(), indices: Vec::new() });
                groups.len() - 1
            });
            groups[at].requests.push(request);
            groups[at].indices.push(index);
        }
        let (replies, answers) = (Vec::new(), Vec::new());
        let (phase, missing, has_result) = (Phase::Ask, 0, false);
        Self { groups, entries, deadline, timeout, phase, missing, replies, answers, has_result }
    }

    /// The first calls.
    pub(crate) fn begin(&mut self) -> Vec<GroupCall> {
        let all = self.groups.iter().map(|group| Some(group.requests.clone())).collect();
        self.send(Phase::Ask, all, self.deadline)
    }

    /// True if every reply has come and nothing is left to send.
    pub(crate) const fn is_finished(&self) -> bool {
        self.missing == 0 && self.has_result
    }

    fn send(&mut self, phase: Phase, requests: Vec<Option<Vec<Request>>>, deadline: Instant) -> Vec<GroupCall> {
        self.phase = phase;
        self.missing = requests.iter().flatten().count();
        self.replies = requests.iter().map(|_| None).collect();
        let grouping = match phase {
            Phase::Ask => Grouping::DryRun,
            Phase::Charge => Grouping::AllOrNothing,
            Phase::Refuse => Grouping::RecordRefusals,
            Phase::GiveBack => Grouping::Independent,
        };
        let calls = requests.into_iter().enumerate().filter_map(|(group, requests)| {
            let slot = self.groups[group].slot;
            requests.map(|requests| GroupCall { group, slot, requests, grouping, deadline })
        });
        calls.collect()
    }

    pub(crate) fn handle_reply(&mut self, group: usize, reply: Result<Vec<Answer>>, now: Instant) -> Progress {
        self.replies[group] = Some(reply);
        self.missing -= 1;
        if self.missing > 0 {
            return Progress::default();
        }
        let replies = std::mem::take(&mut self.replies);
        match self.phase {
            Phase::Ask => self.asked(replies),
            Phase::Charge => self.charged(replies, now),
            Phase::Refuse | Phase::GiveBack => self.updated(replies),
        }
    }

    /// Every group has answered the question.
    fn asked(&mut self, replies: Vec<Reply>) -> Progress {
        let answers = match replies.into_iter().flatten().collect::<Result<Vec<_>>>() {
            Ok(answers) => answers,
            Err(error) => return self.finish(Err(error)),
        };
        if self.groups.iter().zip(&answers).all(|(group, answers)| group.admits(answers)) {
            let all = self.groups.iter().map(|group| Some(group.requests.clone())).collect();
            let calls = self.send(Phase::Charge, all, self.deadline);
            return Progress { result: None, calls };
        }
        let remembers = |group: &Group| group.requests.iter().any(Request::remembers_refusals);
        let refusals: Vec<_> =
            self.groups.iter().map(|group| remembers(group).then(|| group.requests.clone())).collect();
        self.answers = answers;
        if refusals.iter().all(Option::is_none) {
            return self.finish_with_answers();
        }
        let calls = self.send(Phase::Refuse, refusals, self.deadline);
        Progress { result: None, calls }
    }

    /// Every group has answered the charge.
    fn charged(&mut self, replies: Vec<Reply>, now: Instant) -> Progress {
        let admits = |(group, reply): (&Group, &Reply)| matches!(reply, Some(Ok(answers)) if group.admits(answers));
        let admitted: Vec<bool> = self.groups.iter().zip(&replies).map(admits).collect();
        if admitted.contains(&false) {
            return self.undo(replies, &admitted, now);
        }
        self.answers = replies.into_iter().flatten().filter_map(Result::ok).collect();
        self.finish_with_answers()
    }

    fn undo(&mut self, replies: Vec<Reply>, admitted: &[bool], now: Instant) -> Progress {
        // The charge of a group without an answer is not known, so it is not given back.
        let undo = |((group, reply), admitted): ((&Group, &Reply), &bool)| match reply {
            Some(Ok(answers)) if *admitted => {
                let charged = group.requests.iter().zip(answers).filter(|(_, answer)| answer.applied);
                let undo: Vec<Request> = charged.map(|(request, answer)| request.undo(answer)).collect();
                (!undo.is_empty()).then_some(undo)
            }
            _ => None,
        };
        let undo: Vec<_> = self.groups.iter().zip(&replies).zip(admitted).map(undo).collect();
        let nothing_to_undo = undo.iter().all(Option::is_none);
        match replies.into_iter().flatten().collect::<Result<Vec<_>>>() {
            // The caller does not wait until everything is given back: the failure may have taken all of its time.
            Err(error) => {
                let mut progress = self.finish(Err(error));
                if !nothing_to_undo {
                    progress.calls = self.send(Phase::GiveBack, undo, now + self.timeout);
                }
                progress
            }
            Ok(answers) => {
                self.answers = answers;
                if nothing_to_undo {
                    return self.finish_with_answers();
                }
                let calls = self.send(Phase::GiveBack, undo, self.deadline);
                Progress { result: None, calls }
            }
        }
    }

    /// Refusals were recorded, or charges were given back: the newer answers replace the first ones.
    fn updated(&mut self, replies: Vec<Reply>) -> Progress {
        if self.has_result {
            return Progress::default();
        }
        for ((group, answers), reply) in self.groups.iter().zip(&mut self.answers).zip(replies) {
            match reply {
                Some(Ok(newer)) if newer.len() == group.requests.len() => {
                    for (answer, newer) in answers.iter_mut().zip(newer) {
                        let (applied, refused) = (answer.applied, answer.refused);
                        *answer = Answer { applied, refused: newer.refused.or(refused), ..newer };
                    }
                }
                Some(Err(error)) => return self.finish(Err(error)),
                _ => {}
            }
        }
        self.finish_with_answers()
    }

    /// Finishes with the answers in the order of the requests.
    fn finish_with_answers(&mut self) -> Progress {
        let mut merged: Vec<Answer> = vec![Answer::default(); self.entries];
        for (group, answers) in self.groups.iter().zip(std::mem::take(&mut self.answers)) {
            for (index, answer) in group.indices.iter().zip(answers) {
                merged[*index] = answer;
            }
        }
        self.finish(Ok(merged))
    }

    fn finish(&mut self, result: Result<Vec<Answer>>) -> Progress {
        self.has_result = true;
        Progress { result: Some(result), calls: Vec::new() }
    }
}

impl Group {
    fn admits(&self, answers: &[Answer]) -> bool {
        let shadow = |request: &Request| request.plan.policy.options().shadow;
        self.requests.iter().zip(answers).all(|(request, answer)| answer.applied || shadow(request))
    }
}

/// The transactions under way. A finished transaction leaves its place to another.
#[derive(Default)]
pub(crate) struct Transactions<C: Callers> {
    pub(crate) places: Vec<Option<Underway<C>>>,
}

/// A transaction under way, and the caller that gets its answer.
pub(crate) struct Underway<C: Callers> {
    pub(crate) transaction: CrossSlotTransaction,
    pub(crate) time: Option<u64>,
    /// `None` once the caller has its answer.
    pub(crate) caller: Option<C::All>,
}

impl<C: Callers> Transactions<C> {
    /// Adds a transaction and returns its place.
    pub(crate) fn insert(&mut self, underway: Underway<C>) -> usize {
        let place = self.places.iter().position(Option::is_none).unwrap_or_else(|| {
            self.places.push(None);
            self.places.len() - 1
        });
        self.places[place] = Some(underway);
        place
    }

    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        self.places.iter().all(Option::is_none)
    }

    pub(crate) fn close(&mut self, error: &Error, completions: &mut Completions<C>) {
        completions.groups.clear();
        for caller in self.places.drain(..).flatten().filter_map(|underway| underway.caller) {
            completions.fail(Recipient::All(caller), error);
        }
    }
}
