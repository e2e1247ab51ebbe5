//! Decides groups on values that were read, without a store.

use super::value::{StoredValue, is_empty, write_value};
use crate::error::{Error, ErrorKind, Result};
use crate::plan::Plan;
use crate::store::request::{Answer, Entry, Operation};
use crate::store::usage::{self, Together, Usage, is_noted, unstored};

/// A value without an end expires in the year 2255, a date that stores and languages can write.
const LAST_MOMENT: u64 = 1 << 53;

/// The circumstances of a decision.
#[derive(Debug, Clone, Copy)]
pub(super) struct Circumstances {
    pub(super) now: u64,
    /// The epoch of the store, if it was asked for and is known.
    pub(super) epoch: Option<u64>,
    /// The most bytes of a value.
    pub(super) max_value: usize,
}

/// The value of a key while groups are applied to it.
#[derive(Debug, Clone, Default)]
pub(super) struct WorkingValue {
    /// The value, without its mark. `None` if the key has none.
    pub(super) bytes: Option<Vec<u8>>,
    /// The clock of the store. A call may be decided at another time.
    moment: u64,
    /// When a store may drop it, by the clock of the store.
    pub(super) expires_at: u64,
    pub(super) is_changed: bool,
}

impl WorkingValue {
    pub(super) const fn new(bytes: Option<Vec<u8>>, moment: u64) -> Self {
        Self { bytes, moment, expires_at: 0, is_changed: false }
    }

    fn stored(&self) -> Result<Option<StoredValue<'_>>> {
        self.bytes.as_deref().map(|bytes| StoredValue::read(bytes).ok_or_else(broken)).transpose()
    }

    fn set(&mut self, mut usage: Usage, plan: &Plan, answer: &Answer, kept: Option<&[u8]>, here: Circumstances) {
        let denies_until = usage.denies_until(answer);
        let write = |usage: &Usage| write_value(denies_until, |out| usage.write(plan, here.now, kept, out));
        let (mut bytes, mut expires_at) = write(&usage);
        if bytes.len() > here.max_value && usage.forget_attempts(bytes.len() - here.max_value) {
            (bytes, expires_at) = write(&usage);
        }
        self.bytes = (!is_empty(&bytes)).then_some(bytes);
        let expires_at = self.moment.saturating_add(expires_at.saturating_sub(here.now));
        (self.expires_at, self.is_changed) = (expires_at.min(LAST_MOMENT), true);
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

/// True if an entry gives back units of a lease, and the store may have lost its charge: it has restarted since.
fn is_of_lost_epoch(entry: &Entry<'_>, epoch: Option<u64>) -> bool {
    let Operation::GiveBack { charge, .. } = &entry.operation else { return false };
    charge.generation != 0 && epoch != Some(charge.connection)
}

/// Decides one entry on the value of its key.
pub(super) fn decide(entry: &Entry<'_>, working: &mut WorkingValue, here: Circumstances) -> Result<Answer> {
    let now = here.now;
    if is_of_lost_epoch(entry, here.epoch) {
        return decide(&Entry { operation: Operation::peek(1), ..*entry }, working, here);
    }
    let stored = match working.stored() {
        Ok(stored) => stored,
        Err(_) if matches!(entry.operation, Operation::Clear) => None,
        Err(error) => return Err(error),
    };
    if stored.is_none() && !unstored::may_store(entry, now) && !matches!(entry.operation, Operation::Clear) {
        return Ok(unstored::answer(entry, now));
    }
    let mut usage = usage_of(entry, stored, now)?;
    if let Some(answer) = usage.changed_override(entry, now) {
        return Ok(answer);
    }
    let (answer, changed) = usage.apply_and_say(entry, now);
    if changed || is_noted(entry) {
        let kept = (!changed).then(|| stored.map_or_else(Vec::new, |stored| stored.value.to_vec()));
        working.set(usage, entry.plan, &answer, kept.as_deref(), here);
    }
    Ok(answer.over_connection(here.epoch))
}

/// Decides the entries of a `check_all` together. `value_of` has the index of each entry's value.
pub(super) fn decide_together(
    entries: &[Entry<'_>],
    value_of: &[usize],
    working: &mut [WorkingValue],
    here: Circumstances,
) -> Result<Vec<Answer>> {
    let now = here.now;
    let mut changed: Vec<Option<Answer>> = Vec::with_capacity(entries.len());
    let mut usages: Vec<Usage> = Vec::new();
    let mut usage_of_value: Vec<Option<usize>> = vec![None; working.len()];
    let mut usage_of = Vec::with_capacity(entries.len());
    for (entry, value) in entries.iter().zip(value_of) {
        let number = match usage_of_value[*value] {
            Some(number) => number,
            None => {
                usages.push(self::usage_of(entry, working[*value].stored()?, now)?);
                *usage_of_value[*value].insert(usages.len() - 1)
            }
        };
        changed.push(usages[number].changed_override(entry, now));
        usage_of.push(number);
    }
    if changed.iter().any(Option::is_some) {
        return Ok(Answer::all_changed(changed, now));
    }
    let (answers, decided) = usage::decide_together(entries, &usage_of, usages, now);
    for Together { usage, changed, last } in decided {
        let (entry, value) = (&entries[last], value_of[last]);
        if changed || is_noted(entry) {
            let stored = working[value].stored()?.map_or_else(Vec::new, |stored| stored.value.to_vec());
            working[value].set(usage, entry.plan, &answers[last], (!changed).then_some(&stored[..]), here);
        }
    }
    Ok(answers)
}
