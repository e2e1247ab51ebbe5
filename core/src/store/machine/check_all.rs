//! Several entries, all charged or none, under the locks of all their shards.

use std::time::Instant;

use super::lock::LockGuard;
use super::locked_shard::LockedShard;
use super::record::Record;
use super::{Hindrance, Machine, TablePlace, is_noted, set_record};
use crate::store::request::{Answer, Entry};
use crate::store::usage::{Draft, Usage, decide_all};

impl Machine {
    pub(super) fn answer_all(
        &self,
        entries: &[Entry<'_>],
        now: u64,
        deadline: Instant,
    ) -> Result<Vec<Answer>, Hindrance> {
        let places: Vec<TablePlace> = entries.iter().map(|entry| self.place(entry)).collect();
        // All calls lock in the same order, so that two calls never wait for each other.
        let mut needed: Vec<usize> = places.iter().map(|place| place.shard).collect();
        needed.sort_unstable();
        needed.dedup();
        let locks = needed.iter().map(|number| self.lock(*number, Some(deadline)));
        let locks: Vec<(LockGuard<'_>, LockedShard<'_>)> = locks.collect::<Result<_, _>>()?;
        let locked = |place: &TablePlace| &locks[needed.binary_search(&place.shard).unwrap_or_default()].1;

        let (mut numbers, mut usages): (Vec<usize>, Vec<(usize, Usage)>) = Default::default();
        let mut values: Vec<Vec<u8>> = Vec::new();
        let mut moved: Vec<Option<Answer>> = Vec::with_capacity(entries.len());
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
            moved.push(usages[number].1.moved(entry, now));
            numbers.push(number);
        }
        if moved.iter().any(Option::is_some) {
            return Ok(Answer::all_moved(moved, now));
        }
        let (firsts, usages): (Vec<usize>, Vec<Usage>) = usages.into_iter().unzip();
        let drafts = usages.into_iter().zip(&firsts).map(|(usage, first)| Draft::new(usage, entries[*first].plan, now));
        let mut drafts: Vec<Draft> = drafts.collect();
        let answers = decide_all(entries, &numbers, &mut drafts);
        for (number, (draft, first)) in drafts.into_iter().zip(firsts).enumerate() {
            let (usage, changed) = draft.finish();
            // The last entry of a key decided in which version it is stored.
            let last = numbers.iter().rposition(|of| *of == number).unwrap_or(first);
            let (entry, place) = (&entries[last], &places[first]);
            if changed || is_noted(entry) {
                let kept = (!changed).then_some(&*values[number]);
                set_record(&mut record, &usage, entry.plan, place.name, &answers[last], kept, now);
                self.write(locked(place), place, &record, now)?;
            }
        }
        Ok(answers)
    }
}
