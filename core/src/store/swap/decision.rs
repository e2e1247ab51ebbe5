//! Decides groups on values that were read, without a store.

use super::value::{StoredValue, is_empty, write_value};
use crate::error::{Error, ErrorKind, Result};
use crate::plan::Plan;
use crate::store::request::{Answer, Entry, Operation};
use crate::store::usage::{Draft, Usage, decide_all, unstored};

/// The value of a key while groups are applied to it.
#[derive(Debug, Clone, Default)]
pub(super) struct WorkingValue {
    /// The value, without its mark. `None` if the key has none.
    pub(super) bytes: Option<Vec<u8>>,
    /// When a store may drop it, by the clock of the store.
    pub(super) expires_at: u64,
    pub(super) is_changed: bool,
}

impl WorkingValue {
    pub(super) const fn new(bytes: Option<Vec<u8>>) -> Self {
        Self { bytes, expires_at: 0, is_changed: false }
    }

    fn stored(&self) -> Result<Option<StoredValue<'_>>> {
        self.bytes.as_deref().map(|bytes| StoredValue::read(bytes).ok_or_else(broken)).transpose()
    }

    fn set(&mut self, usage: &Usage, plan: &Plan, answer: &Answer, kept: Option<&[u8]>, now: u64) {
        // A key without units left counts as denied until it has some.
        let full = answer.views.iter().filter(|view| view.left <= 0).filter_map(|view| view.admits_at).max();
        let denies_until = usage.denial_ends().max(full.unwrap_or(0));
        let (bytes, expires_at) = write_value(denies_until, |out| usage.write(plan, now, kept, out));
        self.bytes = (!is_empty(&bytes)).then_some(bytes);
        (self.expires_at, self.is_changed) = (expires_at, true);
    }
}

fn broken() -> Error {
    Error::new(ErrorKind::StoreRejected, "the key holds a broken state; clear it")
}

/// The usage in a value, or a fresh one.
fn usage_of(entry: &Entry<'_>, stored: Option<StoredValue<'_>>, now: u64) -> Result<Usage> {
    let Some(stored) = stored else { return Ok(Usage::new(entry.plan)) };
    match Usage::read(entry.plan, (stored.value, stored.appendix), stored.moments(), now) {
        Some(usage) => Ok(usage),
        // A clear forgets a broken state.
        None if matches!(entry.operation, Operation::Clear) => Ok(Usage::new(entry.plan)),
        None => Err(broken()),
    }
}

/// True if the journal notes the entry, whatever its answer is.
fn is_noted(entry: &Entry<'_>) -> bool {
    let is_noted = entry.operation.is_check() || matches!(entry.operation, Operation::NoteDenial { .. });
    entry.plan.policy.options().journal > 0 && is_noted
}

/// Decides one entry on the value of its key.
pub(super) fn decide(entry: &Entry<'_>, working: &mut WorkingValue, now: u64) -> Result<Answer> {
    let stored = match working.stored() {
        Ok(stored) => stored,
        Err(_) if matches!(entry.operation, Operation::Clear) => None,
        Err(error) => return Err(error),
    };
    if stored.is_none() && !unstored::may_store(entry, now) && !matches!(entry.operation, Operation::Clear) {
        return Ok(unstored::answer(entry, now));
    }
    let mut usage = usage_of(entry, stored, now)?;
    if let Some(answer) = usage.moved(entry, now) {
        return Ok(answer);
    }
    let (answer, changed) = usage.apply_and_say(entry, now);
    if changed || is_noted(entry) {
        let kept = (!changed).then(|| stored.map_or_else(Vec::new, |stored| stored.value.to_vec()));
        working.set(&usage, entry.plan, &answer, kept.as_deref(), now);
    }
    Ok(answer)
}

/// Decides the entries of a `check_all` together. `value_of` has the index of each entry's value.
pub(super) fn decide_together(
    entries: &[Entry<'_>],
    value_of: &[usize],
    working: &mut [WorkingValue],
    now: u64,
) -> Result<Vec<Answer>> {
    let mut drafts: Vec<Draft> = Vec::with_capacity(working.len());
    let mut moved: Vec<Option<Answer>> = Vec::with_capacity(entries.len());
    // The draft of each value, and the entry that made it.
    let mut draft_of_value: Vec<Option<usize>> = vec![None; working.len()];
    let mut firsts = Vec::new();
    let mut draft_of = Vec::with_capacity(entries.len());
    let mut usages: Vec<Usage> = Vec::new();
    for (index, (entry, value)) in entries.iter().zip(value_of).enumerate() {
        let number = match draft_of_value[*value] {
            Some(number) => number,
            None => {
                usages.push(usage_of(entry, working[*value].stored()?, now)?);
                firsts.push(index);
                *draft_of_value[*value].insert(usages.len() - 1)
            }
        };
        moved.push(usages[number].moved(entry, now));
        draft_of.push(number);
    }
    if moved.iter().any(Option::is_some) {
        return Ok(Answer::all_moved(moved, now));
    }
    drafts.extend(usages.into_iter().zip(&firsts).map(|(usage, first)| Draft::new(usage, entries[*first].plan, now)));
    let answers = decide_all(entries, &draft_of, &mut drafts);
    for (number, draft) in drafts.into_iter().enumerate() {
        let (usage, changed) = draft.finish();
        // The last entry of a key decides the version of its stored form.
        let last = draft_of.iter().rposition(|of| *of == number).unwrap_or(firsts[number]);
        let (entry, value) = (&entries[last], value_of[last]);
        if changed || is_noted(entry) {
            let stored = working[value].stored()?.map_or_else(Vec::new, |stored| stored.value.to_vec());
            working[value].set(&usage, entry.plan, &answers[last], (!changed).then_some(&stored[..]), now);
        }
    }
    Ok(answers)
}
