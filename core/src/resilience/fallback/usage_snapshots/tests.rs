use super::*;
use crate::algorithm::State;
use crate::plan::plan_cache::plan_of;
use crate::policy::Policy;
use crate::resilience::key_table::TableShard;
use crate::store::request::Operation;

const SECOND: u64 = 1_000_000;
const NOW: u64 = 1_800_000_000 * SECOND;
const PEEK: Operation = Operation::peek(1);

fn plan(notation: &str) -> Arc<Plan> {
    plan_of(&Policy::parse(notation).expect("a policy"))
}

/// The answer of a store and its states, after a charge at `now` by its clock.
fn charged(plan: &Plan, units: u64, now: u64) -> (Answer, States) {
    let mut states: States = plan.rules.iter().map(Rule::fresh).collect();
    plan.rules.iter().zip(&mut states).for_each(|(rule, state)| rule.charge(state, now, units, 0));
    let views = plan.rules.iter().zip(&states).map(|(rule, state)| rule.view(state, now, 1, 0)).collect();
    (Answer { now, views, ..Answer::default() }, states)
}

/// The usage that a key goes on from.
fn resumed(snapshots: &UsageSnapshots, entry: &Entry<'_>, now: u64) -> Option<(States, u64, u64)> {
    let mut found = None;
    snapshots.begin_enforcing(
        entry,
        now,
        1,
        || [],
        |usage| found = Some((usage.states, usage.rest.blocked_until, usage.now)),
    );
    found
}

#[test]
fn the_snapshots_stay_within_their_capacity_under_a_flood_of_keys() {
    let snapshots = UsageSnapshots::default();
    let plan = plan("5/hour");
    for number in 0..300_000_u64 {
        let key = format!("key {number}");
        let entry = Entry { plan: &plan, key: &key, operation: PEEK };
        let (answer, states) = charged(&plan, 1, number + 1);
        snapshots.observe(&entry, &answer, states, number + 1, STORE);
    }
    assert_eq!(snapshots.table.sum(TableShard::len), 65_536);
}

#[test]
fn a_key_goes_on_in_the_time_of_its_store() {
    for ahead in [-7_200 * SECOND as i64, -1, 0, 333_333, 7_200 * SECOND as i64] {
        let snapshots = UsageSnapshots::default();
        let plan = plan("calendar-window 10/minute; sliding-window 10/10s; sliding-counter 10/20s");
        let entry = Entry { plan: &plan, key: "k", operation: PEEK };
        let (answer, states) = charged(&plan, 15, NOW.saturating_add_signed(ahead));
        snapshots.observe(&entry, &answer, states.clone(), NOW, STORE);
        let later = NOW + 5 * SECOND;
        assert_eq!(
            resumed(&snapshots, &entry, later),
            Some((states, 0, later.saturating_add_signed(ahead))),
            "the same states, and the time has passed that has passed here"
        );
        let other = Entry { key: "other", ..entry };
        let time_of_other = snapshots.begin_enforcing(&other, later, 1, || [], |_| ());
        let behind = later.saturating_add_signed(ahead) - time_of_other;
        assert!(behind < SECOND, "a key that is not known has nearly the same time: {behind} µs behind");
    }
}

#[test]
fn an_answer_that_was_overtaken_or_comes_from_a_replica_takes_nothing_back() {
    let snapshots = UsageSnapshots::default();
    let plan = plan("sliding-counter 10/20s");
    let entry = Entry { plan: &plan, key: "k", operation: PEEK };
    let (newer, more) = charged(&plan, 15, NOW + 2);
    let (older, less) = charged(&plan, 3, NOW + 1);
    let blocked = Answer { blocked_until: NOW + 9 * SECOND, ..newer };
    snapshots.observe(&entry, &blocked, more.clone(), NOW + 10, STORE);
    snapshots.observe(&entry, &older, less.clone(), NOW + 11, STORE);
    let replica = Answer { may_be_old: true, now: NOW + 12, ..older };
    snapshots.observe(&entry, &replica, less, NOW + 12, STORE);
    let (states, blocked_until, _) = resumed(&snapshots, &entry, NOW + 12).expect("it is known");
    assert_eq!((states, blocked_until), (more, NOW + 9 * SECOND));
}

#[test]
fn a_replica_that_shows_more_is_believed() {
    let snapshots = UsageSnapshots::default();
    let plan = plan("sliding-counter 10/20s");
    let entry = Entry { plan: &plan, key: "k", operation: PEEK };
    let (own, less) = charged(&plan, 3, NOW);
    snapshots.observe(&entry, &own, less, NOW, STORE);
    let (of_others, more) = charged(&plan, 15, NOW + 1);
    snapshots.observe(&entry, &Answer { may_be_old: true, ..of_others }, more.clone(), NOW + 1, STORE);
    assert_eq!(resumed(&snapshots, &entry, NOW + 2).expect("it is known").0, more);
}

#[test]
fn the_holds_of_this_process_are_known_without_a_snapshot() {
    let plan = plan("concurrency 10 ttl 60s");
    let units_from = |snapshots: &UsageSnapshots| {
        let entry = Entry { plan: &plan, key: "k", operation: PEEK };
        let mut units = Vec::new();
        snapshots.begin_enforcing(
            &entry,
            NOW + SECOND,
            1,
            || [(77, 3), (88, 4)],
            |usage| {
                let State::Concurrency(state) = &usage.states[0] else { panic!("{:?}", usage.states) };
                units = state.holds.iter().map(|hold| (hold.id, hold.units)).collect();
            },
        );
        units
    };
    assert_eq!(units_from(&UsageSnapshots::default()), [(77, 3), (88, 4)]);

    // The last answer of the store counts alone: the other hold is gone.
    let snapshots = UsageSnapshots::default();
    let (answer, mut states) = charged(&plan, 2, NOW);
    plan.rules[0].charge(&mut states[0], NOW, 3, 77);
    snapshots.observe(&Entry { plan: &plan, key: "k", operation: PEEK }, &answer, states, NOW, STORE);
    assert_eq!(units_from(&snapshots), [(0, 2), (77, 3)]);
}
