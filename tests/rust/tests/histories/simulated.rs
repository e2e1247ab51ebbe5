//! Histories of a simulated store: calls get no answer, run late or never, and data is lost. The checker explains every
//! one of them, and finds the errors of a wrong store.

use std::sync::LazyLock;

use tidegate::Policy;
use tidegate_tests::budget::within;
use tidegate_tests::call_records::{
    Call, CallRecord, FaultRecord, Loss, Operation, Outcome, Schedule, overridden, policies,
};
use tidegate_tests::decision_values::DecisionValues;
use tidegate_tests::history_check::{Report, check};
use tidegate_tests::model::Model;
use tidegate_tests::random::Random;
use tidegate_tests::setting::setting;

static POLICIES: LazyLock<Vec<Policy>> = LazyLock::new(policies);

/// When it begins, in microseconds.
const START: u64 = 1_700_000_000_000_000;

/// The error of the store.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wrong {
    Nothing,
    /// A call without an answer runs twice.
    RunsTwice,
    /// A call that was answered is forgotten.
    Forgets,
}

struct SimulatedStore {
    model: Model,
    now: u64,
    earlier: Vec<Model>,
}

impl SimulatedStore {
    fn run(&mut self, call: &Call) -> Option<DecisionValues> {
        self.earlier.push(self.model.clone());
        let policies = &*POLICIES;
        let named = |name: &str| policies.iter().find(|policy| policy.name() == name).expect("a policy");
        let (name, key, cost) = &call.entries[0];
        let own = self.model.own(name, key).cloned();
        let (policy, model) = (own.as_ref().unwrap_or_else(|| named(name)), &mut self.model);
        model.set(self.now);
        match call.operation {
            Operation::Check => Some(model.check(policy, key, *cost, None)),
            Operation::Peek => Some(model.peek(policy, key, *cost)),
            Operation::Charge => {
                model.charge(policy, key, *cost);
                Some(model.peek(policy, key, *cost))
            }
            Operation::Refund => {
                model.refund(policy, key, *cost);
                Some(model.peek(policy, key, *cost))
            }
            Operation::Clear => {
                model.clear(policy, key);
                None
            }
            Operation::Block => {
                model.block(policy, key, call.length);
                None
            }
            Operation::Override => {
                model.set_own(named(name), key, overridden(named(name)).filter(|_| call.length > 0));
                None
            }
            Operation::CheckAll => {
                let own: Vec<_> = call.entries.iter().map(|(name, key, _)| model.own(name, key).cloned()).collect();
                let entries =
                    call.entries.iter().zip(&own).map(|((name, key, cost), own)| {
                        (own.as_ref().unwrap_or_else(|| named(name)), key.as_str(), *cost)
                    });
                Some(model.check_all(&entries.collect::<Vec<_>>()))
            }
        }
    }
}

fn history(seed: u64, wrong: Wrong) -> Report {
    let mut random = Random::new(seed);
    let schedule = Schedule { groups: 13, ..super::run::schedule("simulated") };
    let group = schedule.group(seed * 1_000_000_000, &mut random);
    let mut store = SimulatedStore { model: Model::default(), now: START, earlier: Vec::new() };
    let mut late: Vec<(usize, Call)> = Vec::new();
    let (mut records, mut faults) = (Vec::new(), Vec::new());
    let failures = random.below(4);
    for number in 0..40 {
        store.now += random.pick(&[300, 2_000, 20_000, 60_000]) * (random.below(100) + 1) / 50;
        if late.first().is_some_and(|(when, _)| *when <= number) {
            let (_, call) = late.remove(0);
            store.run(&call);
            store.now += random.below(3_000);
        }
        let call = schedule.call(&group, &mut random);
        let begin = (store.now - random.below(400)) * 1_000;
        let fails = random.below(40) < failures;
        let mut outcome = None;
        if !fails {
            outcome = store.run(&call);
            if wrong == Wrong::Forgets && random.one_in(8) {
                store.model = store.earlier.pop().expect("it was kept");
            }
        } else {
            match random.below(3) {
                0 => {}
                1 => {
                    store.run(&call);
                    if wrong == Wrong::RunsTwice {
                        store.run(&call);
                    }
                }
                _ => late.push((number + 1 + random.below(6) as usize, call.clone())),
            }
        }
        let end = (store.now + random.below(400)) * 1_000;
        let outcome = match outcome {
            Some(values) => {
                Outcome::Decided { at: (!random.one_in(20)).then_some(store.now), values: Box::new(values) }
            }
            None if fails => Outcome::Failed("store_timeout".to_owned()),
            None => Outcome::Done,
        };
        let (client, group) = ("simulated".to_owned(), group.name.clone());
        records.push(CallRecord { client, number: number as u64, group, call, begin, end, outcome });
        if random.one_in(60) {
            let begin = store.now * 1_000;
            store.now += random.below(10_000);
            let loss = random.pick(&[Loss::Everything, Loss::EverythingOfSome, Loss::Newest]);
            store.model = match loss {
                Loss::Newest if !store.earlier.is_empty() => {
                    store.earlier[random.below(store.earlier.len() as u64) as usize].clone()
                }
                _ => Model::default(),
            };
            faults.push(FaultRecord { name: "simulated", begin, end: store.now * 1_000, loss });
        }
    }
    check(&POLICIES, &records, &faults, &vec![(START * 1_000, START)], 0)
}

#[test]
fn what_happened_is_explained() {
    let (mut uncertain, mut undecided) = (0, 0);
    let mut seeds = within(3, 0..setting("TIDEGATE_HISTORIES").unwrap_or(150));
    for seed in seeds.by_ref() {
        let report = history(seed, Wrong::Nothing);
        uncertain += report.uncertain;
        undecided += report.undecided;
        if let Some(first) = report.violations.first() {
            panic!("seed {seed}: {}", first.what);
        }
    }
    println!("{} histories, {uncertain} uncertain, {undecided} undecided", seeds.begun());
    assert!(undecided * 10 <= uncertain, "{undecided} of {uncertain} are undecided");
}

#[test]
fn what_was_done_wrong_is_found() {
    for wrong in [Wrong::RunsTwice, Wrong::Forgets] {
        let found = (0..100).filter(|seed| !history(*seed, wrong).violations.is_empty()).take(5).count();
        assert!(found >= 5, "{found} of 100");
    }
}
