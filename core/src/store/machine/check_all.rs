//! Several entries, all charged or none, under the locks of all their shards.

use std::time::Instant;

use super::lock::LockGuard;
use super::locked_shard::LockedShard;
use super::machine_store::BRIEFLY;
use super::record::Record;
use super::{Hindrance, Machine, TablePlace, set_record};
use crate::store::request::{Answer, Entry};
use crate::store::usage::{Together, Usage, decide_together, is_noted};

impl Machine {
    pub(super) fn answer_all(
        &self,
        entries: &[Entry<'_>],
        given: Option<u64>,
        deadline: Instant,
    ) -> Result<Vec<Answer>, Hindrance> {
        let ahead = self.ahead(given);
        if ahead == 0 {
            return self.answer_all_at(entries, given, deadline);
        }
        let plans: Vec<_> = entries.iter().map(|entry| self.calendars.plan(entry.plan, ahead)).collect();
        let entries = entries.iter().zip(&plans);
        let entries: Vec<Entry<'_>> =
            entries.map(|(entry, plan)| Entry { plan, operation: entry.operation.clone(), key: entry.key }).collect();
        let answers = self.answer_all_at(&entries, given, deadline)?;
        Ok(answers.into_iter().map(|answer| answer.with_calendar_ahead(ahead)).collect())
    }

    fn answer_all_at(
        &self,
        entries: &[Entry<'_>],
        given: Option<u64>,
        deadline: Instant,
    ) -> Result<Vec<Answer>, Hindrance> {
        let places: Vec<TablePlace> = entries.iter().map(|entry| self.place(entry)).collect();
        // All calls lock in the same order, so that two calls never wait for each other.
        let mut needed: Vec<usize> = places.iter().map(|place| place.shard).collect();
        needed.sort_unstable();
        needed.dedup();
        let (locks, now) = (self.lock_all(&needed, deadline)?, self.now(given).now);
        let locked = |place: &TablePlace| &locks[needed.binary_search(&place.shard).unwrap_or_default()].1;

        let (mut numbers, mut usages): (Vec<usize>, Vec<(usize, Usage)>) = Default::default();
        let mut values: Vec<Vec<u8>> = Vec::new();
        let mut changed: Vec<Option<Answer>> = Vec::with_capacity(entries.len());
        let mut record = Record::default();
        for (index, (entry, place)) in entries.iter().zip(&places).enumerate() {
            let known = usages.iter().position(|(first, _)| places[*first].name == place.name);
            let number = match known {
                Some(number) => number,
                None => {
                    let found = locked(place).read(place.bucket, place.name, &mut record)?;
                    let usage = if found { self.usage_of(entry, &record, now)? } else { Usage::new(entry.plan) };
                    values.push(if found { record.parts().0.to_vec() } else { Vec::new() });
                    usages.push((index, usage));
                    usages.len() - 1
                }
            };
            changed.push(usages[number].1.changed_override(entry, now));
            numbers.push(number);
        }
        if changed.iter().any(Option::is_some) {
            return Ok(Answer::all_changed(changed, now));
        }
        let usages = usages.into_iter().map(|(_, usage)| usage).collect();
        let (answers, decided) = decide_together(entries, &numbers, usages, now);
        for (value, Together { usage, changed, last }) in values.iter().zip(decided) {
            let (entry, place) = (&entries[last], &places[last]);
            if changed || is_noted(entry) {
                let kept = (!changed).then_some(&value[..]);
                set_record(&mut record, &usage, entry.plan, place.name, &answers[last], kept, now);
                self.write(locked(place), place, &record, now)?;
            }
        }
        Ok(answers)
    }

    /// Locks several shards. While it waits for long it holds none of them, because other calls need the keys in them.
    fn lock_all(
        &self,
        needed: &[usize],
        deadline: Instant,
    ) -> Result<Vec<(LockGuard<'_>, LockedShard<'_>)>, Hindrance> {
        loop {
            let briefly = deadline.min(Instant::now() + BRIEFLY);
            let lock = |number: &usize| self.lock(*number, Some(briefly)).map_err(|why| (*number, why));
            match needed.iter().map(lock).collect::<Result<_, _>>() {
                Ok(locks) => return Ok(locks),
                Err((number, Hindrance::Locked)) if Instant::now() < deadline => {
                    drop(self.lock(number, Some(deadline))?);
                }
                Err((_, why)) => return Err(why),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::sync::Arc;
    use std::time::Duration;

    use super::super::Records;
    use super::*;
    use crate::plan::plan_cache::plan_of;
    use crate::policy::Policy;
    use crate::process::log::Log;
    use crate::store::key_names::KeyNames;
    use crate::store::request::Operation;
    use crate::store::url::StoreUrl;

    const TIMEOUT: Duration = Duration::from_secs(20);

    /// A new file, and the folder to remove.
    fn opened(name: &str) -> (Machine, PathBuf) {
        let folder = std::env::temp_dir().join(format!("tidegate-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        let url = StoreUrl::parse(&format!("file://{}/limits?max_bytes=4MB", folder.display())).expect("a URL");
        let StoreUrl::Machine(place) = url else { panic!("a file") };
        let machine = Machine::open(&place, &KeyNames::from("tg"), TIMEOUT, &Arc::default(), &Log::new(None));
        (machine.expect("a file"), folder)
    }

    #[test]
    fn a_call_holds_no_lock_while_it_waits_for_another() {
        let (machine, folder) = opened("check-all");
        let plan = plan_of(&Policy::parse("5/hour").expect("a policy"));
        let keys: Vec<String> = (0..40).map(|number| format!("key {number}")).collect();
        let entry = |key| Entry { plan: &plan, key, operation: Operation::check(1) };
        let entries: Vec<Entry<'_>> = keys.iter().map(|key| entry(key)).collect();
        let last = entries.iter().map(|entry| machine.place(entry).shard).max().expect("a part");
        let of_another = entries.iter().find(|entry| machine.place(entry).shard != last).expect("several parts");
        std::thread::scope(|scope| {
            let locked = machine.lock(last, None).ok().expect("it is free");
            let waiting = scope.spawn(|| machine.answer_all(&entries, None, machine.deadline()));
            let begun = Instant::now();
            // While it waits for the last part, no other call waits for the rest.
            while begun.elapsed() < Duration::from_millis(200) {
                assert!(machine.answer(of_another, None, Some(begun + TIMEOUT / 4)).is_ok(), "it is locked");
            }
            assert!(!waiting.is_finished());
            drop(locked);
            let answers = waiting.join().expect("no panic").ok().expect("answers");
            assert!(answers.len() == entries.len());
        });
        std::fs::remove_dir_all(&folder).expect("its folder");
    }

    /// A call that has looked at its key waits for the lock, and another one opens the window meanwhile.
    #[test]
    fn a_call_that_waited_is_not_decided_before_the_window_of_another() {
        let (machine, folder) = opened("waited");
        let plan = plan_of(&Policy::parse("fixed-window 5/hour").expect("a policy"));
        let entry = Entry { plan: &plan, key: "k", operation: Operation::check(1) };
        let place = machine.place(&entry);
        let (first, waited) = std::thread::scope(|scope| {
            let (guard, locked) = machine.lock(place.shard, None).ok().expect("it is free");
            let waiting = scope.spawn(|| machine.answer(&entry, None, Some(machine.deadline())));
            // Time for the look. Without it the test proves less, and does not fail.
            std::thread::sleep(Duration::from_millis(100));
            let first = machine.answer_locked(&entry, &place, &locked, &mut Records::default(), None);
            drop(guard);
            (first.ok().expect("an answer"), waiting.join().expect("no panic").ok().expect("an answer"))
        });
        assert!(first.now <= waited.now, "{} is before {}", waited.now, first.now);
        drop(std::fs::remove_dir_all(folder));
    }
}
