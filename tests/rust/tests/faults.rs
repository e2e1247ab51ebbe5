//! Everything that can happen to a server, under load: calls end in time, say what was promised, and no check counts
//! twice.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde_json::json;
use tidegate::{Decision, ErrorKind, Limiter, OnStoreError, Source};
use tidegate_tests::lateness::{LatenessProbe, retry_if_stalled, stretched};
use tidegate_tests::proxy::{Condition, Proxy};
use tidegate_tests::servers::{Kind, Servers};
use tidegate_tests::threads;

/// What a call may take …
const TIMEOUT: Duration = Duration::from_millis(250);
/// … what the contract allows beyond it …
const GRACE: Duration = Duration::from_millis(20);
/// … and all but one in a thousand, for which the optimised program answers only: the load alone keeps a debug build busy.
const MOST: Duration = if cfg!(debug_assertions) { GRACE } else { Duration::from_millis(5) };
/// After the server is back, calls are answered by it within this time.
const RECOVERY: Duration = Duration::from_secs(1);
/// Checks in flight while everything waits: tasks and threads, for each of the four choices.
const TASKS: usize = 40;
const THREADS: usize = 10;
/// Together, as many as one limiter has when nothing is wrong.
const LOAD: usize = CHOICES.len() * (TASKS + THREADS);
const CHOICES: [OnStoreError; 4] = [OnStoreError::Raise, OnStoreError::Open, OnStoreError::Closed, OnStoreError::Local];
/// More than any test uses up, in a window that no test outlives.
const POLICY: &str = "fixed-window 1000000/day";

/// One call.
struct Call {
    began: Instant,
    ended: Instant,
    answer: Result<Decision, ErrorKind>,
}

impl Call {
    fn is_stored(&self) -> bool {
        matches!(&self.answer, Ok(decision) if decision.source() == Source::Store)
    }
}

/// What 99.9 % are within, and what all are within.
#[derive(Clone, Copy)]
struct Spread {
    most: Duration,
    all: Duration,
}

impl Spread {
    fn of(mut spans: Vec<Duration>) -> Self {
        spans.sort_unstable();
        let last = spans.len() - 1;
        Self { most: spans[last - spans.len() / 1_000], all: spans[last] }
    }
}

/// One limiter under load.
struct Loaded {
    choice: OnStoreError,
    limiter: Limiter,
    calls: Mutex<Vec<Call>>,
}

impl Loaded {
    fn note(&self, began: Instant, answer: tidegate::Result<Decision>) {
        let call = Call { began, ended: Instant::now(), answer: answer.map_err(|error| error.kind()) };
        self.calls.lock().unwrap_or_else(PoisonError::into_inner).push(call);
    }
}

/// What goes wrong, and how it is put right.
struct Fault<'a> {
    name: &'a str,
    url: String,
    /// How long it lasts.
    lasts: Duration,
    /// Whether what the server knew is gone afterwards.
    forgets: bool,
    begin: Box<dyn FnMut() + 'a>,
    end: Box<dyn FnMut() + 'a>,
}

/// One fault at a time: the load of one is all this machine should carry.
static ALONE: Mutex<()> = Mutex::new(());

/// Our threads that are running.
fn threads_of_ours() -> usize {
    threads::named("tidegate").len()
}

/// Puts load on four limiters, lets the fault happen, and looks at every single call.
fn survive(mut fault: Fault<'_>) {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let over = Arc::new(AtomicBool::new(false));
    let loaded: Vec<Arc<Loaded>> = CHOICES
        .iter()
        .map(|choice| {
            Arc::new(Loaded {
                choice: *choice,
                limiter: Limiter::builder()
                    .store(&fault.url)
                    .timeout(TIMEOUT)
                    .on_store_error(*choice)
                    .prefix(format!("t{choice:?}"))
                    .build()
                    .expect("a limiter"),
                calls: Mutex::default(),
            })
        })
        .collect();
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
    let mut threads = Vec::new();
    for loaded in &loaded {
        loaded.limiter.check(POLICY, "warm").expect("a healthy server");
        for number in 0..TASKS {
            let (loaded, over, limiter) = (Arc::clone(loaded), Arc::clone(&over), loaded.limiter.to_async());
            runtime.spawn(async move {
                let pause = Duration::from_micros(4_000 + 100 * number as u64);
                while !over.load(Ordering::Relaxed) {
                    let began = Instant::now();
                    let answer = limiter.check(POLICY, "key").await;
                    loaded.note(began, answer);
                    tokio::time::sleep(pause).await;
                }
            });
        }
        for _ in 0..THREADS {
            let (loaded, over) = (Arc::clone(loaded), Arc::clone(&over));
            threads.push(std::thread::spawn(move || {
                while !over.load(Ordering::Relaxed) {
                    let began = Instant::now();
                    let answer = loaded.limiter.check(POLICY, "key");
                    loaded.note(began, answer);
                    std::thread::sleep(Duration::from_millis(5));
                }
            }));
        }
    }
    // What this machine adds by itself to a wait, while it carries the same load: often enough for a thousandth to be told.
    let probe = LatenessProbe::start();
    std::thread::sleep(Duration::from_millis(300));
    let began = Instant::now();
    (fault.begin)();
    let begun = Instant::now();
    std::thread::sleep(fault.lasts);
    (fault.end)();
    let ended = Instant::now();
    std::thread::sleep(RECOVERY + Duration::from_millis(300));
    over.store(true, Ordering::Relaxed);
    threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
    drop(runtime);
    let machine = Spread::of(probe.all());
    for loaded in &loaded {
        judge(&fault, loaded, (began, begun, ended), machine);
    }
    loaded.iter().for_each(|loaded| loaded.limiter.close());
    drop(loaded);
    let patience = Instant::now() + Duration::from_secs(2);
    while threads_of_ours() > 0 {
        assert!(Instant::now() < patience, "{}: {} threads are left", fault.name, threads_of_ours());
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn judge(fault: &Fault<'_>, loaded: &Loaded, (began, begun, ended): (Instant, Instant, Instant), machine: Spread) {
    let name = format!("{} with {:?}", fault.name, loaded.choice);
    let calls = loaded.calls.lock().unwrap_or_else(PoisonError::into_inner);
    let took = Spread::of(calls.iter().map(|call| call.ended - call.began).collect());
    println!(
        "{name}: {} calls, 99.9 % within {:?}, all within {:?}; the machine was late by {:?} and by {:?}",
        calls.len(),
        took.most,
        took.all,
        machine.most,
        machine.all
    );
    // An answer that is late is woken twice, the thread that hands it out and the one that waits for it, and either may be.
    assert!(took.most <= TIMEOUT + MOST + 2 * machine.most, "{name}: one in a thousand took {:?}", took.most);
    assert!(took.all <= TIMEOUT + GRACE + 2 * machine.all, "{name}: a call took {:?}", took.all);

    // Before: all is well. During: the promised outcome, whenever it is not the store that answers.
    for call in calls.iter() {
        let healthy = call.ended < began || call.began > ended + RECOVERY;
        match &call.answer {
            Ok(decision) if decision.source() == Source::Store => assert!(decision.allowed(), "{name}"),
            // A machine that stood still for so long makes calls late by itself.
            _ if healthy && machine.all > TIMEOUT / 4 => {}
            answer if healthy => {
                let after = call.began.saturating_duration_since(ended);
                panic!("{name}: {answer:?} after {:?}, {after:?} after the end", call.ended - call.began)
            }
            Ok(decision) => {
                assert_eq!(decision.source(), Source::Fallback, "{name}");
                match loaded.choice {
                    OnStoreError::Raise => panic!("{name}: {decision:?} instead of an error"),
                    OnStoreError::Open | OnStoreError::Local => assert!(decision.allowed(), "{name}: {decision:?}"),
                    OnStoreError::Closed => {
                        assert!(!decision.allowed() && decision.unavailable(), "{name}: {decision:?}");
                    }
                }
            }
            Err(kind) => {
                assert_eq!(loaded.choice, OnStoreError::Raise, "{name}: {kind:?}");
                let known = [ErrorKind::StoreUnavailable, ErrorKind::StoreTimeout, ErrorKind::StoreRejected];
                assert!(known.contains(kind), "{name}: {kind:?}");
            }
        }
    }
    let during = calls.iter().filter(|call| call.began > begun && call.ended < ended && !call.is_stored()).count();
    assert!(during > 0, "{name}: nothing failed, so nothing was tested");
    let back = calls.iter().filter(|call| call.began > ended && call.is_stored()).map(|call| call.began).min();
    let back = back.unwrap_or_else(|| panic!("{name}: the store never answered again")) - ended;
    println!("{name}: the store answered again {back:?} after it was back");

    // Every check ran at most once, and every one the store answered ran.
    let stored = calls.iter().filter(|call| call.is_stored() && (!fault.forgets || call.began > ended)).count() as u64;
    let unsure = calls.iter().filter(|call| !call.is_stored()).count() as u64;
    let after = loaded.limiter.peek(POLICY, "key", 1).expect("a healthy server");
    let used = after.limit() - after.remaining();
    assert!(used >= stored, "{name}: {used} units used, {stored} checks answered");
    assert!(used <= stored + unsure, "{name}: {used} units used, {stored} checks answered, {unsure} unsure");
}

/// A fault of one server that its own harness brings about.
fn fault<'a>(
    name: &'a str,
    servers: &'a Servers,
    seconds: f64,
    begin: impl FnMut() + 'a,
    end: impl FnMut() + 'a,
) -> Fault<'a> {
    Fault {
        name,
        url: servers.url().to_owned(),
        lasts: Duration::from_secs_f64(seconds),
        forgets: false,
        begin: Box::new(begin),
        end: Box::new(end),
    }
}

/// A connection of the test's own, which goes on where the harness gets no new one.
fn connection(servers: &Servers) -> redis::Connection {
    let client = redis::Client::open(servers.url()).expect("a URL");
    client.get_connection().expect("a connection")
}

fn tell(connection: &mut redis::Connection, words: &[&str]) {
    let _: redis::Value = redis::cmd(words[0]).arg(&words[1..]).query(connection).expect("an answer");
}

/// The same through a bad network.
fn through_a_proxy(name: &str, seconds: f64, condition: Condition) {
    let servers = Servers::start(Kind::Single);
    let proxy = Proxy::to(servers.port(0));
    let fault = fault(name, &servers, seconds, || proxy.set(condition), || proxy.set(Condition::Healthy));
    survive(Fault { url: format!("redis://127.0.0.1:{}/0", proxy.port()), ..fault });
    let patience = Instant::now() + Duration::from_secs(2);
    while proxy.open() > 0 {
        assert!(Instant::now() < patience, "{name}: {} connections are left", proxy.open());
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn killed_and_started_again_empty() {
    let servers = Servers::start(Kind::Single);
    let fault = fault("killed", &servers, 1.0, || servers.kill(0), || servers.start_again(0));
    survive(Fault { forgets: true, ..fault });
}

#[test]
fn stopped_for_three_seconds() {
    let servers = Servers::start(Kind::Single);
    survive(fault("stopped", &servers, 3.0, || servers.stop(0), || servers.cont(0)));
}

#[test]
fn paused() {
    let servers = Servers::start(Kind::Single);
    let pause = || drop(servers.command(0, &["CLIENT", "PAUSE", "1500", "WRITE"]));
    survive(fault("paused", &servers, 1.6, pause, || {}));
}

#[test]
fn out_of_memory() {
    let servers = Servers::start(Kind::Single);
    let most = |bytes: &str| drop(servers.command(0, &["CONFIG", "SET", "maxmemory", bytes]));
    survive(fault("out of memory", &servers, 0.7, || most("1"), || most("0")));
}

#[test]
fn loading() {
    let servers = Servers::start_with(
        Kind::Single,
        json!({"config": {
            "enable-debug-command": "yes", "key-load-delay": "1500", "loading-process-events-interval-bytes": "1024",
        }}),
    );
    let _ = servers.command(0, &["DEBUG", "POPULATE", "1000"]);
    let reloading = std::cell::RefCell::new(None);
    let mut other = Some(connection(&servers));
    let begin = || {
        let mut connection = other.take().expect("begun once");
        let reload = move || tell(&mut connection, &["DEBUG", "RELOAD"]);
        *reloading.borrow_mut() = Some(std::thread::spawn(reload));
    };
    // A busy machine loads for longer.
    let end = || reloading.take().expect("begun").join().expect("no panic");
    survive(fault("loading", &servers, 1.0, begin, end));
}

#[test]
fn demoted_and_promoted() {
    let servers = Servers::start(Kind::Single);
    let follow = |host: &str, port: &str| drop(servers.command(0, &["REPLICAOF", host, port]));
    survive(fault("demoted", &servers, 0.7, || follow("127.0.0.1", "1"), || follow("NO", "ONE")));
}

#[test]
fn busy_with_a_long_script() {
    let servers = Servers::start_with(Kind::Single, json!({"config": {"busy-reply-threshold": "50"}}));
    let (mut runs, mut ends) = (Some(connection(&servers)), connection(&servers));
    let begin = || {
        let mut connection = runs.take().expect("begun once");
        std::thread::spawn(move || {
            // Ended by the kill below, with an error.
            let _: redis::RedisResult<()> = redis::cmd("EVAL").arg("while true do end").arg(0).query(&mut connection);
        });
    };
    survive(fault("busy", &servers, 1.0, begin, || tell(&mut ends, &["SCRIPT", "KILL"])));
}

#[test]
fn the_password_is_changed() {
    let servers = Servers::start_with(Kind::Single, json!({"password": "right"}));
    let password = |word: &str| {
        let _ = servers.command(0, &["ACL", "SETUSER", "default", "resetpass", &format!(">{word}")]);
        let _ = servers.command(0, &["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
    };
    survive(fault("another password", &servers, 0.7, || password("other"), || password("right")));
}

#[test]
fn scripts_are_forbidden() {
    let servers = Servers::start(Kind::Single);
    let rule = |rule: &str| drop(servers.command(0, &["ACL", "SETUSER", "default", rule]));
    survive(fault("no scripts", &servers, 0.7, || rule("-@scripting"), || rule("+@scripting")));
}

#[test]
fn no_more_connections() {
    let servers = Servers::start(Kind::Single);
    let other = std::cell::RefCell::new(connection(&servers));
    let begin = || {
        let mut other = other.borrow_mut();
        tell(&mut other, &["CONFIG", "SET", "maxclients", "1"]);
        tell(&mut other, &["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
    };
    let end = || tell(&mut other.borrow_mut(), &["CONFIG", "SET", "maxclients", "1000"]);
    survive(fault("no more connections", &servers, 0.7, begin, end));
}

#[test]
fn nothing_arrives() {
    through_a_proxy("silence", 1.0, Condition::Silent);
}

#[test]
fn everything_arrives_too_late() {
    through_a_proxy("late", 1.0, Condition::Slow(TIMEOUT + Duration::from_millis(150)));
}

#[test]
fn answers_are_swallowed() {
    through_a_proxy("swallowed", 1.0, Condition::DropReplies);
}

#[test]
fn answers_are_cut() {
    through_a_proxy("cut", 0.7, Condition::CutReplies);
}

#[test]
fn answers_stall_in_the_middle() {
    through_a_proxy("stalled", 1.0, Condition::StallReplies);
}

#[test]
fn answers_trickle() {
    through_a_proxy("trickling", 1.0, Condition::TrickleReplies(Duration::from_millis(50)));
}

#[test]
fn connections_are_refused() {
    through_a_proxy("refused", 0.7, Condition::Refuse);
}

/// What must not be noticed at all.
fn unnoticed(url: &str, happens: impl Fn()) {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    retry_if_stalled(|| bear(url, &happens));
}

fn bear(url: &str, happens: &impl Fn()) {
    let limiter = Limiter::builder().store(url).timeout(stretched(TIMEOUT)).on_store_error(OnStoreError::Raise);
    let limiter = limiter.build().expect("a limiter");
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    assert!(limiter.check(POLICY, "key").expect("nothing is wrong").allowed());
                    std::thread::sleep(Duration::from_millis(1));
                }
            });
        }
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let tasks = limiter.to_async();
        let over = &over;
        scope.spawn(move || {
            runtime.block_on(async {
                while !over.load(Ordering::Relaxed) {
                    let mut each = tokio::task::JoinSet::new();
                    for _ in 0..LOAD {
                        let tasks = tasks.clone();
                        each.spawn(async move { tasks.check(POLICY, "key").await });
                    }
                    for decision in each.join_all().await {
                        assert!(decision.expect("nothing is wrong").allowed());
                    }
                    tokio::time::sleep(Duration::from_millis(2)).await;
                }
            });
        });
        happens();
        over.store(true, Ordering::Relaxed);
    });
}

#[test]
fn scripts_are_flushed() {
    let servers = Servers::start(Kind::Single);
    unnoticed(servers.url(), || {
        for _ in 0..20 {
            let _ = servers.command(0, &["SCRIPT", "FLUSH"]);
            std::thread::sleep(Duration::from_millis(20));
        }
    });
}

#[test]
fn a_slow_link_is_no_fault() {
    let servers = Servers::start(Kind::Single);
    let proxy = Proxy::to(servers.port(0));
    unnoticed(&format!("redis://127.0.0.1:{}/0", proxy.port()), || {
        proxy.set(Condition::Healthy);
        // Over such a link a call has the time for one round trip, not for connecting too.
        std::thread::sleep(Duration::from_millis(300));
        proxy.set(Condition::Slow(TIMEOUT - Duration::from_millis(100)));
        std::thread::sleep(Duration::from_secs(1));
    });
}

#[test]
fn an_expired_certificate() {
    let servers = Servers::start_with(Kind::Single, json!({"tls": "expired"}));
    for choice in CHOICES {
        let limiter =
            Limiter::builder().store(servers.url_of("tls")).timeout(Duration::from_secs(5)).on_store_error(choice);
        let limiter = limiter.build().expect("a limiter");
        for _ in 0..6 {
            match limiter.check(POLICY, "key") {
                Ok(decision) => {
                    assert_eq!(
                        (decision.source(), decision.allowed()),
                        (Source::Fallback, choice != OnStoreError::Closed)
                    );
                }
                Err(error) => {
                    assert_eq!((choice, error.kind()), (OnStoreError::Raise, ErrorKind::StoreUnavailable), "{error}");
                    assert!(error.to_string().to_lowercase().contains("certificate"), "{error}");
                }
            }
        }
    }
}
