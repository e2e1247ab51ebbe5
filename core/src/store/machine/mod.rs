//! A store that all processes of a machine share, without a server: a table in a file that each of them maps. docs/adr/0037 has the
//! reasons.
//!
//! A call reads the record of its key without a lock, and decides by the same rules as memory. A denial and a peek end
//! there. A call that changes a record locks its shard for as long as it takes to write that record.

mod calendar_plans;
mod check_all;
mod file;
mod header;
mod late_store;
mod lock;
mod locked_shard;
mod machine_clock;
mod machine_store;
mod notices;
mod own_mark;
mod record;
mod record_names;
mod repair;
mod seal;
mod shard;
mod stored_file;
mod system_clock;
/// The atomics of the table's protocol. A test puts its own in this place.
mod sync {
    pub(super) use std::sync::atomic::{AtomicU64, Ordering, fence};
}
mod waiting_calls;
mod words;

use std::cell::RefCell;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::ForgottenDenials;
use super::key_names::KeyNames;
use super::request::{Answer, Entry, Operation, StoredOverride};
use super::url::MachineFile;
use super::usage::{Glance, Usage, glance, is_noted, stored_override, unstored};
use crate::error::{Error, ErrorKind, Result};
use crate::plan::Plan;
use crate::process::log::Log;
use calendar_plans::CalendarPlans;
use file::OpenFile;
pub(crate) use late_store::open;
use lock::LockGuard;
use locked_shard::{LockedShard, Removed};
use machine_clock::Moment;
use notices::{Notice, Notices};
use record::{Damaged, Record, RecordName};
use record_names::RecordNames;
use repair::Losses;
pub use stored_file::StoredFile;

/// A store in a file.
pub(crate) struct Machine {
    file: OpenFile,
    path: Box<Path>,
    names: RecordNames,
    timeout: Duration,
    /// The most keys of a shard.
    max_keys: usize,
    notices: Notices,
    calendars: CalendarPlans,
    closed: AtomicBool,
}

/// The reason why a caller gets no answer.
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

/// The place of a key's record.
struct TablePlace {
    name: RecordName,
    shard: usize,
    bucket: usize,
}

/// The stored record of a key, and the record that is stored from now on.
#[derive(Default)]
struct Records {
    before: Record,
    after: Record,
    /// True if `after` is to be stored.
    writes: bool,
}

impl Records {
    /// Frees the memory of a large record.
    #[inline]
    fn shrink(&mut self) {
        for record in [&mut self.before, &mut self.after] {
            if record.bytes.capacity() > MAX_KEPT {
                record.bytes = Vec::new();
            }
        }
    }
}

/// The most bytes of a record for which a thread keeps memory.
const MAX_KEPT: usize = 16 << 10;

thread_local! {
    /// The memory of records is used again, so that a call allocates little.
    static RECORDS: RefCell<Records> = RefCell::default();
}

impl Machine {
    /// Opens a file, or makes it if there is none.
    ///
    /// # Errors
    /// As [`OpenFile::open`].
    pub(crate) fn open(
        place: &MachineFile,
        names: &KeyNames,
        timeout: Duration,
        forgotten_denials: &Arc<ForgottenDenials>,
        log: &Arc<Log>,
    ) -> Result<Self> {
        let file = OpenFile::open(place, timeout)?;
        if file.geometry.bytes != place.max_bytes && place.has_bytes {
            log.warn(&format!(
                "{} was made with {} bytes, and max_bytes is {} now: stop the processes that use the file and remove it, and \
                 the next process makes it anew",
                place.path.display(),
                file.geometry.bytes,
                place.max_bytes
            ));
        }
        let notices = Notices::new(Arc::clone(forgotten_denials), Arc::clone(log));
        notices.lost(file.losses);
        file.damage.iter().for_each(|damage| notices.add(*damage));
        notices.report(&place.path);
        let max_keys = place.max_keys.div_ceil(file.geometry.shards);
        let names = RecordNames::new(names, file.geometry.seed);
        let (path, calendars, closed) = (place.path.clone(), CalendarPlans::default(), AtomicBool::new(false));
        let machine = Self { file, path, names, timeout, max_keys, notices, calendars, closed };
        // Compares its time with the calendar.
        machine.now(None);
        Ok(machine)
    }

    fn check_open(&self) -> Result<()> {
        if self.closed.load(Ordering::Relaxed) {
            return Err(Error::new(ErrorKind::Closed, "the limiter is closed"));
        }
        Ok(())
    }

    #[inline]
    fn now(&self, given: Option<u64>) -> Moment {
        let file = &self.file;
        given.map_or_else(|| file.clock.now(&file.words, || self.notices.add(Notice::Time)), Moment::given)
    }

    #[inline]
    fn place(&self, entry: &Entry<'_>) -> TablePlace {
        let name = self.names.of(entry.plan, entry.key);
        let (shard, bucket) = self.file.geometry.place(name);
        TablePlace { name, shard, bucket }
    }

    fn shard(&self, number: usize) -> shard::FileShard<'_> {
        self.file.geometry.shard(&self.file.words, number)
    }

    /// Locks a shard. Without a deadline it succeeds only if the lock is free now.
    fn lock(&self, number: usize, deadline: Option<Instant>) -> Result<(LockGuard<'_>, LockedShard<'_>), Hindrance> {
        let shard = self.shard(number);
        let at = shard.at + shard::LOCK;
        let guard = match deadline {
            Some(deadline) => lock::lock(&self.file.words, at, deadline),
            None => lock::try_lock(&self.file.words, at),
        };
        let guard = guard.ok_or(Hindrance::Locked)?;
        let locked = LockedShard(shard);
        if guard.is_damaged {
            self.notices.add(Notice::Lock);
        }
        if guard.is_inherited {
            self.repair(&locked);
        }
        Ok((guard, locked))
    }

    /// Makes a shard whole, and notes its losses.
    fn repair(&self, locked: &LockedShard<'_>) {
        self.notices.lost(locked.repair());
    }

    /// Reports the notices. Call it without a lock.
    #[inline]
    fn report(&self) {
        self.notices.report(&self.path);
    }

    /// Decides an entry by the stored record of its key, if there is one.
    #[inline]
    fn decide(
        &self,
        entry: &Entry<'_>,
        name: RecordName,
        found: bool,
        records: &mut Records,
        now: u64,
    ) -> Result<Answer, Hindrance> {
        let plan = entry.plan;
        records.writes = false;
        let before = &records.before;
        let mut usage = match if found { glance(entry, before.parts(), now) } else { Glance::Unknown } {
            Glance::Answered(answer) => return Ok(answer),
            Glance::Admitted(state) => Usage::of_one(plan, state, before.moments()),
            Glance::Unknown => {
                let usage = if found { self.usage_of(entry, before, now)? } else { Usage::new(plan) };
                if let Some(answer) = usage.changed_override(entry, now) {
                    return Ok(answer);
                }
                usage
            }
        };
        let simple = usage.try_simple_call(entry, now);
        if simple.is_none() && !found && !unstored::may_store(entry, now) {
            return Ok(unstored::answer(entry, now));
        }
        let (answer, changed) = match simple {
            Some(answer) => {
                let has_charged = answer.granted > 0;
                (answer.into(), has_charged)
            }
            None => usage.apply_and_say(entry, now),
        };
        records.writes = changed || is_noted(entry);
        if records.writes {
            let kept = (!changed).then_some(if found { records.before.parts().0 } else { &[] });
            set_record(&mut records.after, &usage, plan, name, &answer, kept, now);
        }
        Ok(answer)
    }

    /// The usage in a record.
    #[inline]
    fn usage_of(&self, entry: &Entry<'_>, record: &Record, now: u64) -> Result<Usage, Hindrance> {
        Usage::read(entry.plan, record.parts(), record.moments(), now).map_or_else(
            || match entry.operation {
                // A clear forgets a broken state.
                Operation::Clear => Ok(Usage::new(entry.plan)),
                _ => Err(Hindrance::Refused(self.rejected("the stored value of the key is damaged: clear the key"))),
            },
            Ok,
        )
    }

    /// How many microseconds the calendar is ahead of the file, if the caller gives no time.
    #[inline]
    fn ahead(&self, given: Option<u64>) -> i64 {
        if given.is_some() { 0 } else { self.file.clock.ahead() }
    }

    /// Answers an entry, at the time that its caller gives or now. If it needs the lock and has no deadline, it succeeds only if the
    /// lock is free.
    fn answer(&self, entry: &Entry<'_>, given: Option<u64>, deadline: Option<Instant>) -> Result<Answer, Hindrance> {
        match self.ahead(given) {
            0 => self.answer_at(entry, given, deadline),
            ahead => self.answer_behind_calendar(entry, ahead, deadline),
        }
    }

    /// The same if the calendar is ahead of the file, or behind it.
    #[cold]
    fn answer_behind_calendar(
        &self,
        entry: &Entry<'_>,
        ahead: i64,
        deadline: Option<Instant>,
    ) -> Result<Answer, Hindrance> {
        let plan = self.calendars.plan(entry.plan, ahead);
        let entry = Entry { plan: &plan, operation: entry.operation.clone(), key: entry.key };
        Ok(self.answer_at(&entry, None, deadline)?.with_calendar_ahead(ahead))
    }

    fn answer_at(&self, entry: &Entry<'_>, given: Option<u64>, deadline: Option<Instant>) -> Result<Answer, Hindrance> {
        RECORDS.with_borrow_mut(|records| {
            let answer = self.answer_by(entry, records, given, deadline);
            records.shrink();
            answer
        })
    }

    /// The clock is read behind the record. Otherwise another process could write a later moment in between, and this call
    /// would charge units before it.
    #[inline]
    fn answer_by(
        &self,
        entry: &Entry<'_>,
        records: &mut Records,
        given: Option<u64>,
        deadline: Option<Instant>,
    ) -> Result<Answer, Hindrance> {
        let place = self.place(entry);
        let look = self.shard(place.shard).look(place.bucket, place.name, &mut records.before);
        // If others write often, or the shard is damaged, the call decides under the lock.
        let Ok(Some(look)) = look else {
            let (_guard, locked) = self.lock(place.shard, deadline)?;
            return self.answer_locked(entry, &place, &locked, records, given);
        };
        let now = self.now(given).now;
        let answer = self.decide(entry, place.name, look.found, records, now)?;
        if !records.writes {
            return Ok(answer);
        }
        let (_guard, locked) = self.lock(place.shard, deadline)?;
        if !locked.is_unchanged(place.bucket, look) {
            return self.answer_locked(entry, &place, &locked, records, given);
        }
        self.write(&locked, &place, &records.after, now)?;
        Ok(answer)
    }

    /// Answers an entry under the lock of its shard.
    #[cold]
    fn answer_locked(
        &self,
        entry: &Entry<'_>,
        place: &TablePlace,
        locked: &LockedShard<'_>,
        records: &mut Records,
        given: Option<u64>,
    ) -> Result<Answer, Hindrance> {
        let (found, now) = (locked.read(place.bucket, place.name, &mut records.before)?, self.now(given).now);
        let answer = self.decide(entry, place.name, found, records, now)?;
        if records.writes {
            self.write(locked, place, &records.after, now)?;
        }
        Ok(answer)
    }

    /// Writes the record of a key, or removes it if the new record is empty.
    fn write(&self, locked: &LockedShard<'_>, place: &TablePlace, record: &Record, now: u64) -> Result<(), Hindrance> {
        if record.bytes.is_empty() {
            return Ok(locked.remove(place.bucket, place.name)?);
        }
        if !locked.can_have(record) {
            return Err(Hindrance::Refused(self.rejected(&format!(
                "a key takes {} bytes, more than a part of the file has: give it more, as in ?max_bytes=256MB, with a new file",
                record.bytes.len()
            ))));
        }
        while !locked.has_room(place.bucket, record, self.max_keys)? {
            match locked.make_room(now, place.bucket)? {
                Some(Removed::Expired) => {}
                Some(Removed::Live) => self.notices.forgotten(),
                Some(Removed::Denial) => self.notices.forgotten_denial(),
                None => {
                    return Err(Hindrance::Refused(self.rejected("the file has no room for the keys of one bucket")));
                }
            }
        }
        Ok(locked.write(place.bucket, record)?)
    }

    fn rejected(&self, why: &str) -> Error {
        Error::new(ErrorKind::StoreRejected, format!("{}: {why}", self.path.display()))
    }

    /// The error of a call that was hindered. If its shards are damaged, they are made whole.
    #[cold]
    fn error(&self, hindrance: Hindrance, shards: impl Iterator<Item = usize>) -> Error {
        match hindrance {
            Hindrance::Refused(error) => error,
            Hindrance::Locked => Error::new(
                ErrorKind::StoreTimeout,
                format!(
                    "{} was locked for {} ms by another process, which may be stopped: end that process or let it go on",
                    self.path.display(),
                    self.timeout.as_millis()
                ),
            )
            .of_no_run(),
            Hindrance::Damaged => {
                let deadline = self.deadline();
                let repaired = shards.filter_map(|number| {
                    let (_guard, locked) = self.lock(number, Some(deadline)).ok()?;
                    Some(locked.repair())
                });
                let losses: Losses = repaired.sum();
                // The repair does not count damage that no record needs, such as a broken link between free blocks.
                self.notices.lost(Losses { damaged: losses.damaged.max(1), ..losses });
                self.report();
                self.rejected(
                    "a part of the file was damaged and is repaired: lost keys begin anew. If this comes again, check the \
                     memory and the disk of the machine",
                )
            }
        }
    }

    fn error_about(&self, entry: &Entry<'_>, hindrance: Hindrance) -> Error {
        self.error(hindrance, std::iter::once(self.place(entry).shard))
    }

    /// Visits each shard under its lock. Waits for each lock until `deadline()`.
    fn each_shard(
        &self,
        deadline: impl Fn() -> Instant,
        mut visit: impl FnMut(&LockedShard<'_>) -> Result<(), Damaged>,
    ) -> Result<()> {
        for number in 0..self.file.geometry.shards {
            let visited = self.lock(number, Some(deadline())).and_then(|(_guard, locked)| Ok(visit(&locked)?));
            visited.map_err(|hindrance| self.error(hindrance, std::iter::once(number)))?;
        }
        Ok(())
    }

    /// When a call that begins now gives up.
    fn deadline(&self) -> Instant {
        Instant::now() + self.timeout
    }

    /// The overrides of a policy's keys.
    fn stored_overrides(&self, plan: &Plan, Moment { now, .. }: Moment) -> Result<Vec<StoredOverride>> {
        let mut found = Vec::new();
        for number in 0..self.file.geometry.shards {
            self.each_record(number, |record| {
                let (value, appendix) = record.parts();
                found.extend(stored_override(value, appendix, plan, now).filter(|_| self.names.has(record.name)));
            })?;
        }
        Ok(found)
    }

    /// Visits the records of a shard. It takes the lock only if others write often.
    fn each_record(&self, number: usize, mut visit: impl FnMut(&Record)) -> Result<()> {
        let shard = self.shard(number);
        for bucket in 0..shard.buckets {
            let records = match shard.records(bucket) {
                Ok(None) => self.lock(number, Some(self.deadline())).and_then(|_guard| Ok(shard.records(bucket)?)),
                records => records.map_err(Hindrance::from),
            };
            let records = records.map_err(|hindrance| self.error(hindrance, std::iter::once(number)))?;
            records.into_iter().flatten().for_each(|record| visit(&record));
        }
        Ok(())
    }
}

/// Makes the record of a usage after a call with that answer. If only the journal has changed, the value stays `kept`.
fn set_record(
    record: &mut Record,
    usage: &Usage,
    plan: &Plan,
    name: RecordName,
    answer: &Answer,
    kept: Option<&[u8]>,
    now: u64,
) {
    record.bytes.clear();
    record.name = name;
    (record.expires_at, record.value_length) = usage.write(plan, now, kept, &mut record.bytes);
    record.denies_until = usage.denies_until(answer);
}
