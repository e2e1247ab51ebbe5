//! What is known about entries that are decided together while their stores are asked one after the other.

use crate::error::Result;
use crate::store::request::{Answer, Entry, Operation};

/// The entries of one store.
#[derive(Clone)]
pub(super) struct Part {
    pub(super) store: usize,
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

/// The entries of each store, and the answers so far.
pub(super) struct PartitionProgress {
    parts: Vec<Part>,
    answers: Vec<Option<Answer>>,
}

impl PartitionProgress {
    pub(super) fn new(entries: &[Entry<'_>], store_of: impl Fn(&Entry<'_>) -> usize) -> Self {
        let mut parts: Vec<Part> = Vec::new();
        for (index, entry) in entries.iter().enumerate() {
            let store = store_of(entry);
            match parts.iter_mut().find(|part| part.store == store) {
                Some(part) => part.entries.push(index),
                None => parts.push(Part { store, entries: vec![index] }),
            }
        }
        Self { parts, answers: vec![None; entries.len()] }
    }

    /// In the order in which they are asked.
    pub(super) fn parts(&self) -> &[Part] {
        &self.parts
    }

    pub(super) fn entries_of<'a>(&self, part: usize, entries: &[Entry<'a>]) -> Vec<Entry<'a>> {
        self.parts[part].entries.iter().map(|index| entries[*index].clone()).collect()
    }

    /// Records the answers to a part; returns whether all its entries were admitted.
    pub(super) fn record(&mut self, part: usize, entries: &[Entry<'_>], answers: Vec<Answer>) -> bool {
        let mut admitted = true;
        for (index, answer) in self.parts[part].entries.iter().zip(answers) {
            admitted &= answer.applied || entries[*index].plan.policy.options().shadow;
            self.answers[*index] = Some(answer);
        }
        admitted
    }

    /// What to do when a part was not admitted: the parts before it are refunded exactly what they were charged. With
    /// `peeks` every entry whose state has changed or is not known is asked for it then.
    pub(super) fn repairs(&self, part: usize, entries: &[Entry<'_>], peeks: bool) -> Vec<Repair> {
        let mut repairs = Vec::new();
        for (number, Part { store, entries: indexes }) in self.parts.iter().enumerate() {
            for &index in indexes {
                let cost = entries[index].operation.cost();
                let admitted = self.answers[index].as_ref().filter(|answer| answer.applied && number < part);
                let charged = admitted.is_some();
                let repair = |operation| Repair { entry: index, store: *store, operation };
                let undo = |answer: &Answer| repair(answer.undo(entries[index].plan, cost));
                repairs.extend(admitted.map(undo));
                repairs.extend((peeks && (charged || number > part)).then(|| repair(Operation::Peek { cost })));
            }
        }
        repairs
    }

    /// Records the answer to a repair. Whether an entry was admitted stays as its first answer said.
    pub(super) fn repaired(&mut self, repair: &Repair, result: Result<Answer>) {
        if let (Operation::Peek { .. }, Ok(answer)) = (&repair.operation, result) {
            let applied = self.answers[repair.entry].as_ref().map_or(answer.applied, |first| first.applied);
            self.answers[repair.entry] = Some(Answer { applied, ..answer });
        }
    }

    /// The answers. An entry without one, of a whole that another entry refused, is answered as if it was never used.
    pub(super) fn finish(&mut self, entries: &[Entry<'_>]) -> Vec<Answer> {
        let now = self.answers.iter().flatten().map(|answer| answer.now).max().unwrap_or(0);
        let unused = |entry: &Entry<'_>| Answer {
            applied: true,
            now,
            views: entry.plan.unused_views(now, entry.operation.cost()),
            ..Answer::default()
        };
        let answers = self.answers.drain(..).zip(entries);
        answers.map(|(answer, entry)| answer.unwrap_or_else(|| unused(entry))).collect()
    }
}
