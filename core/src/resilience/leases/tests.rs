use std::time::Duration;

use crate::process::lock::Mutex;

use super::*;
use crate::algorithm::View;
use crate::plan::plan_cache::plan_of;
use crate::policy::{Lease, Options, Policy};
use crate::process::log::Log;
use crate::resilience::layer::Layered;
use crate::resilience::stub_store::{Message, StubStore};
use crate::store::ForgottenDenials;
use crate::store::memory::Memory;
use crate::store::request::Source;
use crate::store::url::MemoryBounds;

const START: u64 = 1_700_000_000_000_000;

fn plan(limits: &str, lease: &str) -> Arc<Plan> {
    let limits = Policy::parse(limits).expect("a notation").limits().to_vec();
    let lease = Some(Lease::parse(lease).expect("a lease"));
    plan_of(
        &Policy::new(limits, Options { lease, ..Options::default() })
            .and_then(|policy| policy.named("p"))
            .expect("a policy"),
    )
}

/// A process whose calls arrive at its store when a test delivers them.
struct Setup {
    plan: Arc<Plan>,
    clock: Arc<ManualClock>,
    network: Arc<StubStore>,
    store: Arc<dyn Store>,
    leases: Arc<Leases>,
    memory: Memory,
    answers: Arc<Mutex<Vec<Answer>>>,
}

impl Setup {
    fn new(plan: Arc<Plan>) -> Self {
        let clock = Arc::new(ManualClock::new(Duration::from_micros(START)));
        let network = Arc::new(StubStore::default());
        let below = Arc::clone(&network) as Arc<dyn Store>;
        let leases = Leases::new(Arc::clone(&below), Duration::ZERO, Some(Arc::clone(&clock)));
        let store = Layered::around(Arc::clone(&leases), below);
        let memory = Memory::new(MemoryBounds::default(), ForgottenDenials::shared(&Log::new(None)));
        Self { plan, clock, network, store, leases, memory, answers: Arc::default() }
    }

    /// A process that has spent units of a lease of `key`.
    fn leasing(plan: Arc<Plan>) -> Self {
        let setup = Self::new(plan);
        (0..8).for_each(|_| setup.check());
        setup.deliver_all();
        setup.check();
        assert_eq!(setup.last().source, Source::Lease);
        setup
    }

    fn pass(&self, micros: u64) {
        self.clock.advance(Duration::from_micros(micros));
        self.leases.expire();
    }

    fn call(&self, operation: Operation) {
        let (entry, answers) = (Entry { plan: &self.plan, key: "k", operation }, Arc::clone(&self.answers));
        let context = CallContext::at(Some(self.clock.micros()));
        wake(submit_then(&self.store, &entry, context, move |result| {
            answers.lock().extend(result.ok());
            None
        }));
    }

    fn check(&self) {
        self.call(Operation::check(1));
    }

    fn last(&self) -> Answer {
        self.answers.lock().last().cloned().expect("an answer")
    }

    /// Takes the first message with such an operation.
    fn take(&self, operation: fn(&Operation) -> bool) -> Message {
        let mut outgoing = self.network.outgoing.lock();
        let found = outgoing.iter().position(|message| operation(&message.entry.operation)).expect("a message");
        outgoing.remove(found)
    }

    fn count(&self, operation: fn(&Operation) -> bool) -> usize {
        self.network.outgoing.lock().iter().filter(|message| operation(&message.entry.operation)).count()
    }

    /// Does the operation of a message in the store.
    fn execute(&self, message: &Message) -> Answer {
        self.memory.answer(&message.entry.entry(), Some(self.clock.micros()))
    }

    fn deliver(&self, message: Message) {
        let answer = self.execute(&message);
        wake((message.completion)(Ok(answer)));
    }

    fn deliver_all(&self) {
        loop {
            let Some(message) = self.network.outgoing.lock().pop() else { return };
            self.deliver(message);
        }
    }

    fn left(&self) -> u64 {
        let entry = Entry { plan: &self.plan, key: "k", operation: Operation::peek(1) };
        let answer = self.memory.answer(&entry, Some(self.clock.micros()));
        answer.views.iter().map(View::remaining).min().expect("a limit")
    }
}

const fn is_check(operation: &Operation) -> bool {
    matches!(operation, Operation::Check { .. })
}

const fn is_lease(operation: &Operation) -> bool {
    matches!(operation, Operation::Lease(_))
}

const fn is_give_back(operation: &Operation) -> bool {
    matches!(operation, Operation::GiveBack { .. })
}

const fn is_clear(operation: &Operation) -> bool {
    matches!(operation, Operation::Clear)
}

#[test]
fn a_key_that_is_asked_now_and_then_never_leases() {
    let setup = Setup::new(plan("fixed-window 1000/hour", "5%"));
    for _ in 0..50 {
        setup.check();
        setup.pass(60_000);
    }
    assert_eq!(setup.count(is_lease), 0);
    (0..4).for_each(|_| setup.check());
    assert_eq!(setup.count(is_lease), 1, "one request at a time");
}

#[test]
fn what_is_left_when_a_block_ends_goes_back() {
    let setup = Setup::leasing(plan("fixed-window 1000/hour", "5%"));
    setup.deliver_all();
    let spent = setup.answers.lock().iter().filter(|answer| answer.applied).count() as u64;
    assert!(setup.left() < 1_000 - spent, "units are taken in advance");
    setup.pass(1_000_000);
    assert!(setup.count(is_give_back) > 0);
    setup.deliver_all();
    assert_eq!(setup.left(), 1_000 - spent, "what was spent stays charged, and nothing else");
}

#[test]
fn units_of_a_request_that_a_clear_overtakes_go_back_and_others_do_not() {
    for lease_first in [true, false] {
        let setup = Setup::new(plan("fixed-window 1000/hour", "5%"));
        (0..8).for_each(|_| setup.check());
        let request = setup.take(is_lease);
        setup.deliver_all();
        setup.call(Operation::Clear);
        let clear = setup.take(is_clear);
        let (granted, cleared) = if lease_first {
            let granted = setup.execute(&request);
            setup.pass(10);
            (granted, setup.execute(&clear))
        } else {
            let cleared = setup.execute(&clear);
            setup.pass(10);
            (setup.execute(&request), cleared)
        };
        assert!(granted.granted > 0);
        // Another process charges as much after the clear.
        setup.pass(10);
        let charge = Operation::charge(granted.granted);
        let charge = Entry { plan: &setup.plan, key: "k", operation: charge };
        setup.memory.answer(&charge, Some(setup.clock.micros()));
        // The reply to the request comes before that to the clear.
        wake((request.completion)(Ok(granted.clone())));
        wake((clear.completion)(Ok(cleared)));
        setup.deliver_all();
        assert_eq!(setup.left(), 1_000 - granted.granted, "what was charged before the clear does not come back");
    }
}

#[test]
fn a_block_a_charge_and_other_numbers_end_the_blocks_at_once() {
    for operation in [Operation::Block { micros: 60_000_000 }, Operation::charge(5)] {
        let setup = Setup::leasing(plan("fixed-window 1000/hour", "5%"));
        setup.deliver_all();
        setup.call(operation);
        assert!(setup.count(is_give_back) > 0, "what is left goes back");
        setup.deliver_all();
        setup.check();
        assert_eq!(setup.count(is_check), 1, "the store is asked");
    }
    let mut setup = Setup::leasing(plan("fixed-window 1000/hour", "5%"));
    setup.deliver_all();
    setup.plan = plan("fixed-window 500/hour", "5%");
    setup.check();
    assert!(setup.count(is_give_back) > 0 && setup.last().source == Source::Lease, "the last answer is the older one");
    assert_eq!(setup.count(is_check), 1, "the store is asked");
}

#[test]
fn in_an_outage_a_block_is_spent_until_it_ends() {
    let setup = Setup::leasing(plan("fixed-window 100000/hour", "5%"));
    let mut leased = 0;
    for _ in 0..400 {
        setup.check();
        leased += u64::from(setup.last().source == Source::Lease && setup.network.outgoing.lock().is_empty());
        for message in setup.network.outgoing.lock().drain(..) {
            wake((message.completion)(Err(crate::error::Error::new(crate::error::ErrorKind::StoreTimeout, "lost"))));
        }
        setup.pass(1_000);
    }
    assert!((4..100).contains(&leased), "{leased} were spent, and no more than there were");
}

#[test]
fn a_clock_of_the_store_that_jumps_further_than_a_lease_lives_ends_all_leases() {
    for (jump, ends) in [(500_000, false), (1_500_000, true)] {
        let setup = Setup::leasing(plan("fixed-window 100000/second", "5%"));
        setup.deliver_all();
        let mut spent = 0;
        let is_leased = || {
            setup.check();
            setup.count(is_check) == 0
        };
        assert!(is_leased(), "a block is spent");
        // The server has forgotten the charges from before the jump. The next answer, about another key, shows that.
        let other = Operation::check(1);
        let entry = Entry { plan: &setup.plan, key: "other", operation: other };
        let answers = Arc::clone(&setup.answers);
        let context = CallContext::at(Some(setup.clock.micros()));
        wake(submit_then(&setup.store, &entry, context, move |result| {
            answers.lock().extend(result.ok());
            None
        }));
        let message = setup.take(is_check);
        let mut answer = setup.execute(&message);
        answer.now += jump;
        wake((message.completion)(Ok(answer)));
        while spent < 1_000 && is_leased() {
            spent += 1;
        }
        assert_eq!(
            spent == 0,
            ends,
            "after a jump of {jump} µs {spent} units were spent that the store does not count"
        );
    }
}
