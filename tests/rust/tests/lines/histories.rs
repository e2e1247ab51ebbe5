//! Random lives of keys with callers that wait in a line, against a model that has the whole line and all used units.
//! After every step the same callers must have been served, denied and left waiting.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use tidegate::{AsyncLimiter, Decision, Hold, HoldAnswer, Limiter, ManualClock, Options, Policy, Priorities, Result};
use tidegate_tests::any_limiter::runtime;
use tidegate_tests::budget::within;
use tidegate_tests::random::Random;
use tidegate_tests::servers::{Kind, Servers};
use tidegate_tests::setting::setting;
use tidegate_tests::wait::wait_closely;
use tokio::runtime::Runtime;

use super::PATIENCE;
use super::kept_limits::{Admitted, CLASSES, Kept, LimitOf, POLICIES, SECOND, Wanted};

type Waiting<T> = Pin<Box<dyn Future<Output = Result<T>>>>;

enum Call {
    Acquires(Waiting<Decision>),
    Holds(Waiting<HoldAnswer>),
}

enum Answer {
    Decided(Decision),
    Held(Hold),
}

impl Call {
    fn polled(&mut self, context: &mut Context<'_>) -> Option<Answer> {
        match self {
            Self::Acquires(call) => match call.as_mut().poll(context) {
                Poll::Ready(decision) => Some(Answer::Decided(decision.expect("a decision"))),
                Poll::Pending => None,
            },
            Self::Holds(call) => match call.as_mut().poll(context) {
                Poll::Ready(answer) => Some(match answer.expect("an answer") {
                    HoldAnswer::Held(hold) => Answer::Held(hold),
                    denied => Answer::Decided(denied.decision().clone()),
                }),
                Poll::Pending => None,
            },
        }
    }
}

/// How often a caller was woken.
#[derive(Default)]
struct Wakes(AtomicU64);

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// A caller in the line.
struct Caller {
    call: Call,
    wakes: Arc<Wakes>,
    wanted: Wanted,
    /// When it gives up.
    until: Option<u64>,
}

impl Caller {
    fn polled(&mut self) -> Option<Answer> {
        self.call.polled(&mut Context::from_waker(&Waker::from(Arc::clone(&self.wakes))))
    }

    fn woken(&self) -> u64 {
        self.wakes.0.load(Ordering::Relaxed)
    }
}

/// The outcome for a caller that waits.
enum Fate {
    Served(Caller),
    Denied(Caller),
}

/// The life of one key.
struct Life<'a> {
    limiter: &'a AsyncLimiter,
    clock: &'a ManualClock,
    runtime: &'a Runtime,
    is_remote: bool,
    limits: &'static [LimitOf],
    policy: Policy,
    key: String,
    now: u64,
    /// Callers of higher classes first, else in the order in which they came.
    line: Vec<Caller>,
    admitted: Vec<Admitted>,
    /// Each hold, with its index in `admitted`.
    holds: Vec<(Hold, usize)>,
    /// Each step, with its moment.
    steps: Vec<(u64, String)>,
}

impl<'a> Life<'a> {
    fn new(
        history: u64,
        random: &mut Random,
        (limiter, clock, runtime): (&'a AsyncLimiter, &'a ManualClock, &'a Runtime),
        is_remote: bool,
    ) -> Self {
        let limits = random.pick(&POLICIES);
        let notation = limits.iter().map(|limit| limit.notation).collect::<Vec<_>>().join("; ");
        let priorities = Priorities::new([("batch", "25%"), ("background", "50%")]).expect("classes");
        let options = Options { priorities: Some(priorities), ..Options::default() };
        let limits_of_policy = Policy::parse(&notation).expect("a policy").limits().to_vec();
        let policy = Policy::new(limits_of_policy, options).expect("a policy");
        let key = format!("history {history}");
        let now = clock.now().as_micros() as u64;
        let (line, admitted, holds, steps) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        Self { limiter, clock, runtime, is_remote, limits, policy, key, now, line, admitted, holds, steps }
    }

    fn step(&mut self, step: String) {
        self.steps.push((self.now, step));
    }

    fn is_held(&self) -> bool {
        self.limits.iter().any(|limit| matches!(limit.kept, Kept::Held))
    }

    /// True if only the answer to its call wakes the first caller. While that is on its way the clock must stand still,
    /// because a caller compares the wait in the answer with the time that it has left.
    fn asks_the_store(&self) -> bool {
        self.is_remote && !self.is_held()
    }

    fn counts_tokens(&self) -> bool {
        self.limits.iter().any(|limit| limit.counts_tokens)
    }

    fn fits(&self, wanted: &Wanted) -> bool {
        self.limits.iter().all(|limit| limit.admits(&self.admitted, wanted, self.now))
    }

    /// The moment at which all limits admit a call. Limits with held units do not count, because holds end at any time.
    fn known(&self, wanted: &Wanted) -> u64 {
        self.known_behind(&self.admitted, wanted, self.now)
    }

    /// The same from a moment on, if `admitted` are all that were admitted until then.
    fn known_behind(&self, admitted: &[Admitted], wanted: &Wanted, from: u64) -> u64 {
        let ends = |limit: &LimitOf, at| match limit.kept {
            Kept::Log(period) | Kept::Window(period) => at + period,
            Kept::Held => 0,
        };
        let rates = self.limits.iter().filter(|limit| !matches!(limit.kept, Kept::Held));
        let admits_at = |limit: &LimitOf| {
            let mut moments: Vec<u64> = admitted.iter().map(|one| ends(limit, one.at)).collect();
            moments.push(from);
            moments.retain(|at| *at >= from);
            moments.sort_unstable();
            moments.into_iter().find(|at| limit.admits(admitted, wanted, *at)).expect("it fits into an empty one")
        };
        rates.map(admits_at).max().unwrap_or(from)
    }

    /// When a caller behind others is served, if each goes as soon as all limits except those with held units admit it.
    fn turn_behind(&self, ahead: &[Caller], wanted: Wanted) -> u64 {
        let (mut admitted, mut at) = (self.admitted.clone(), self.now);
        for wanted in ahead.iter().map(|caller| caller.wanted).chain([wanted]) {
            at = self.known_behind(&admitted, &wanted, at);
            admitted.push(Admitted { at, wanted, is_held: false });
        }
        at
    }

    /// The moment from which the units of a caller and of those ahead fit. `None` if they do not fit together.
    fn all_fit(&self, ahead: &[Caller], own: Wanted) -> Option<u64> {
        let sum = ahead.iter().fold(own, |sum, caller| Wanted {
            cost: sum.cost + caller.wanted.cost,
            tokens: sum.tokens + caller.wanted.tokens,
            ..sum
        });
        self.limits.iter().all(|limit| limit.admits(&[], &sum, 0)).then(|| self.known(&sum))
    }

    /// The next caller with a wait that ends now. Only the first of the line asks whether there is room.
    fn next_fate(&mut self) -> Option<Fate> {
        let now = self.now;
        if let Some(first) = self.line.first() {
            if self.fits(&first.wanted) {
                let caller = self.line.remove(0);
                self.admitted.push(Admitted { at: now, wanted: caller.wanted, is_held: self.is_held() });
                return Some(Fate::Served(caller));
            }
            let gives_up = first.until.is_some_and(|until| now >= until || self.known(&first.wanted) > until);
            if gives_up {
                return Some(Fate::Denied(self.line.remove(0)));
            }
        }
        let late = self.line.iter().position(|caller| caller.until.is_some_and(|until| now >= until))?;
        Some(Fate::Denied(self.line.remove(late)))
    }

    /// Waits for the store's answer to the call that a poll of this caller made. `woken` and `ended` count the wakes and the
    /// ended calls before it. An answer that came during the poll wakes no caller, so a while without a wake is enough then.
    fn is_answered(&self, caller: &Caller, woken: u64, ended: u64) {
        let is_woken = || caller.woken() > woken;
        wait_closely(PATIENCE, "the store has answered", || is_woken() || self.ended_calls() > ended);
        let began = Instant::now();
        while !is_woken() && began.elapsed() < Duration::from_secs(1) {
            std::thread::sleep(Duration::from_micros(50));
        }
    }

    fn ended_calls(&self) -> u64 {
        self.limiter.stats().store.calls
    }

    /// Checks that everything that follows from the last step happens, and nothing else.
    fn settles_down(&mut self) {
        // Every caller looks again, as after any time.
        self.clock.set(Duration::from_micros(self.now));
        while let Some(fate) = self.next_fate() {
            let (mut caller, is_served) = match fate {
                Fate::Served(caller) => (caller, true),
                Fate::Denied(caller) => (caller, false),
            };
            let mut answer = None;
            wait_closely(PATIENCE, "it is answered", || {
                answer = answer.take().or_else(|| caller.polled());
                answer.is_some()
            });
            match answer.expect("it was waited for") {
                Answer::Held(hold) => {
                    self.is_right(hold.decision(), &caller.wanted, is_served);
                    self.holds.push((hold, self.admitted.len() - 1));
                }
                Answer::Decided(decision) => self.is_right(&decision, &caller.wanted, is_served),
            }
        }
        let asks = self.asks_the_store();
        for place in 0..self.line.len() {
            let (woken, ended) = (self.line[place].woken(), self.ended_calls());
            assert!(self.line[place].polled().is_none(), "{self}");
            if asks && place == 0 {
                self.is_answered(&self.line[place], woken, ended);
                assert!(self.line[place].polled().is_none(), "{self}");
            }
        }
        assert_eq!(self.limiter.waiting(&self.policy, &self.key), self.line.len(), "{self}");
    }

    fn is_right(&self, decision: &Decision, wanted: &Wanted, is_served: bool) {
        assert_eq!(decision.allowed(), is_served, "{self}: {wanted:?}");
        assert_eq!(decision.at().as_micros() as u64, self.now, "{self}: {wanted:?}");
        assert_eq!(decision.granted(), if is_served { wanted.cost } else { 0 }, "{self}: {wanted:?}");
    }

    fn wanted(&self, random: &mut Random) -> Wanted {
        let class = random.below(3) as usize;
        let most = |limit: &LimitOf| limit.count - limit.count * CLASSES[class].1 / 4;
        let of = |tokens| self.limits.iter().filter(move |limit| limit.counts_tokens == tokens).map(most).min();
        let tokens = of(true).map_or(0, |most| 1 + random.below(most));
        Wanted { cost: 1 + random.below(of(false).unwrap_or(1)), tokens, class }
    }

    /// A caller comes, and waits or is answered.
    fn comes(&mut self, random: &mut Random) {
        let wanted = self.wanted(random);
        // No two of them end at the same moment. Callers that wait for a hold ask a server at any time.
        let may_end = !(self.is_remote && self.is_held());
        let timeout = (may_end && random.one_in(2)).then(|| 1 + random.below(20 * SECOND));
        self.step(format!("{wanted:?} waits for {timeout:?}"));
        let (limiter, policy, key) = (self.limiter.clone(), self.policy.clone(), self.key.clone());
        let (options, within) = (wanted.options(self.counts_tokens()), timeout.map(Duration::from_micros));
        let call = if self.is_held() {
            Call::Holds(Box::pin(async move { limiter.hold_within(&policy, &key, &options, within).await }))
        } else {
            Call::Acquires(Box::pin(async move { limiter.acquire_with(&policy, &key, &options, within).await }))
        };
        let at = self.line.partition_point(|other| other.wanted.class <= wanted.class);
        let before = self.line.len();
        let until = timeout.map(|timeout| self.now + timeout);
        let mut caller = Caller { call, wakes: Arc::default(), wanted, until };
        let ended = self.ended_calls();
        let mut answer = caller.polled();
        if answer.is_none() && (at == 0 || timeout.is_some()) && self.asks_the_store() {
            self.is_answered(&caller, 0, ended);
            answer = if at == 0 { None } else { caller.polled() };
        }
        if let Some(until) = until.filter(|_| at > 0) {
            // Behind others it is denied if its turn cannot come in time, as far as it can know that.
            assert!(answer.is_none() || self.turn_behind(&self.line[..at], wanted) > until, "{self}: {wanted:?}");
            let fits = self.all_fit(&self.line[..at], wanted);
            assert!(fits.is_none_or(|at| answer.is_some() == (at > until)), "{self}: {wanted:?}");
        }
        if let Some(answer) = answer.take_if(|_| at > 0) {
            let Answer::Decided(decision) = answer else { panic!("{self}: it has gone before others") };
            self.is_right(&decision, &wanted, false);
        } else if let Some(answer) = answer {
            let is_served = self.fits(&wanted);
            if is_served {
                self.admitted.push(Admitted { at: self.now, wanted, is_held: self.is_held() });
            }
            match answer {
                Answer::Held(hold) => {
                    self.is_right(hold.decision(), &wanted, is_served);
                    self.holds.push((hold, self.admitted.len() - 1));
                }
                Answer::Decided(decision) => {
                    assert!(is_served || caller.until.is_some_and(|until| self.known(&wanted) > until), "{self}");
                    self.is_right(&decision, &wanted, is_served);
                }
            }
        } else {
            assert_eq!(self.limiter.waiting(&self.policy, &self.key), before + 1, "{self}");
            self.line.insert(at, caller);
        }
        self.settles_down();
    }

    /// A call that does not wait, and does not see the line.
    fn asks(&mut self, random: &mut Random) {
        let wanted = self.wanted(random);
        self.step(format!("{wanted:?}"));
        let options = wanted.options(self.counts_tokens());
        let is_served = self.fits(&wanted);
        if is_served {
            self.admitted.push(Admitted { at: self.now, wanted, is_held: self.is_held() });
        }
        if self.is_held() {
            let answer = self.runtime.block_on(self.limiter.hold_with(&self.policy, &self.key, &options));
            let answer = answer.expect("an answer");
            self.is_right(answer.decision(), &wanted, is_served);
            if let HoldAnswer::Held(hold) = answer {
                self.holds.push((hold, self.admitted.len() - 1));
            }
        } else {
            let decision = self.limiter.to_blocking().check_with(&self.policy, &self.key, &options);
            self.is_right(&decision.expect("a decision"), &wanted, is_served);
        }
        self.settles_down();
    }

    fn releases(&mut self, random: &mut Random) {
        if self.holds.is_empty() {
            return;
        }
        let (hold, admitted) = self.holds.swap_remove(random.below(self.holds.len() as u64) as usize);
        self.step(format!("releases {:?}", self.admitted[admitted]));
        self.admitted[admitted].is_held = false;
        self.runtime.block_on(hold.release());
        self.settles_down();
    }

    fn gives_up(&mut self, random: &mut Random) {
        if self.line.is_empty() {
            return;
        }
        let caller = self.line.remove(random.below(self.line.len() as u64) as usize);
        self.step(format!("{:?} gives up", caller.wanted));
        drop(caller);
        self.settles_down();
    }

    /// Moves the clock, at most until just before the next caller gives up. Giving up is a separate step, because a
    /// caller that gives up while others go may be denied before it comes to be the first.
    fn moves_on(&mut self, by: u64) {
        let next = self.line.iter().filter_map(|caller| caller.until).min().unwrap_or(u64::MAX);
        self.now = if next == self.now + 1 { next } else { (self.now + by).min(next - 1) };
        self.settles_down();
    }

    /// Gives everything back, and checks that all who wait are served in the end.
    fn ends(&mut self, random: &mut Random) {
        for _ in 0..1_000 {
            while !self.holds.is_empty() {
                self.releases(random);
            }
            if self.line.is_empty() {
                break;
            }
            self.moves_on(5 * SECOND);
        }
        assert!(self.line.is_empty() && self.holds.is_empty(), "{self}");
        self.moves_on(5 * SECOND);
        self.moves_on(5 * SECOND);
        let cost = Wanted { cost: 1, tokens: 1, class: 0 }.options(self.counts_tokens());
        let left = self.limiter.to_blocking().peek_with(&self.policy, &self.key, &cost).expect("a peek");
        let left: Vec<u64> = left.limits().map(|limit| limit.remaining).collect();
        assert_eq!(left, self.limits.iter().map(|limit| limit.count).collect::<Vec<_>>(), "{self}");
    }
}

impl std::fmt::Display for Life<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let line: Vec<_> = self.line.iter().map(|caller| (caller.wanted, caller.until)).collect();
        write!(f, "{}, {:?} at {}: {line:?}, after {:?}", self.key, self.limits, self.now, self.steps)
    }
}

fn with_clock(url: &str) -> (AsyncLimiter, Arc<ManualClock>) {
    let clock = Arc::new(ManualClock::new(Duration::from_secs(1_800_000_000)));
    let builder = Limiter::builder().store(url).timeout(Duration::from_secs(10)).clock(Arc::clone(&clock));
    // Every call of the first caller must go to the store.
    let builder = builder.deny_cache(Duration::ZERO);
    (builder.build_async().expect("a limiter"), clock)
}

fn live(history: u64, limiter: &AsyncLimiter, clock: &ManualClock, runtime: &Runtime, is_remote: bool) {
    let random = &mut Random::new(history);
    let mut life = Life::new(history, random, (limiter, clock, runtime), is_remote);
    for _ in 0..30 {
        match random.below(12) {
            0..=4 => life.comes(random),
            5 => life.asks(random),
            6 | 7 => life.releases(random),
            8 => life.gives_up(random),
            _ => life.moves_on(1 + random.below(5 * SECOND)),
        }
    }
    life.ends(random);
}

#[test]
fn in_memory_a_line_is_served_as_a_brute_force_serves_it() {
    let (limiter, clock) = with_clock("memory://");
    let runtime = runtime();
    for history in within(2, 0..setting("TIDEGATE_HISTORIES").unwrap_or(10_000) / 2) {
        live(history, &limiter, &clock, &runtime, false);
    }
}

#[test]
fn on_redis_a_line_is_served_as_a_brute_force_serves_it() {
    let redis = Servers::start(Kind::Single);
    let (limiter, clock) = with_clock(redis.url());
    let runtime = runtime();
    for history in within(2, 0..setting("TIDEGATE_HISTORIES").unwrap_or(10_000) / 40) {
        live(history, &limiter, &clock, &runtime, true);
    }
}
