//! A store that all processes of a machine share, without a server: a table in a file that each of them maps. docs/adr/0037 has the
//! reasons.
//!
//! A call reads the record of its key without a lock, and decides by the rules that memory has too. A denial and a peek end there.
//! What changes a record takes the lock of its shard for as long as it takes to write that record.

mod file;
mod header;
mod lock;
mod machine_clock;
mod shard;
/// What the protocol of the table is built on; a test puts its own in this place.
mod sync {
    pub(super) use std::sync::atomic::{Ordering, fence};
}
mod words;

use std::cell::RefCell;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::call_context::{CallContext, Waits};
use super::key_names::{KeyNames, StoredKey};
use super::layer_states::LayerStates;
use super::request::{Answer, Entry, Moved, Operation, RareAnswer, StoredOverride};
use super::url::MachineFile;
use super::usage::{Draft, Usage, decide_all, stored_override, unstored};
use super::{ForgottenDenials, Store};
use crate::error::{Error, ErrorKind, Result};
use crate::plan::{MAX_OVERRIDDEN_KEYS, Plan};
use crate::process::log::{Log, WarningKind};
use file::OpenFile;
use lock::LockGuard;
use shard::{Damaged, LockedShard, Look, Record, Removed};

/// A store in a file.
pub(crate) struct Machine {
    file: OpenFile,
    path: Box<Path>,
    names: KeyNames,
    timeout: Duration,
    /// The most keys of a shard.
    max_keys: usize,
    forgotten_denials: Arc<ForgottenDenials>,
    log: Arc<Log>,
    closed: AtomicBool,
}

/// What stands between a caller and its answer.
enum Hindrance {
    /// The lock was not free in time.
    Locked,
    Damaged,
    Refused(Error),
}

impl From<Damaged> for Hindrance {
    fn from(_: Damaged) -> Self {
        Self::Damaged
    }
}

/// The place of a key.
#[derive(Clone, Copy)]
struct KeyPlace {
    shard: usize,
    bucket: usize,
}

/// What a call has made of a usage.
struct Decided {
    answer: Answer,
    /// What is stored from now on, where that changes; without bytes nothing is.
    change: Option<Record>,
}

thread_local! {
    /// The memory of a record is used again, so that a call allocates little.
    static RECORD: RefCell<Record> = RefCell::default();
}

impl Machine {
    /// Opens a file, and makes it where there is none.
    ///
    /// # Errors
    /// As [`OpenFile::open`].
    pub(crate) fn open(
        place: MachineFile,
        names: KeyNames,
        timeout: Duration,
        forgotten_denials: Arc<ForgottenDenials>,
        log: Arc<Log>,
    ) -> Result<Self> {
        let file = OpenFile::open(&place, timeout)?;
        if file.geometry.bytes != place.max_bytes && place.has_bytes {
            log.warn(&format!(
                "{} has {} bytes since it was made, and max_bytes is {}: remove the file while no process uses it, and it is made anew",
                place.path.display(),
                file.geometry.bytes,
                place.max_bytes
            ));
        }
        if file.damaged > 0 {
            log.warn(&format!(
                "{} had {} damaged records after a restart of the machine: the usage of their keys begins anew",
                place.path.display(),
                file.damaged
            ));
        }
        let max_keys = place.max_keys.div_ceil(file.geometry.shards);
        let (path, closed) = (place.path, AtomicBool::new(false));
        Ok(Self { file, path, names, timeout, max_keys, forgotten_denials, log, closed })
    }

    fn check_open(&self) -> Result<()> {
        if self.closed.load(Ordering::Relaxed) {
            return Err(Error::new(ErrorKind::Closed, "the limiter is closed"));
        }
        Ok(())
    }

    fn now(&self, given: Option<u64>) -> u64 {
        given.unwrap_or_else(|| machine_clock::micros(&self.file.words))
    }

    fn key(&self, entry: &Entry<'_>) -> StoredKey {
        StoredKey::new(&self.names, entry.plan.policy.name(), entry.key)
    }

    fn place(&self, key: &StoredKey) -> KeyPlace {
        let (shard, bucket) = self.file.geometry.place(key.as_bytes());
        KeyPlace { shard, bucket }
    }

    fn shard(&self, number: usize) -> shard::Shard<'_> {
        self.file.geometry.shard(&self.file.words, number)
    }

    /// Locks a shard; without a deadline only where that is possible now.
    fn lock(&self, number: usize, deadline: Option<Instant>) -> Result<(LockGuard<'_>, LockedShard<'_>), Hindrance> {
        let shard = self.shard(number);
        let at = shard.at + shard::LOCK;
        let guard = match deadline {
            Some(deadline) => lock::lock(&self.file.words, at, deadline),
            None => lock::try_lock(&self.file.words, at),
        };
        let guard = guard.ok_or(Hindrance::Locked)?;
        let locked = LockedShard(shard);
        if guard.is_inherited {
            self.repair(&locked);
        }
        Ok((guard, locked))
    }

    /// Makes a shard whole, and says what was lost.
    fn repair(&self, locked: &LockedShard<'_>) -> usize {
        let damaged = locked.repair();
        if damaged > 0 {
            self.log.warn(&format!(
                "{} had {damaged} damaged records: the usage of their keys begins anew",
                self.path.display()
            ));
        }
        damaged
    }

    /// Decides an entry by what is stored of its key, if anything is.
    fn decide(
        &self,
        entry: &Entry<'_>,
        key: &StoredKey,
        found: bool,
        record: &Record,
        now: u64,
    ) -> Result<Decided, Hindrance> {
        let plan = entry.plan;
        let mut usage = if found { self.usage_of(entry, record, now)? } else { Usage::new(plan) };
        if let Some(answer) = usage.moved(entry, now) {
            return Ok(Decided { answer, change: None });
        }
        let simple = usage.try_simple_check(entry, now);
        if simple.is_none() && !found && !unstored::may_store(entry, now) {
            return Ok(Decided { answer: unstored::answer(entry, now), change: None });
        }
        let (answer, changed) = match simple {
            Some(answer) => (answer, true),
            None => usage.apply_and_say(entry, now),
        };
        let kept = (!changed).then_some(if found { record.parts().0 } else { &[] });
        let change = (changed || is_noted(entry)).then(|| record_of(&usage, plan, key, &answer, kept, now));
        Ok(Decided { answer, change })
    }

    /// The usage in a record.
    fn usage_of(&self, entry: &Entry<'_>, record: &Record, now: u64) -> Result<Usage, Hindrance> {
        let moments = (record.expires_at, record.denies_until);
        Usage::read(entry.plan, record.parts(), moments, now).map_or_else(
            || match entry.operation {
                // What cannot be read is forgotten.
                Operation::Clear => Ok(Usage::new(entry.plan)),
                _ => Err(Hindrance::Refused(self.rejected("the key holds a broken state; clear it"))),
            },
            Ok,
        )
    }

    /// Answers an entry; without a deadline only where the lock is free.
    fn answer(&self, entry: &Entry<'_>, now: u64, deadline: Option<Instant>) -> Result<Answer, Hindrance> {
        let key = self.key(entry);
        RECORD.with_borrow_mut(|record| self.answer_by(entry, &key, record, now, deadline))
    }

    fn answer_by(
        &self,
        entry: &Entry<'_>,
        key: &StoredKey,
        record: &mut Record,
        now: u64,
        deadline: Option<Instant>,
    ) -> Result<Answer, Hindrance> {
        let place = self.place(key);
        let look = self.shard(place.shard).look(place.bucket, key.as_bytes(), record);
        let decided = match look {
            Ok(Some(Look { found, .. })) => {
                let decided = self.decide(entry, key, found, record, now)?;
                if decided.change.is_none() {
                    return Ok(decided.answer);
                }
                Some(decided)
            }
            // Others write often, or the shard is damaged, which the lock shows.
            Ok(None) | Err(Damaged) => None,
        };
        let (_guard, locked) = self.lock(place.shard, deadline)?;
        let unchanged = matches!(look, Ok(Some(look)) if locked.is_unchanged(place.bucket, look));
        let decided = match decided.filter(|_| unchanged) {
            Some(decided) => decided,
            None => {
                let found = locked.read(place.bucket, key.as_bytes(), record)?;
                self.decide(entry, key, found, record, now)?
            }
        };
        if let Some(change) = &decided.change {
            self.write(&locked, place.bucket, change, now)?;
        }
        Ok(decided.answer)
    }

    /// Writes what is stored of a key, or removes it.
    fn write(&self, locked: &LockedShard<'_>, bucket: usize, record: &Record, now: u64) -> Result<(), Hindrance> {
        if record.bytes.len() == record.key_length {
            return Ok(locked.remove(bucket, &record.bytes[..record.key_length])?);
        }
        if !locked.can_have(record) {
            return Err(Hindrance::Refused(self.rejected(&format!(
                "a key takes {} bytes, more than a part of the file has: give it more, as in ?max_bytes=256MB, with a new file",
                record.bytes.len()
            ))));
        }
        while !locked.has_room(bucket, record, self.max_keys)? {
            match locked.make_room(now, bucket)? {
                Some(Removed::Expired) => {}
                Some(Removed::Live) => self.warn_of_full(),
                Some(Removed::Denial) => self.forgotten_denials.add(),
                None => {
                    return Err(Hindrance::Refused(self.rejected("the file has no room for the keys of one bucket")));
                }
            }
        }
        Ok(locked.write(bucket, record)?)
    }

    #[cold]
    fn warn_of_full(&self) {
        self.log.warn_once(WarningKind::FullStore, || {
            format!(
                "{} is full: keys that are used least are forgotten before their time; give it more, as in ?max_bytes=256MB, with a \
                 new file",
                self.path.display()
            )
        });
    }

    fn rejected(&self, why: &str) -> Error {
        Error::new(ErrorKind::StoreRejected, format!("{}: {why}", self.path.display()))
    }

    /// The error of a call that was hindered, in a shard that is made whole where it is damaged.
    #[cold]
    fn error(&self, hindrance: Hindrance, shards: impl Iterator<Item = usize>) -> Error {
        match hindrance {
            Hindrance::Refused(error) => error,
            Hindrance::Locked => Error::new(
                ErrorKind::StoreTimeout,
                format!(
                    "{} was locked for {} ms by another process: it may be stopped",
                    self.path.display(),
                    self.timeout.as_millis()
                ),
            )
            .of_no_run(),
            Hindrance::Damaged => {
                let deadline = Instant::now() + self.timeout;
                for number in shards {
                    if let Ok((_guard, locked)) = self.lock(number, Some(deadline)) {
                        self.repair(&locked);
                    }
                }
                self.rejected(
                    "a part of the file was damaged, and is made whole: the usage of what it had lost begins anew",
                )
            }
        }
    }

    fn begin_now(&self, entry: &Entry<'_>, context: &CallContext<'_>) -> Option<Result<Answer>> {
        if let Err(error) = self.check_open() {
            return Some(Err(error));
        }
        let now = self.now(context.now);
        let deadline = match context.waits {
            Waits::Never => None,
            _ => Some(context.deadline.unwrap_or_else(|| Instant::now() + self.timeout)),
        };
        let result = match self.answer(entry, now, None) {
            Err(Hindrance::Locked) => {
                // A caller that does not wait at all asks again as one that does.
                deadline.map(|deadline| self.answer(entry, self.now(context.now), Some(deadline)))?
            }
            result => result,
        };
        self.forgotten_denials.report();
        Some(result.map_err(|hindrance| self.error(hindrance, std::iter::once(self.place(&self.key(entry)).shard))))
    }

    fn answer_all(&self, entries: &[Entry<'_>], now: u64, deadline: Instant) -> Result<Vec<Answer>, Hindrance> {
        let keys: Vec<StoredKey> = entries.iter().map(|entry| self.key(entry)).collect();
        let places: Vec<KeyPlace> = keys.iter().map(|key| self.place(key)).collect();
        // All calls lock in the same order, so that two calls never wait for each other.
        let mut needed: Vec<usize> = places.iter().map(|place| place.shard).collect();
        needed.sort_unstable();
        needed.dedup();
        let locks = needed.iter().map(|number| self.lock(*number, Some(deadline)));
        let locks: Vec<(LockGuard<'_>, LockedShard<'_>)> = locks.collect::<Result<_, _>>()?;
        let locked = |place: &KeyPlace| &locks[needed.binary_search(&place.shard).unwrap_or_default()].1;

        let (mut numbers, mut usages): (Vec<usize>, Vec<(usize, Usage)>) = Default::default();
        let mut values: Vec<Vec<u8>> = Vec::new();
        let mut moved: Vec<Option<Answer>> = Vec::with_capacity(entries.len());
        let mut record = Record::default();
        for (index, (entry, key)) in entries.iter().zip(&keys).enumerate() {
            let known = usages.iter().position(|(first, _)| keys[*first] == *key);
            let number = match known {
                Some(number) => number,
                None => {
                    let found = locked(&places[index]).read(places[index].bucket, key.as_bytes(), &mut record)?;
                    let usage = if found { self.usage_of(entry, &record, now)? } else { Usage::new(entry.plan) };
                    values.push(if found { record.parts().0.to_vec() } else { Vec::new() });
                    usages.push((index, usage));
                    usages.len() - 1
                }
            };
            moved.push(usages[number].1.moved(entry, now));
            numbers.push(number);
        }
        if moved.iter().any(Option::is_some) {
            let other = || Answer { now, rare: RareAnswer::of_moved(Moved::OfAnother), ..Answer::default() };
            return Ok(moved.into_iter().map(|answer| answer.unwrap_or_else(other)).collect());
        }
        let (firsts, usages): (Vec<usize>, Vec<Usage>) = usages.into_iter().unzip();
        let drafts = usages.into_iter().zip(&firsts).map(|(usage, first)| Draft::new(usage, entries[*first].plan, now));
        let mut drafts: Vec<Draft> = drafts.collect();
        let answers = decide_all(entries, &numbers, &mut drafts);
        for (number, (draft, first)) in drafts.into_iter().zip(firsts).enumerate() {
            let (usage, changed) = draft.finish();
            // The last entry of a key decided in which version it is stored.
            let last = numbers.iter().rposition(|of| *of == number).unwrap_or(first);
            let (entry, key) = (&entries[last], &keys[first]);
            if changed || is_noted(entry) {
                let kept = (!changed).then_some(&*values[number]);
                let record = record_of(&usage, entry.plan, key, &answers[last], kept, now);
                self.write(locked(&places[first]), places[first].bucket, &record, now)?;
            }
        }
        Ok(answers)
    }

    /// The numbers of keys of a policy that are its own.
    fn own_numbers(&self, plan: &Plan, now: u64, deadline: Instant) -> Result<Vec<StoredOverride>> {
        let mut found = Vec::new();
        for number in 0..self.file.geometry.shards {
            let read = self.lock(number, Some(deadline)).and_then(|(_guard, locked)| {
                locked.each(|record| {
                    let (value, appendix) = record.parts();
                    found.extend(stored_override(value, appendix, plan, now));
                })?;
                Ok(())
            });
            read.map_err(|hindrance| self.error(hindrance, std::iter::once(number)))?;
        }
        Ok(found)
    }
}

/// Whether the journal of the key says that there was such a call.
fn is_noted(entry: &Entry<'_>) -> bool {
    entry.plan.policy.options().journal > 0 && entry.operation.is_check()
}

/// The record of a usage after a call that was answered so; with the value `kept` where only the journal has changed.
fn record_of(usage: &Usage, plan: &Plan, key: &StoredKey, answer: &Answer, kept: Option<&[u8]>, now: u64) -> Record {
    let mut record = Record { key_length: key.as_bytes().len(), ..Record::default() };
    record.bytes.extend_from_slice(key.as_bytes());
    (record.expires_at, record.value_length) = usage.write(plan, now, kept, &mut record.bytes);
    // A key of which nothing is left is denied until something is.
    let full = answer.views.iter().filter(|view| view.left <= 0).filter_map(|view| view.admits_at).max();
    record.denies_until = usage.denial_ends().max(full.unwrap_or(0));
    record
}

impl Store for Machine {
    #[inline]
    fn begin(&self, entry: &Entry<'_>, context: CallContext<'_>, _: &mut LayerStates) -> Option<Result<Answer>> {
        self.begin_now(entry, &context)
    }

    fn begin_all(
        &self,
        entries: &[Entry<'_>],
        context: CallContext<'_, Vec<Answer>>,
        _: &mut LayerStates,
    ) -> Option<Result<Vec<Answer>>> {
        if let Err(error) = self.check_open() {
            return Some(Err(error));
        }
        let deadline = match context.waits {
            Waits::Never => Instant::now(),
            _ => context.deadline.unwrap_or_else(|| Instant::now() + self.timeout),
        };
        let result = self.answer_all(entries, self.now(context.now), deadline);
        self.forgotten_denials.report();
        if matches!((&result, context.waits), (Err(Hindrance::Locked), Waits::Never)) {
            return None;
        }
        let shards = entries.iter().map(|entry| self.place(&self.key(entry)).shard);
        Some(result.map_err(|hindrance| self.error(hindrance, shards)))
    }

    fn ping(&self, deadline: Option<Instant>) -> Result<()> {
        self.check_open()?;
        let deadline = deadline.unwrap_or_else(|| Instant::now() + self.timeout);
        for number in 0..self.file.geometry.shards {
            let locked = self.lock(number, Some(deadline)).map(drop);
            locked.map_err(|hindrance| self.error(hindrance, std::iter::once(number)))?;
        }
        Ok(())
    }

    fn clear_all(&self) -> Result<()> {
        self.check_open()?;
        let prefix = self.names.prefix.as_bytes();
        for number in 0..self.file.geometry.shards {
            let cleared = self.lock(number, Some(Instant::now() + self.timeout)).and_then(|(_guard, locked)| {
                Ok(locked.remove_all(|key| key.len() == prefix.len() + StoredKey::DIGEST && key.starts_with(prefix))?)
            });
            cleared.map_err(|hindrance| self.error(hindrance, std::iter::once(number)))?;
        }
        Ok(())
    }

    fn change_override(&self, entry: &Entry<'_>, now: Option<u64>) -> Result<()> {
        let Operation::Override(change) = &entry.operation else { return Ok(()) };
        if !change.text.is_empty() {
            let others = self.own_numbers(entry.plan, self.now(now), Instant::now() + self.timeout)?;
            if others.len() >= MAX_OVERRIDDEN_KEYS && others.iter().all(|other| other.key != change.key) {
                return Err(Error::too_many_overrides(entry.plan.policy.name(), MAX_OVERRIDDEN_KEYS));
            }
        }
        self.begin_now(entry, &CallContext::at(now)).unwrap_or_else(|| Ok(Answer::default())).map(drop)
    }

    fn overrides(&self, entry: &Entry<'_>, now: Option<u64>) -> Result<Answer> {
        let now = self.now(now);
        let overrides = self.own_numbers(entry.plan, now, Instant::now() + self.timeout)?;
        Ok(Answer { now, rare: Some(Box::new(RareAnswer { overrides, ..RareAnswer::default() })), ..Answer::default() })
    }

    fn close(&self) {
        self.closed.store(true, Ordering::Relaxed);
    }
}
