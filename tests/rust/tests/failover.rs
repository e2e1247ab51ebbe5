//! Failovers under load: the whole run admits no more than the limit plus the admissions of the old primary that were
//! not replicated. Their number is taken from the data of the servers, and printed.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde_json::json;
use tidegate::{Decision, Limiter, OnStoreError, Result, Source};
use tidegate_tests::servers::{Kind, Servers};
use tidegate_tests::wait::{SetOnDrop, wait_until};

const TIMEOUT: Duration = Duration::from_millis(250);
/// Every run reaches it, but only after the failover has begun. No run outlives the window.
const LIMIT: u64 = 10_000;
const POLICY: &str = "fixed-window 10000/day";
/// Admissions before the failover …
const BEFORE: u64 = 1_000;
/// … and those that are not replicated, if the link is cut.
const UNREPLICATED: u64 = 300;
const THREADS: usize = 6;
const TASKS: usize = 10;
/// Nothing takes this long unless something is broken. A sentinel does nothing for 30 s when the machine has stood still for two.
const PATIENCE: Duration = Duration::from_secs(180);

/// The cause of a failover.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cause {
    /// The primary is killed.
    Killed,
    /// A command orders it, and the primary becomes a replica.
    Ordered,
}

/// An admission: when the call began, and the number of the unit according to the server that answered.
#[derive(Debug, Clone, Copy)]
struct Admission {
    began: Instant,
    number: u64,
}

/// The answers of all calls.
#[derive(Default)]
struct Answers {
    admissions: Mutex<Vec<Admission>>,
    admitted: AtomicU64,
    /// The server may have counted these.
    unanswered: AtomicU64,
    /// When the newest denied call began.
    denied: Mutex<Option<Instant>>,
    over: AtomicBool,
}

impl Answers {
    fn record(&self, began: Instant, answer: &Result<Decision>) {
        let Ok(decision) = answer else {
            self.unanswered.fetch_add(1, Ordering::Relaxed);
            return;
        };
        assert_eq!(decision.source(), Source::Store);
        if !decision.allowed() {
            let mut denied = self.denied.lock().unwrap_or_else(PoisonError::into_inner);
            *denied = (*denied).max(Some(began));
            return;
        }
        self.admitted.fetch_add(1, Ordering::Relaxed);
        let number = LIMIT - decision.remaining();
        self.admissions.lock().unwrap_or_else(PoisonError::into_inner).push(Admission { began, number });
    }

    fn goes_on(&self) -> bool {
        !self.over.load(Ordering::Relaxed)
    }

    fn denied_after(&self, moment: Instant) -> bool {
        self.denied.lock().unwrap_or_else(PoisonError::into_inner).is_some_and(|at| at > moment)
    }
}

/// The lowest number of a unit that was admitted twice.
fn admitted_twice<'a>(admissions: impl Iterator<Item = &'a Admission>) -> Option<u64> {
    let mut numbers: Vec<u64> = admissions.map(|admission| admission.number).collect();
    numbers.sort_unstable();
    numbers.windows(2).find(|pair| pair[0] == pair[1]).map(|pair| pair[0])
}

/// Threads and tasks that check one key until the run is over.
fn load<'scope>(scope: &'scope std::thread::Scope<'scope, '_>, limiter: &'scope Limiter, answers: &'scope Answers) {
    for _ in 0..THREADS {
        scope.spawn(|| {
            while answers.goes_on() {
                let began = Instant::now();
                answers.record(began, &limiter.check(POLICY, "key"));
                std::thread::sleep(Duration::from_millis(2));
            }
        });
    }
    scope.spawn(|| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let tasks = limiter.to_async();
        let each = async || {
            while answers.goes_on() {
                let began = Instant::now();
                answers.record(began, &tasks.check(POLICY, "key").await);
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        // All at once on one thread, so that they fold.
        runtime.block_on(async {
            let mut all: Vec<_> = (0..TASKS).map(|_| Box::pin(each())).collect();
            std::future::poll_fn(|cx| {
                all.retain_mut(|one| one.as_mut().poll(cx).is_pending());
                if all.is_empty() { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
            })
            .await;
        });
    });
}

#[track_caller]
fn until(what: &str, holds: impl FnMut() -> bool) {
    wait_until(PATIENCE, what, holds);
}

/// The servers and their one key.
struct ReplicatedKey {
    servers: Servers,
    /// The servers that may hold the key. The primary is the first.
    nodes: Vec<usize>,
    key: Vec<u8>,
    /// A separate server, on which a copied value is read.
    reader: Servers,
}

impl ReplicatedKey {
    fn set(kind: Kind, cause: Cause, answers: &Answers) -> (Self, Limiter) {
        // If a command orders the failover, a busy machine must not cause a second one.
        let patience = if cause == Cause::Killed { 1_000 } else { 5_000 };
        let servers = Servers::start_with(kind, json!({"down_after_ms": patience}));
        let reader = Servers::start(Kind::Single);
        let builder = Limiter::builder().store(servers.url()).timeout(TIMEOUT).deny_cache(Duration::ZERO);
        let limiter = builder.on_store_error(OnStoreError::Raise).build().expect("a limiter");
        answers.record(Instant::now(), &limiter.check(POLICY, "key"));
        let primaries = if kind == Kind::Cluster { 3 } else { 1 };
        let keys = |node: usize| -> Vec<Vec<u8>> {
            redis::cmd("KEYS").arg("tg*").query(&mut servers.connection(node)).expect("its keys")
        };
        let found = (0..primaries).find_map(|node| Some((node, keys(node).pop()?)));
        let (primary, key) = found.expect("some primary has the key");
        let port = servers.port(primary);
        let follows = |node: &usize| {
            let reply = servers.command(*node, &["INFO", "replication"]);
            reply.as_str().expect("text").lines().any(|line| line == format!("master_port:{port}"))
        };
        let others = if kind == Kind::Cluster { 3..6 } else { 1..3 };
        let mut nodes = vec![primary];
        nodes.extend(others.filter(follows));
        assert!(nodes.len() > 1, "a replica");
        (Self { servers, nodes, key, reader }, limiter)
    }

    fn is_primary(&self, node: usize) -> bool {
        // A server that is demoted ends its connections.
        let url = {
            let (user, password) = self.servers.control();
            format!("redis://{user}:{password}@127.0.0.1:{}", self.servers.port(node))
        };
        loop {
            let role = redis::Client::open(url.as_str())
                .and_then(|client| client.get_connection())
                .and_then(|mut connection| redis::cmd("ROLE").query::<redis::Value>(&mut connection));
            if let Ok(redis::Value::Array(role)) = role {
                return role[0] == redis::Value::BulkString(b"master".to_vec());
            }
        }
    }

    /// The number of units that a server has stored.
    fn units(&self, node: usize) -> u64 {
        let mut connection = self.servers.connection(node);
        // A replica in a cluster serves reads only after this. Other servers reject the command.
        let _: redis::RedisResult<()> = redis::cmd("READONLY").query(&mut connection);
        let value: Option<Vec<u8>> = redis::cmd("GET").arg(&self.key).query(&mut connection).expect("its value");
        let Some(value) = value else { return 0 };
        redis::cmd("SET").arg(&self.key).arg(value).exec(&mut self.reader.connection(0)).expect("it is kept");
        let reader = Limiter::builder().store(self.reader.url()).timeout(PATIENCE).bare().build().expect("a limiter");
        LIMIT - reader.peek(POLICY, "key", 1).expect("a peek").remaining()
    }

    /// The number of units that a replica has stored. It is final while the link to its primary is down.
    fn units_of_replica(&self, node: usize) -> u64 {
        until("its link is gone", || {
            let reply = self.servers.command(node, &["INFO", "replication"]);
            reply.as_str().expect("text").contains("master_link_status:down")
        });
        let units = self.units(node);
        assert!(!self.is_primary(node), "it was promoted while it was read");
        units
    }

    /// Cuts the replication to a server: it cannot log in to its primary any more.
    fn cut_replication(&self, node: usize) {
        self.servers.command(node, &["CONFIG", "SET", "masterauth", "wrong"]);
        self.servers.command(node, &["CLIENT", "KILL", "TYPE", "master"]);
    }

    /// Orders a failover until a replica is promoted.
    fn order_until(&self, order: &[&str], promoted: impl Fn() -> bool) {
        let of_sentinels = order[0] == "SENTINEL";
        let told = if of_sentinels { 3 } else { self.nodes[1] };
        let is_idle = || !(of_sentinels && self.sentinel_is_at_work(told));
        self.servers.fail_over(told, order, PATIENCE, is_idle, promoted);
    }

    /// True if a sentinel is working on a failover, or has ended one.
    fn sentinel_is_at_work(&self, sentinel: usize) -> bool {
        let state = self.servers.command(sentinel, &["SENTINEL", "MASTER", "tidegate"]).to_string();
        let old = format!("\"{}\"", self.servers.port(self.nodes[0]));
        state.contains("failover_in_progress") || !state.contains(&old)
    }
}

/// One failover under load. `order` is the command that orders it. With `cut`, some admissions of the old primary are
/// not replicated.
fn fails_over(kind: Kind, cause: Cause, order: &[&str], cut: bool) -> u64 {
    let answers = Answers::default();
    let (replicated, limiter) = ReplicatedKey::set(kind, cause, &answers);
    let (old, others) = (replicated.nodes[0], &replicated.nodes[1..]);
    let admitted = || answers.admitted.load(Ordering::Relaxed);
    let (mut has, mut lost) = (Vec::new(), 0);
    std::thread::scope(|scope| {
        let _stop = SetOnDrop(&answers.over);
        load(scope, &limiter, &answers);
        until("there is load", || admitted() >= BEFORE);
        if cut {
            others.iter().for_each(|node| replicated.cut_replication(*node));
            has = others.iter().map(|node| replicated.units_of_replica(*node)).collect();
            let now = admitted();
            until("some admissions are not replicated", || admitted() >= now + UNREPLICATED);
        }
        assert!(admitted() < LIMIT, "the limit was reached before anything happened");
        let promoted = || others.iter().position(|node| replicated.is_primary(*node));
        match cause {
            Cause::Killed => {
                replicated.servers.kill(old);
                let killed = Instant::now();
                // A replica is promoted after the primary has been gone for a second. By then all calls that it answered have
                // ended.
                std::thread::sleep(TIMEOUT);
                has = others.iter().map(|node| replicated.units_of_replica(*node)).collect();
                until("a replica is promoted", || promoted().is_some());
                let had = has[promoted().expect("a primary")];
                let promoted = Instant::now();
                until("the new primary has admitted all there is", || answers.denied_after(promoted));
                let admissions = answers.admissions.lock().unwrap_or_else(PoisonError::into_inner);
                let of_old = admissions.iter().filter(|admission| admission.began < killed);
                lost = of_old.filter(|admission| admission.number > had).count() as u64;
            }
            Cause::Ordered => {
                // When it becomes a replica, it must keep its data.
                replicated.servers.command(old, &["CONFIG", "SET", "masterauth", "wrong"]);
                let ordered = Instant::now();
                replicated.order_until(order, || promoted().is_some());
                until("the old primary knows", || !replicated.is_primary(old));
                let demoted = Instant::now();
                let of_old = replicated.units_of_replica(old);
                until("the new primary has admitted all there is", || answers.denied_after(demoted));
                let admissions = answers.admissions.lock().unwrap_or_else(PoisonError::into_inner);
                let before = admissions.iter().filter(|admission| admission.began < ordered);
                assert_eq!(admitted_twice(before), None, "by the old primary");
                let after = admissions.iter().filter(|admission| admission.began > demoted);
                assert_eq!(admitted_twice(after), None, "by the new primary");
                // If nothing was cut, the new primary continued from the data of the old one, or both admitted some units.
                let had = match promoted() {
                    Some(node) if cut => has[node],
                    _ => admitted_twice(admissions.iter()).map_or(of_old, |first| first - 1),
                };
                lost = of_old.saturating_sub(had);
            }
        }
    });
    let (admitted, unanswered) = (admitted(), answers.unanswered.into_inner());
    println!(
        "{kind:?}, {cause:?}{}: {admitted} admitted by a limit of {LIMIT}, {lost} that were not replicated, {unanswered} \
         calls without an answer",
        if cut { ", link cut before" } else { "" }
    );
    assert!(admitted <= LIMIT + lost, "{admitted} were admitted: over {LIMIT} by more than the {lost} that were lost");
    assert!(admitted + unanswered >= LIMIT, "only {admitted} were admitted, and {unanswered} calls had no answer");
    if cut {
        assert!(lost >= UNREPLICATED, "only {lost} were lost: the link was not cut");
    }
    lost
}

#[test]
fn sentinels_replace_a_primary_that_was_killed() {
    fails_over(Kind::Sentinel, Cause::Killed, &[], false);
    fails_over(Kind::Sentinel, Cause::Killed, &[], true);
}

#[test]
fn sentinels_are_told_to_fail_over() {
    let order = ["SENTINEL", "FAILOVER", "tidegate"];
    fails_over(Kind::Sentinel, Cause::Ordered, &order, false);
    fails_over(Kind::Sentinel, Cause::Ordered, &order, true);
}

#[test]
fn a_cluster_replaces_a_primary_that_was_killed() {
    fails_over(Kind::Cluster, Cause::Killed, &[], false);
    fails_over(Kind::Cluster, Cause::Killed, &[], true);
}

#[test]
fn a_cluster_is_told_to_fail_over() {
    // The old primary waits until the new one has all data.
    assert_eq!(fails_over(Kind::Cluster, Cause::Ordered, &["CLUSTER", "FAILOVER"], false), 0);
    fails_over(Kind::Cluster, Cause::Ordered, &["CLUSTER", "FAILOVER", "FORCE"], true);
}
