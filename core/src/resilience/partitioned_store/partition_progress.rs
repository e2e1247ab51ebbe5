//! The progress of entries that are decided together, while their stores are asked one after the other.

use std::collections::VecDeque;

use crate::error::{Error, Result};
use crate::store::request::{Answer, Entry, Operation};

/// The entries that are charged together.
struct Part {
    number: u64,
    store: usize,
    /// Their numbers.
    entries: Vec<usize>,
}

/// An operation on one entry after the whole was refused.
#[derive(Clone)]
pub(super) struct Repair {
    /// The number of the entry.
    pub(super) entry: usize,
    pub(super) store: usize,
    pub(super) operation: Operation,
}

/// The next step.
pub(super) enum CheckAllStep {
    /// Charge the entries with these numbers, which one store has.
    Charge {
        store: usize,
        entries: Vec<usize>,
    },
    Repair(Repair),
    Finish(Result<()>),
}

/// The entries of each store, and the answers so far.
pub(super) struct PartitionProgress {
    /// In the order of their calls.
    parts: Vec<Part>,
    answers: Vec<Option<Answer>>,
    /// The number of the next part.
    part: usize,
    /// The operations that are left to do after a part was not admitted.
    repairs: VecDeque<Repair>,
    failure: Option<Error>,
}

impl PartitionProgress {
    /// `part_of` has the number of an entry's part, and its store.
    pub(super) fn new(entries: &[Entry<'_>], part_of: impl Fn(&Entry<'_>) -> (u64, usize)) -> Self {
        let mut parts: Vec<Part> = Vec::new();
        for (index, entry) in entries.iter().enumerate() {
            let (number, store) = part_of(entry);
            match parts.iter_mut().find(|part| part.number == number) {
                Some(part) => part.entries.push(index),
                None => parts.push(Part { number, store, entries: vec![index] }),
            }
        }
        Self { parts, answers: vec![None; entries.len()], part: 0, repairs: VecDeque::new(), failure: None }
    }

    pub(super) fn next_step(&mut self) -> CheckAllStep {
        if let Some(repair) = self.repairs.pop_front() {
            return CheckAllStep::Repair(repair);
        }
        match self.parts.get(self.part) {
            Some(Part { store, entries, .. }) => CheckAllStep::Charge { store: *store, entries: entries.clone() },
            None => CheckAllStep::Finish(self.failure.clone().map_or(Ok(()), Err)),
        }
    }

    /// Records the answers to a part, and plans the repairs if it was not admitted.
    pub(super) fn charged(&mut self, entries: &[Entry<'_>], result: Result<Vec<Answer>>) {
        let mut admitted = true;
        match result {
            Ok(answers) => {
                for (index, answer) in self.parts[self.part].entries.iter().zip(answers) {
                    admitted &= answer.applied || entries[*index].plan.policy.options().shadow;
                    self.answers[*index] = Some(answer);
                }
            }
            Err(error) => self.failure = Some(error),
        }
        if admitted && self.failure.is_none() {
            self.part += 1;
        } else {
            self.repairs = self.repairs(entries).into();
            // No other part is asked.
            self.part = self.parts.len();
        }
    }

    pub(super) fn failure(&self) -> Option<Error> {
        self.failure.clone()
    }

    /// The repairs after a part was not admitted. The parts before it are refunded exactly their charge. Then, unless
    /// the part has failed, every entry with a changed or unknown state is asked for it.
    fn repairs(&self, entries: &[Entry<'_>]) -> Vec<Repair> {
        let mut repairs = Vec::new();
        for (number, Part { store, entries: indexes, .. }) in self.parts.iter().enumerate() {
            for &index in indexes {
                let check = &entries[index].operation;
                let admitted = self.answers[index].as_ref().filter(|answer| answer.applied && number < self.part);
                let is_unknown = admitted.is_some() || number > self.part;
                let repair = |operation| Repair { entry: index, store: *store, operation };
                repairs.extend(admitted.map(|answer| repair(answer.undo(entries[index].plan, check))));
                repairs.extend((self.failure.is_none() && is_unknown).then(|| repair(check.as_peek())));
            }
        }
        repairs
    }

    /// Records the answer to a repair. The first answer of an entry decides if it counts as admitted.
    pub(super) fn repaired(&mut self, repair: &Repair, result: Result<Answer>) {
        if let (Operation::Peek { .. }, Ok(answer)) = (&repair.operation, result) {
            let applied = self.answers[repair.entry].as_ref().map_or(answer.applied, |first| first.applied);
            self.answers[repair.entry] = Some(Answer { applied, ..answer });
        }
    }

    /// The answers. If another entry refused the whole, an entry without an answer is answered as if it was never used.
    pub(super) fn answers(&mut self, entries: &[Entry<'_>]) -> Vec<Answer> {
        let now = self.answers.iter().flatten().map(|answer| answer.now).max().unwrap_or(0);
        let unused = |entry: &Entry<'_>| Answer {
            applied: true,
            now,
            views: entry.plan.unused_views(now, |index| entry.operation.amount(index)),
            ..Answer::default()
        };
        let answers = self.answers.drain(..).zip(entries);
        answers.map(|(answer, entry)| answer.unwrap_or_else(|| unused(entry))).collect()
    }
}
