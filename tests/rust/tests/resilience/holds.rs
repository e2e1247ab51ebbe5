//! Holds with renewals that fail: `lost`, the counters and the log.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tidegate::OnStoreError::{self, Closed, Local, Open, Raise};
use tidegate::{Builder, Hold, Limiter, ManualClock, Options, Policy, Source};
use tidegate_tests::proxy::{Condition, Proxy};
use tidegate_tests::servers::{Kind, Servers};

use super::{SECOND, builder, clock, soon};

const EXPORTS: &str = "concurrency 2 ttl 30s";
/// A third of the ttl: the time from one renewal to the next.
const INTERVAL: Duration = Duration::from_secs(10);
const MICROSECOND: Duration = Duration::from_micros(1);

/// The warnings of a limiter.
#[derive(Clone, Default)]
struct Warnings(Arc<Mutex<Vec<String>>>);

impl Warnings {
    fn record(&self, builder: Builder) -> Builder {
        let warnings = Arc::clone(&self.0);
        builder.on_warning(Arc::new(move |sentence| warnings.lock().expect("no panic").push(sentence.to_owned())))
    }

    fn all(&self) -> Vec<String> {
        self.0.lock().expect("no panic").clone()
    }

    /// The numbers of warnings about a failed renewal, and about a lost hold.
    fn count(&self) -> (usize, usize) {
        let all = self.all();
        let count = |words: &str| all.iter().filter(|sentence| sentence.contains(words)).count();
        (count("was not renewed: "), count("is lost: "))
    }
}

/// A limiter with a server that can be lost, and its clock.
struct Renewed {
    limiter: Limiter,
    clock: Arc<ManualClock>,
    proxy: Proxy,
    server: Servers,
    warnings: Warnings,
}

impl Renewed {
    fn new(choice: OnStoreError) -> Self {
        let server = Servers::start(Kind::Single);
        let (proxy, clock, warnings) = (Proxy::to(server.port(0)), clock(), Warnings::default());
        let url = format!("redis://127.0.0.1:{}", proxy.port());
        let builder = builder(&url).timeout(20 * SECOND).clock(Arc::clone(&clock)).on_store_error(choice);
        let limiter = warnings.record(builder).build().expect("a limiter");
        limiter.ping().expect("the server answers");
        Self { limiter, clock, proxy, server, warnings }
    }

    fn hold(&self, policy: &str) -> Hold {
        self.limiter.hold(policy, "k", 1).expect("an answer").held().expect("room")
    }

    fn lose_the_store(&self) {
        self.proxy.set(Condition::Refuse);
        soon("connections end", || self.proxy.open() == 0);
    }

    fn find_the_store(&self) {
        self.proxy.set(Condition::Healthy);
        soon("the store answers", || {
            self.limiter.peek("5/hour", "other", 1).is_ok_and(|decision| decision.source() == Source::Store)
        });
    }

    /// Renewals that failed, and holds that were lost.
    fn counted(&self) -> (u64, u64) {
        let counters = self.limiter.counters();
        (counters.hold_renewals_failed, counters.holds_lost)
    }
}

#[test]
fn a_hold_whose_renewal_fails_is_not_lost_when_the_next_succeeds() {
    for choice in [Raise, Local, Open, Closed] {
        let case = Renewed::new(choice);
        let (hold, other) = (case.hold(EXPORTS), case.hold(EXPORTS));
        case.lose_the_store();
        for failed in [2, 4] {
            case.clock.advance(INTERVAL);
            assert_eq!((hold.lost(), case.counted()), (false, (failed, 0)), "{choice:?}");
        }
        assert_eq!(case.warnings.count(), (1, 0), "logged once: {:?}", case.warnings.all());
        assert!(case.warnings.all()[0].contains("concurrency 2 ttl 30 s"), "{:?}", case.warnings.all());
        case.find_the_store();
        // The next renewal is due at the moment at which the ttl is over, so the clock stops a microsecond before it.
        case.clock.advance(INTERVAL - MICROSECOND);
        assert!(!hold.lost() && !other.lost(), "{choice:?}");
        assert_eq!(case.warnings.count(), (1, 0), "{choice:?}");
        drop((hold, other));
        assert_eq!(case.counted(), (4, 0), "{choice:?}");
    }
}

#[test]
fn a_hold_is_lost_when_nothing_has_renewed_it_for_its_ttl() {
    for choice in [Raise, Local, Open, Closed] {
        let case = Renewed::new(choice);
        let (hold, other) = (case.hold(EXPORTS), case.hold(EXPORTS));
        case.clock.advance(INTERVAL);
        case.lose_the_store();
        case.clock.advance(3 * INTERVAL - MICROSECOND);
        assert!(!hold.lost(), "{choice:?}: it was renewed 30 s ago, less a microsecond");
        case.clock.advance(MICROSECOND);
        assert!(hold.lost() && other.lost(), "{choice:?}");
        assert_eq!(case.counted().1, 2, "{choice:?}");
        assert_eq!(case.warnings.count(), (1, 1), "logged once: {:?}", case.warnings.all());
        case.find_the_store();
        case.clock.advance(INTERVAL);
        assert!(hold.lost(), "{choice:?}: it stays so");
        assert_eq!(case.counted().1, 2, "{choice:?}: and is counted once");
    }
}

#[test]
fn a_hold_that_another_client_cleared_is_lost() {
    for is_async in [false, true] {
        let case = Renewed::new(Local);
        let runtime = tidegate_tests::any_limiter::runtime();
        let hold = if is_async {
            let answer = runtime.block_on(case.limiter.to_async().hold(EXPORTS, "k", 1));
            answer.expect("an answer").held().expect("room")
        } else {
            case.hold(EXPORTS)
        };
        let kept = case.limiter.hold(EXPORTS, "kept", 1).expect("an answer").held().expect("room");
        let another = builder(case.server.url()).clock(Arc::clone(&case.clock)).build().expect("a limiter");
        another.clear(EXPORTS, "k").expect("cleared");
        case.clock.advance(INTERVAL - MICROSECOND);
        assert!(!hold.lost(), "nothing was renewed yet");
        case.clock.advance(MICROSECOND);
        assert!(hold.lost() && !kept.lost());
        assert_eq!((case.counted(), case.warnings.count()), ((0, 1), (0, 1)), "{:?}", case.warnings.all());
        runtime.block_on(async { drop(hold) });
    }
}

#[test]
fn a_hold_of_a_server_that_was_restarted_empty_is_lost() {
    let case = Renewed::new(Local);
    let hold = case.hold(EXPORTS);
    case.server.kill(0);
    case.clock.advance(INTERVAL);
    assert_eq!((hold.lost(), case.counted()), (false, (1, 0)));
    case.server.start_again(0);
    case.find_the_store();
    case.clock.advance(INTERVAL);
    assert_eq!((hold.lost(), case.counted()), (true, (1, 1)));
}

#[test]
fn a_hold_of_the_fallback_is_lost_when_the_store_is_back() {
    let case = Renewed::new(Local);
    case.lose_the_store();
    let hold = case.hold(EXPORTS);
    assert_eq!(hold.decision().source(), Source::Fallback);
    for _ in 0..9 {
        case.clock.advance(INTERVAL);
        assert!(!hold.lost(), "this process renews it");
    }
    assert_eq!(case.counted(), (0, 0));
    case.find_the_store();
    case.clock.advance(INTERVAL);
    assert!(hold.lost(), "the store does not know it");
}

#[test]
fn what_nothing_keeps_is_never_lost() {
    let case = Renewed::new(Local);
    let options = Options { shadow: true, ..Options::default() };
    let limits = Policy::parse(EXPORTS).expect("a policy").limits().to_vec();
    let shadow = Policy::new(limits, options).expect("a policy").named("shadow").expect("a name");
    let holds: Vec<Hold> = (0..3)
        .map(|_| case.limiter.hold(&shadow, "k", 1).expect("an answer").held().expect("it denies nothing"))
        .chain([case.hold("concurrency 5; 5/hour")])
        .collect();
    assert!(holds[2].decision().shadow(), "there was no room for the third");
    (0..9).for_each(|_| case.clock.advance(INTERVAL));
    assert!(holds.iter().all(|hold| !hold.lost()));
    assert_eq!(case.counted(), (0, 0));
}

#[test]
fn holds_of_the_memory_store_are_lost_too() {
    let (clock, warnings) = (clock(), Warnings::default());
    let limiter = warnings.record(Limiter::builder().clock(Arc::clone(&clock))).build().expect("a limiter");
    let hold = |key: &str| limiter.hold(EXPORTS, key, 1).expect("an answer").held().expect("room");
    let (kept, cleared) = (hold("kept"), hold("cleared"));
    limiter.clear(EXPORTS, "cleared").expect("cleared");
    clock.advance(INTERVAL);
    assert!(!kept.lost() && cleared.lost());
    (0..9).for_each(|_| clock.advance(INTERVAL));
    assert!(!kept.lost());
    // As if the process had been suspended.
    clock.advance(3 * INTERVAL);
    assert!(kept.lost());
    assert_eq!((limiter.counters().holds_lost, warnings.count()), (2, (0, 2)), "{:?}", warnings.all());
}

/// With the thread that renews, and with the time of the server.
#[test]
fn a_hold_is_lost_when_its_server_is_killed() {
    let server = Servers::start(Kind::Single);
    let limiter = builder(server.url()).build().expect("a limiter");
    let hold = limiter.hold("concurrency 1 ttl 6s", "k", 1).expect("an answer").held().expect("room");
    server.kill(0);
    soon("a renewal fails", || limiter.counters().hold_renewals_failed > 0);
    soon("it is lost", || hold.lost());
    assert_eq!(limiter.counters().holds_lost, 1);
}
