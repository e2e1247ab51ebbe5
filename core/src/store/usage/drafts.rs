//! Several entries, all charged or none, on usages that were taken out of their store.

use super::{StoredState, Usage};
use crate::plan::Plan;
use crate::store::request::{Answer, Entry};

/// A usage while entries are decided together. Two entries may share one.
pub(in crate::store) struct Draft {
    usage: Usage,
    /// The stored state.
    stored: StoredState,
    /// The stored state, as this version of the policy reads it.
    converted: StoredState,
    changed: bool,
    now: u64,
}

impl Draft {
    pub(in crate::store) fn new(mut usage: Usage, plan: &Plan, now: u64) -> Self {
        let stored = usage.stored_state();
        usage.read_as(plan, now);
        let converted = usage.stored_state();
        Self { usage, stored, converted, changed: false, now }
    }

    /// The usage after the decision, and true if the decision has changed it.
    pub(in crate::store) fn finish(self) -> (Usage, bool) {
        let Self { mut usage, stored, changed, .. } = self;
        if !changed {
            usage.restore(stored);
        }
        (usage, changed)
    }
}

/// Decides entries together. `draft_of` has the index of each entry's draft.
pub(in crate::store) fn decide_all(entries: &[Entry<'_>], draft_of: &[usize], drafts: &mut [Draft]) -> Vec<Answer> {
    let mut admitted = Vec::with_capacity(entries.len());
    let mut refused = Vec::with_capacity(entries.len());
    let mut spared = Vec::with_capacity(entries.len());
    for (entry, number) in entries.iter().zip(draft_of) {
        let Draft { usage, now, .. } = &mut drafts[*number];
        let admits = usage.admits(entry, *now);
        if admits {
            usage.charge(entry, *now);
        }
        spared.push(!admits && usage.spares(entry, *now));
        refused.push((!admits).then(|| usage.refusing_limits(entry, *now)));
        admitted.push(admits);
    }
    let all_admitted =
        entries.iter().zip(&admitted).all(|(entry, admits)| *admits || entry.plan.policy.options().shadow);
    if !all_admitted {
        for Draft { usage, converted, .. } in &mut *drafts {
            usage.restore(converted.clone());
        }
    }
    for (index, entry) in entries.iter().enumerate() {
        let Draft { usage, changed, now, .. } = &mut drafts[draft_of[index]];
        *changed |= if admitted[index] { all_admitted } else { usage.refuse(entry, *now, spared[index]) };
        usage.record_attempt(entry, *now, admitted[index] && all_admitted);
    }
    for (entry, number) in entries.iter().zip(draft_of) {
        let Draft { usage, changed, now, .. } = &mut drafts[*number];
        if *changed {
            usage.refresh_expiry(entry.plan, *now);
        }
    }
    let answers = entries.iter().enumerate().map(|(index, entry)| {
        let charged = (admitted[index] && all_admitted).then(|| entry.operation.cost());
        let Draft { usage, now, .. } = &drafts[draft_of[index]];
        let answer = usage.answer(entry, *now, admitted[index], charged);
        Answer { refused: refused[index], ..answer }
    });
    let answers: Vec<Answer> = answers.collect();
    for (answer, number) in answers.iter().zip(draft_of).filter(|(answer, _)| !answer.applied) {
        drafts[*number].usage.remember_denial(answer);
    }
    answers
}

/// The usage of a key after entries were decided together.
#[cfg(feature = "redis")]
pub(in crate::store) struct Together {
    pub(in crate::store) usage: Usage,
    /// True if the decision has changed the usage, beside its journal.
    pub(in crate::store) changed: bool,
    /// The index of the last entry of the key, which decides the version of its stored form.
    pub(in crate::store) last: usize,
}

/// Decides entries together at one moment. `usage_of` has the index of each entry's usage.
#[cfg(feature = "redis")]
pub(in crate::store) fn decide_together(
    entries: &[Entry<'_>],
    usage_of: &[usize],
    usages: Vec<Usage>,
    now: u64,
) -> (Vec<Answer>, Vec<Together>) {
    let first = |number| usage_of.iter().position(|of| *of == number).unwrap_or_default();
    let drafts =
        usages.into_iter().enumerate().map(|(number, usage)| Draft::new(usage, entries[first(number)].plan, now));
    let mut drafts: Vec<Draft> = drafts.collect();
    let answers = decide_all(entries, usage_of, &mut drafts);
    let together = drafts.into_iter().enumerate().map(|(number, draft)| {
        let (usage, changed) = draft.finish();
        Together { usage, changed, last: usage_of.iter().rposition(|of| *of == number).unwrap_or_default() }
    });
    (answers, together.collect())
}
