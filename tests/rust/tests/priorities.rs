//! Classes of calls that leave a part of every limit free.

use std::sync::Arc;
use std::time::Duration;

use tidegate::{Algorithm, CheckOptions, Decision, ErrorKind, Limit, Limiter, ManualClock, Options, Period, Policy};
use tidegate_tests::any_limiter::fresh_prefix;
use tidegate_tests::random::Random;
use tidegate_tests::servers::{Kind, Servers};

const START: Duration = Duration::from_secs(1_700_000_000);

/// A limiter of each store, each with a separate clock.
fn limiters(redis: &Servers) -> [(Limiter, Arc<ManualClock>); 2] {
    let memory = Limiter::builder();
    let stored = Limiter::builder()
        .store(redis.url())
        .prefix(fresh_prefix())
        .timeout(Duration::from_secs(10))
        .deny_cache(Duration::ZERO);
    [memory, stored].map(|builder| {
        let clock = Arc::new(ManualClock::new(START));
        (builder.clock(Arc::clone(&clock)).build().expect("a limiter"), clock)
    })
}

fn policy(notation: &str, classes: &str, options: Options) -> Policy {
    let options = Options { priorities: Some(classes.parse().expect("classes")), ..options };
    Policy::new(Policy::parse(notation).expect("a notation").limits().to_vec(), options).expect("a policy")
}

fn of(class: &str, cost: u64) -> CheckOptions {
    CheckOptions { cost, priority: Some(class.to_owned()), ..CheckOptions::default() }
}

#[test]
fn a_class_leaves_a_part_of_every_limit_free() {
    let redis = Servers::start(Kind::Single);
    for (limiter, clock) in limiters(&redis) {
        let policy = policy("10/minute; gcra 100/s burst 8", "batch: 30%, background: 60%", Options::default());
        let check = |options: &CheckOptions| limiter.check_with(&policy, "k", options).expect("a check");
        // 3 of 10 and 3 of 8 stay free, so batch may take 5 of the second limit.
        let background = check(&of("background", 1));
        assert!(background.allowed());
        assert_eq!(background.limits().map(|limit| limit.remaining).collect::<Vec<_>>(), [3, 2]);
        let taken = (0..10).filter(|_| check(&of("batch", 1)).allowed()).count();
        assert_eq!(taken, 4);
        let denied = check(&of("batch", 1));
        assert_eq!(
            denied.limits().map(|limit| (limit.remaining, limit.exceeded)).collect::<Vec<_>>(),
            [(2, false), (0, true)]
        );
        // The wait is exact.
        let wait = denied.retry_after().expect("a wait");
        clock.advance(wait - Duration::from_micros(1));
        assert!(!check(&of("batch", 1)).allowed());
        clock.advance(Duration::from_micros(1));
        assert!(check(&of("batch", 1)).allowed());
        // Calls without a class take the rest.
        assert_eq!((0..10).filter(|_| check(&CheckOptions::default()).allowed()).count(), 3);
        // The class may never have so many.
        assert_eq!(check(&of("batch", 6)).retry_after(), None);
    }
}

#[test]
fn a_denial_by_the_reserve_alone_begins_no_block_and_is_not_charged() {
    let redis = Servers::start(Kind::Single);
    for (limiter, _) in limiters(&redis) {
        let second = Period::from_micros(60_000_000).expect("in range");
        for options in [
            Options { block_for: Some(second.into()), ..Options::default() },
            Options { count_denied: true, ..Options::default() },
        ] {
            let policy = policy("10/hour", "batch: 30%", options.clone())
                .named(if options.count_denied { "counted" } else { "blocked" })
                .expect("a name");
            let check = |options: &CheckOptions| limiter.check_with(&policy, "k", options).expect("a check");
            assert!(check(&of("batch", 7)).allowed());
            for _ in 0..3 {
                assert!(!check(&of("batch", 1)).allowed());
                let entries = [(&policy, "k", of("batch", 1)), (&policy, "other", CheckOptions::default())];
                assert!(!limiter.check_all(entries).expect("an answer").allowed());
            }
            assert!(check(&CheckOptions { cost: 3, ..CheckOptions::default() }).allowed());
            // Now the limit itself refuses the class.
            assert!(!check(&of("batch", 1)).allowed());
            let refunded = limiter.refund(&policy, "k", 10_u64).expect("a refund");
            assert_eq!(
                limiter.peek(&policy, "k", 1_u64).expect("a peek").allowed(),
                options.count_denied,
                "{refunded:?}"
            );
        }
    }
}

#[test]
fn a_partial_check_takes_what_the_class_may_have() {
    let redis = Servers::start(Kind::Single);
    for (limiter, _) in limiters(&redis) {
        let policy = policy("sliding-log 10/minute; 100/hour", "batch: 30%", Options::default());
        let take = |options: CheckOptions| {
            limiter.check_with(&policy, "k", &CheckOptions { partial: true, ..options }).expect("a check")
        };
        assert_eq!(take(of("batch", 20)).granted(), 7);
        let denied = take(of("batch", 20));
        assert_eq!((denied.allowed(), denied.granted(), denied.remaining()), (false, 0, 0));
        assert_eq!(take(CheckOptions { cost: 20, ..CheckOptions::default() }).granted(), 3);
    }
}

#[test]
fn classes_hold_are_entries_and_spend_no_lease() {
    let redis = Servers::start(Kind::Single);
    for (limiter, _) in limiters(&redis) {
        let held = policy("concurrency 4", "batch: 50%", Options::default());
        let hold = |options: &CheckOptions| limiter.hold_with(&held, "k", options).expect("an answer").held();
        let holds: Vec<_> = (0..4).filter_map(|_| hold(&of("batch", 1))).collect();
        assert_eq!(holds.len(), 2);
        assert!(hold(&CheckOptions { cost: 2, ..CheckOptions::default() }).is_some());

        let leased = policy(
            "1000/minute",
            "batch: 50%",
            Options { lease: Some("10%".parse().expect("a lease")), ..Options::default() },
        );
        assert!(limiter.check(&leased, "k").expect("a check").allowed());
        let batch = limiter.check_with(&leased, "k", &of("batch", 1)).expect("a check");
        assert_eq!(batch.source().name(), "store");
        for class in ["bach", ""] {
            let error = limiter.check_with(&leased, "k", &of(class, 1)).expect_err("no such class");
            assert_eq!(error.kind(), ErrorKind::ConfigInvalid, "{error}");
        }
        let error = limiter.peek_with("5/minute", "k", &of("batch", 1)).expect_err("no classes");
        assert!(error.message().contains("has no classes"), "{error}");
        let error =
            limiter.peek_with(&leased, "k", &CheckOptions { partial: true, ..of("batch", 1) }).expect_err("no part");
        assert_eq!(error.kind(), ErrorKind::ConfigInvalid);
    }
}

fn text(decision: &Decision) -> String {
    let limits: Vec<_> = decision.limits().map(|limit| (limit.remaining, limit.over, limit.reset_after)).collect();
    format!("{limits:?} {:?}", decision.reset_after())
}

/// A check of a class is admitted exactly if a peek of its cost plus the reserve is. It waits as long, and charges its cost.
#[test]
fn a_class_asks_for_its_cost_and_the_reserve_and_is_charged_its_cost() {
    let redis = Servers::start(Kind::Single);
    let [(memory, clock), (stored, stored_clock)] = limiters(&redis);
    let [(plain, plain_clock), _] = limiters(&redis);
    let algorithms: Vec<Algorithm> =
        Algorithm::ALL.iter().copied().filter(|algorithm| *algorithm != Algorithm::Concurrency).collect();
    for seed in 0..300 {
        let mut random = Random::new(seed);
        let limits: Vec<Limit> = (0..random.below(2) + 1)
            .map(|_| {
                let period = Period::from_micros((random.below(20) + 1) * 1_000_000).expect("in range");
                Limit::new(random.pick(&algorithms), random.below(30) + 4, period).expect("a limit")
            })
            .collect();
        let percent = random.below(60);
        let options =
            Options { priorities: Some(format!("batch: {percent}%").parse().expect("a class")), ..Options::default() };
        let policy = Policy::new(limits.clone(), options).expect("a policy").named(format!("p{seed}")).expect("a name");
        // Each limit has a policy alone, because the reserves differ.
        let alone: Vec<Policy> = limits
            .iter()
            .enumerate()
            .map(|(index, limit)| {
                Policy::new(vec![limit.clone()], Options::default())
                    .expect("a policy")
                    .named(format!("p{seed}-{index}"))
                    .expect("a name")
            })
            .collect();
        for step in 0..30 {
            let pause = Duration::from_micros(random.below(3_000_000));
            [&clock, &stored_clock, &plain_clock].iter().for_each(|clock| clock.advance(pause));
            let cost = random.below(6) + 1;
            let options =
                if random.one_in(3) { CheckOptions { cost, ..CheckOptions::default() } } else { of("batch", cost) };
            let reserve = |limit: &Limit| match options.priority {
                Some(_) => (limit.capacity() * percent).div_ceil(100),
                None => 0,
            };
            let asked: Vec<Decision> = alone
                .iter()
                .zip(&limits)
                .map(|(policy, limit)| plain.peek(policy, "k", cost + reserve(limit)).expect("a peek"))
                .collect();
            let admits = asked.iter().all(Decision::allowed);
            let wait = asked
                .iter()
                .map(|decision| if decision.allowed() { Some(Duration::ZERO) } else { decision.retry_after() });
            let wait = wait.reduce(|a, b| Some(a?.max(b?))).flatten();
            let decision = memory.check_with(&policy, "k", &options).expect("a check");
            assert_eq!(decision.allowed(), admits, "seed {seed}, step {step}: {policy}");
            if admits {
                alone.iter().for_each(|policy| assert!(plain.check_n(policy, "k", cost).expect("a check").allowed()));
            } else {
                assert_eq!(decision.retry_after(), wait, "seed {seed}, step {step}: {policy}");
            }
            let of_redis = stored.check_with(&policy, "k", &options).expect("a check");
            assert_eq!(
                (text(&decision), decision.allowed(), decision.retry_after(), decision.next_after()),
                (text(&of_redis), of_redis.allowed(), of_redis.retry_after(), of_redis.next_after()),
                "seed {seed}, step {step}: {policy}"
            );
            for ((policy, own), limit) in alone.iter().zip(&limits).zip(decision.limits()) {
                let left = plain.peek(policy, "k", 1_u64).expect("a peek").remaining();
                assert_eq!(limit.remaining, left.saturating_sub(reserve(own)), "seed {seed}, step {step}: {policy}");
            }
        }
    }
}
