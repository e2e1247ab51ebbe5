//! What the other side of a key has said of its limits, and until when that holds. `lua/learned.lua` has the same rules;
//! docs/adr/0041 has the reasons.

use smallvec::SmallVec;

use super::{MAX_SAFE_INTEGER, SECOND, View, left};
#[cfg(feature = "redis")]
use super::{MOMENT_WIDTH, number, period, put};

/// The most windows of a key.
pub(crate) const MAX_LEARNED_WINDOWS: usize = 8;
/// The most steps of a window.
const MAX_STEPS: usize = 3;
/// Steps whose ends differ by less are one: services round to seconds.
const SAME_STEP: u64 = SECOND;
/// For how long the others wait for the answer to the call that begins a window of which nothing is said, and how often they look.
const ANSWER: u64 = SECOND;
const LOOK_AGAIN: u64 = 50_000;
/// For how long a window is remembered after its reset, and calls of which no response was seen.
const REMEMBERED: u64 = 3_600 * SECOND;
const IN_FLIGHT: u64 = 60 * SECOND;

/// The numbers that the sources of the script have names for.
#[cfg(feature = "redis")]
pub(crate) const LEARNED_NUMBERS: [(&str, u64); 6] = [
    ("MOST_LEARNED_WINDOWS", MAX_LEARNED_WINDOWS as u64),
    ("MOST_LEARNED_STEPS", MAX_STEPS as u64),
    ("SAME_LEARNED_STEP", SAME_STEP),
    ("ANSWER_OF_LEARNED", ANSWER),
    ("LEARNED_IS_REMEMBERED", REMEMBERED),
    ("CALLS_IN_FLIGHT", IN_FLIGHT),
];

/// Bits of the byte that says what a window is; the lower ones are the place of its limit.
#[cfg(feature = "redis")]
const STATED: u8 = 16;
#[cfg(feature = "redis")]
const ASSUMED: u8 = 32;
#[cfg(feature = "redis")]
const BESIDE: u8 = 64;

/// How a policy learns before anything was said: its calls are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Learning {
    /// How much the way to the other side differs, in microseconds.
    pub(crate) margin: u64,
    /// Nothing but what is learned limits them, so that one of them begins a window of which nothing was said.
    pub(crate) asks: bool,
}

/// What a response said of its limits.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Said {
    /// For how long the key waits, in microseconds; 0 where it says nothing.
    pub(crate) wait: u64,
    /// How many calls of the key were charged when the call was that it answers, where that is known.
    pub(crate) calls: Option<u64>,
    pub(crate) limits: SmallVec<[SaidLimit; 1]>,
}

/// What a response said of one limit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SaidLimit {
    /// Its name, unit and length, as a digest.
    pub(crate) id: u64,
    /// Which limit of the policy it is about, from 1 on; 0 where that counts other units.
    pub(crate) place: u8,
    /// Whether the response has stated the count of the limit.
    pub(crate) is_stated: bool,
    pub(crate) limit: u64,
    /// The units that are used of it.
    pub(crate) used: u64,
    /// The time until it is reset.
    pub(crate) reset: u64,
    /// Its length, where that is known; else 0.
    pub(crate) length: u64,
    /// The units that the answered call has taken of it.
    pub(crate) units: u64,
    /// The count of the policy's own limit; 0 where nothing but what is learned limits the calls, or the policy counts other units.
    pub(crate) capacity: u64,
    /// The units of it that were known to be used when the call was charged that was answered, where that is known.
    pub(crate) known: Option<u64>,
}

impl SaidLimit {
    /// Its numbers, in the order in which the script reads them.
    #[cfg(feature = "redis")]
    pub(crate) fn numbers(&self) -> [f64; 10] {
        let Self { id, place, is_stated, limit, used, reset, length, units, capacity, known } = *self;
        let numbers = [id, place.into(), is_stated.into(), limit, used, reset, length, units, capacity];
        let mut all = [known.map_or(-1.0, |known| known as f64); 10];
        all.iter_mut().zip(numbers).for_each(|(slot, number)| *slot = number as f64);
        all
    }
}

/// What is learned of a key.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct LearnedLimits {
    /// The calls that were charged.
    calls: u64,
    /// Until when that is remembered.
    calls_until: u64,
    /// The end of the last wait that was said.
    wait_until: u64,
    windows: Vec<LearnedWindow>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct LearnedWindow {
    id: u64,
    place: u8,
    is_stated: bool,
    /// Whether its one step is what we assume, since the other side has not said anything of it.
    is_assumed: bool,
    /// Whether it is beside a limit of the policy that counts the calls: its steps are what others use, and no call is charged to it.
    is_beside: bool,
    limit: u64,
    length: u64,
    /// Until when no further call is admitted, unless the one that begins the window is answered before.
    asks_until: u64,
    /// Until when it is remembered.
    until: u64,
    /// From the first end to the last one, and from the most units to the fewest.
    steps: SmallVec<[UsedUntil; MAX_STEPS]>,
}

/// So many units are used until that moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct UsedUntil {
    used: u64,
    closes: u64,
}

/// What a call asks of a limit of the policy.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AskedOf {
    pub(crate) capacity: u64,
    pub(crate) units: u64,
    /// What it leaves free, without what was learned.
    pub(crate) reserve: u64,
}

/// What an answer says of what was learned.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct LearnedAnswer {
    /// The calls that were charged.
    pub(crate) calls: u64,
    /// The end of the last wait that was said.
    pub(crate) wait_until: u64,
    /// The limits of the policy that have less left by what was learned, with the count of the learned one.
    pub(crate) limits: SmallVec<[(u8, u64); 1]>,
}

impl LearnedWindow {
    fn live(&self, now: u64) -> impl Iterator<Item = &UsedUntil> + Clone {
        self.steps.iter().filter(move |step| step.closes > now)
    }

    fn is_over(&self, now: u64) -> bool {
        self.until <= now || !self.is_stated && self.live(now).next().is_none()
    }

    fn used(&self, now: u64) -> u64 {
        self.live(now).map(|step| step.used).max().unwrap_or(0)
    }

    /// What a call leaves free of a limit of the policy that has so much room: what others use, and what the other side's limit has less.
    /// Where a call takes more than that limit has, it is admitted when nothing is used.
    fn reserve(&self, capacity: u64, units: u64, moment: u64) -> u64 {
        let less = capacity.saturating_sub(self.limit).min(capacity.saturating_sub(units));
        less + self.used(moment)
    }

    /// The first moment at which it admits so many units. More than its limit has are admitted when nothing is used.
    fn admits_at(&self, now: u64, units: u64) -> u64 {
        let refusing = self.live(now).filter(|step| step.used + units > self.limit);
        let closes = refusing.map(|step| step.closes).max().unwrap_or(now);
        if self.asks_until > now { closes.max(self.asks_until.min(now + LOOK_AGAIN)) } else { closes }
    }

    /// The first moment at which it admits a call, of which `units` says what it asks of a limit: nothing is always admitted. Of units that
    /// the policy does not count it asks for one.
    fn admits_call_at(&self, now: u64, units: impl Fn(usize) -> u64) -> u64 {
        match units_of(self.place, units).unwrap_or(1) {
            0 => now,
            units => self.admits_at(now, units),
        }
    }

    fn charge(&mut self, now: u64, units: u64, asks: bool) {
        let last = self.steps.last().map_or(now, |step| step.closes);
        self.steps.retain(|step| step.closes > now);
        if self.steps.is_empty() {
            let gone = now - last.min(now);
            self.steps.push(UsedUntil { used: 0, closes: now - gone % self.length + self.length });
            self.is_assumed = true;
            if asks {
                self.asks_until = now + ANSWER;
            }
        }
        for step in &mut self.steps {
            step.used = (step.used + units).min(MAX_SAFE_INTEGER);
        }
    }

    /// Takes what was said of it. `calls` were charged since the call that was answered, where that is known.
    fn observe(&mut self, said: &SaidLimit, calls: Option<u64>, now: u64, (asks, own): (bool, u64)) {
        let closes = now + said.reset;
        let last_end = self.until.saturating_sub(REMEMBERED);
        (self.place, self.asks_until, self.until) = (said.place, 0, self.until.max(closes + REMEMBERED));
        self.steps.retain(|step| step.closes > now);
        let is_beside = said.capacity > 0;
        if is_beside != self.is_beside {
            (self.is_beside, self.is_assumed) = (is_beside, false);
            self.steps.clear();
        }
        if is_beside {
            return self.observe_beside(said, calls, (closes, last_end), now, own);
        }
        if said.is_stated || !self.is_stated {
            // A limit that is raised leaves no more than before: what is said never adds.
            let raised = said.limit.saturating_sub(self.limit);
            self.steps.iter_mut().for_each(|step| step.used = (step.used + raised).min(MAX_SAFE_INTEGER));
            (self.limit, self.is_stated) = (said.limit, said.is_stated);
        }
        let mut used = said.used + calls.unwrap_or(0) * said.units;
        if self.is_assumed {
            (self.is_assumed, self.length) = (false, 0);
            if asks {
                if calls.is_none() {
                    used = used.max(self.used(now));
                }
                self.steps.clear();
            }
        }
        self.length = if said.length > 0 { said.length } else { self.length.max(said.reset) };
        self.raise(UsedUntil { used: used.min(MAX_SAFE_INTEGER), closes }, said.used);
    }

    /// The same beside a limit of the policy, of which `own` units are used: what our own calls do not explain is used by others.
    /// A limit that is raised leaves no more than before until the last end that was said.
    fn observe_beside(
        &mut self,
        said: &SaidLimit,
        calls: Option<u64>,
        (closes, last_end): (u64, u64),
        now: u64,
        own: u64,
    ) {
        let before = if self.is_stated { self.limit.min(said.capacity) } else { said.capacity };
        let raised = if said.is_stated { said.limit.min(said.capacity).saturating_sub(before) } else { 0 };
        if said.is_stated || !self.is_stated {
            (self.limit, self.is_stated) = (said.limit, said.is_stated);
        }
        self.length = said.length.max(1);
        let others = self.used(now);
        let known = said.known.map_or(0, |known| known + calls.unwrap_or(0) * said.units);
        let news = said.used.saturating_sub(known.max(own + others));
        if raised > 0 {
            let end = last_end.max(closes);
            self.steps.iter_mut().for_each(|step| step.used = (step.used + raised).min(MAX_SAFE_INTEGER));
            let used = self.used(end) + raised;
            self.raise(UsedUntil { used, closes: end }, used);
        }
        if news > 0 {
            let used = (others + news + raised).min(MAX_SAFE_INTEGER);
            self.raise(UsedUntil { used, closes }, used);
        }
    }

    /// Adds a step, or raises the one of that end to `same`.
    fn raise(&mut self, added: UsedUntil, same: u64) {
        let closes = added.closes;
        match self.steps.iter_mut().find(|step| step.closes.abs_diff(closes) < SAME_STEP) {
            Some(step) => step.used = step.used.max(same),
            None => {
                let at = self.steps.iter().position(|step| step.closes > closes).unwrap_or(self.steps.len());
                self.steps.insert(at, added);
            }
        }
        let mut most = None;
        let mut kept: SmallVec<[UsedUntil; MAX_STEPS]> = SmallVec::new();
        for step in self.steps.iter().rev().filter(|step| {
            let is_higher = most.is_none_or(|most| step.used > most);
            most = most.max(Some(step.used));
            is_higher
        }) {
            kept.insert(0, *step);
        }
        if kept.len() > MAX_STEPS {
            kept[1].used = kept[0].used;
            kept.remove(0);
        }
        self.steps = kept;
    }
}

impl LearnedLimits {
    /// From this moment on nothing is known.
    pub(crate) fn ends(&self) -> u64 {
        self.windows.iter().map(|window| window.until).fold(self.calls_until.max(self.wait_until), u64::max)
    }

    pub(crate) fn heap_bytes(&self) -> usize {
        self.windows.capacity() * size_of::<LearnedWindow>()
    }

    /// The windows that no limit of the policy is beside.
    fn alone(&self, now: u64) -> impl Iterator<Item = &LearnedWindow> {
        self.windows.iter().filter(move |window| !window.is_beside && !window.is_over(now))
    }

    /// What a call of so many units leaves free of a limit of the policy at a moment.
    pub(crate) fn reserve(&self, index: usize, (capacity, units): (u64, u64), now: u64, moment: u64) -> u64 {
        let beside = self.windows.iter().filter(|window| window.is_beside && !window.is_over(now));
        let of_limit = beside.filter(|window| index_of(window.place) == index);
        of_limit.map(|window| window.reserve(capacity, units, moment)).max().unwrap_or(0)
    }

    /// What a limit says to a call that leaves this free: the call may fit when others use less. `used` counts of the limit.
    pub(crate) fn view(&self, view: View, index: usize, used: u64, asked: AskedOf, now: u64) -> View {
        if view.admits_at.is_some_and(|at| at <= now) {
            return view;
        }
        let beside = self.windows.iter().filter(|window| window.is_beside && index_of(window.place) == index);
        let ends = beside.flat_map(|window| window.live(now)).map(|step| step.closes);
        let last = ends.clone().fold(view.resets_at, u64::max);
        let fits = |used: u64, moment: u64| {
            let learned = self.reserve(index, (asked.capacity, asked.units), now, moment);
            used + asked.units.max(1) + asked.reserve + learned <= asked.capacity
        };
        // At the last of these moments nothing is used, by us or by others.
        let admits_at = ends.filter(|end| fits(used, *end)).chain(Some(last).filter(|last| fits(0, *last)));
        View { admits_at: view.admits_at.into_iter().chain(admits_at).min(), ..view }
    }

    /// The first moment at which all windows admit a call, of which `units` says what it asks of a limit.
    pub(crate) fn admits_at(&self, now: u64, units: impl Fn(usize) -> u64) -> u64 {
        self.alone(now).map(|window| window.admits_call_at(now, &units)).fold(now, u64::max)
    }

    /// The units that all windows have left for a call, at most so many.
    pub(crate) fn left(&self, now: u64, most: u64) -> u64 {
        self.alone(now)
            .filter(|window| window.place > 0)
            .map(|window| window.limit.saturating_sub(window.used(now)))
            .fold(most, u64::min)
    }

    /// The limits of the policy that it refuses, one bit each.
    pub(crate) fn refusing(&self, now: u64, units: impl Fn(usize) -> u64) -> u16 {
        let refusing = self.alone(now).filter(|window| window.admits_call_at(now, &units) > now);
        refusing.fold(0, |bits, window| bits | 1 << index_of(window.place))
    }

    /// Charges a call as of a moment.
    pub(crate) fn charge(&mut self, now: u64, moment: u64, units: impl Fn(usize) -> u64, learning: Option<Learning>) {
        self.calls = (self.calls + 1).min(MAX_SAFE_INTEGER);
        if learning.is_some() {
            self.calls_until = now + IN_FLIGHT;
        }
        let asks = learning.is_some_and(|learning| learning.asks);
        self.windows.retain(|window| !window.is_over(now));
        for window in self.windows.iter_mut().filter(|window| !window.is_beside) {
            window.charge(moment, units_of(window.place, &units).unwrap_or(0), asks);
        }
    }

    /// Takes what a response said. `used` says what counts of a limit of the policy.
    pub(crate) fn observe(&mut self, said: &Said, now: u64, learning: Option<Learning>, used: impl Fn(usize) -> u64) {
        let asks = learning.is_some_and(|learning| learning.asks);
        if said.wait > 0 {
            self.wait_until = self.wait_until.max(now + said.wait);
        }
        let calls = said.calls.map(|calls| self.calls.saturating_sub(calls));
        self.windows.retain(|window| !window.is_over(now));
        for limit in &said.limits {
            let known = self.windows.iter().position(|window| window.id == limit.id);
            let at = known.unwrap_or_else(|| {
                if self.windows.len() >= MAX_LEARNED_WINDOWS {
                    self.windows.remove(0);
                }
                self.windows.push(LearnedWindow { id: limit.id, ..LearnedWindow::default() });
                self.windows.len() - 1
            });
            let own = units_of(limit.place, &used).unwrap_or(0);
            self.windows[at].observe(limit, calls, now, (asks, own));
        }
    }

    /// Another version of the policy counts: until it is said anew, nothing is known of its limits.
    pub(crate) fn forget_places(&mut self) {
        self.windows.retain(|window| !window.is_beside);
        self.windows.iter_mut().for_each(|window| window.place = 0);
    }

    /// Lowers what the limits of a policy say to what was learned. `asked` says what the call asks of each.
    pub(crate) fn constrain(
        &self,
        views: &mut [View],
        now: u64,
        capacity: impl Fn(usize) -> u64,
        asked: impl Fn(usize) -> u64,
    ) -> LearnedAnswer {
        let mut limits = SmallVec::new();
        for window in self.windows.iter().filter(|window| window.is_beside && !window.is_over(now)) {
            let index = index_of(window.place);
            let Some(view) = views.get_mut(index) else { continue };
            view.resets_at = window.live(now).map(|step| step.closes).fold(view.resets_at, u64::max);
            if window.limit < capacity(index) || window.used(now) > 0 {
                limits.push((index as u8, window.limit));
            }
        }
        for window in self.alone(now) {
            let index = index_of(window.place);
            let Some(view) = views.get_mut(index) else { continue };
            let at = window.admits_call_at(now, &asked);
            let is_asked = window.asks_until > now;
            let left = if is_asked { 0 } else { left(window.limit, window.used(now)).max(0) };
            if at <= now && (window.place == 0 || left >= view.left) {
                continue;
            }
            limits.push((index as u8, window.limit));
            view.left = view.left.min(if at > now && window.place == 0 { 0 } else { left });
            view.admits_at = view.admits_at.map(|admits| admits.max(at));
            view.resets_at = window.live(now).map(|step| step.closes).fold(view.resets_at, u64::max);
            let first = window.live(now).next().map_or(now, |step| step.closes);
            view.more_at = if is_asked { at } else { first };
        }
        LearnedAnswer { calls: self.calls, wait_until: self.wait_until, limits }
    }
}

/// Which limit of the policy a window is shown at.
fn index_of(place: u8) -> usize {
    usize::from(place).saturating_sub(1)
}

/// The units of a call that a window counts; `None` of units that the policy does not count.
fn units_of(place: u8, units: impl Fn(usize) -> u64) -> Option<u64> {
    (place > 0).then(|| units(index_of(place)))
}

#[cfg(feature = "redis")]
impl LearnedLimits {
    /// Appends it as it stands in a section.
    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        let moments = |out: &mut Vec<u8>, moments: &[u64]| {
            moments.iter().for_each(|moment| put(out, *moment, MOMENT_WIDTH));
        };
        moments(out, &[self.calls, self.calls_until, self.wait_until]);
        for window in &self.windows {
            let LearnedWindow { id, place, is_stated, is_assumed, is_beside, limit, length, asks_until, until, .. } =
                *window;
            moments(out, &[id]);
            let marks = [(is_stated, STATED), (is_assumed, ASSUMED), (is_beside, BESIDE)];
            out.push(marks.iter().filter(|(is, _)| *is).fold(place, |marks, (_, mark)| marks | mark));
            moments(out, &[limit, length, asks_until, until]);
            out.push(window.steps.len() as u8);
            window.steps.iter().for_each(|step| moments(out, &[step.used, step.closes]));
        }
    }

    /// Reads a section. `None` for bytes that are none.
    pub(crate) fn read(mut bytes: &[u8]) -> Option<Self> {
        let bytes = &mut bytes;
        let moment = |bytes: &mut &[u8]| number(bytes, MOMENT_WIDTH).filter(|number| *number <= MAX_SAFE_INTEGER);
        let (calls, calls_until, wait_until) = (moment(bytes)?, moment(bytes)?, moment(bytes)?);
        let mut windows = Vec::new();
        while !bytes.is_empty() && windows.len() < MAX_LEARNED_WINDOWS {
            let (id, marks) = (moment(bytes)?, number(bytes, 1)? as u8);
            let (limit, length) =
                (moment(bytes)?, Some(moment(bytes)?).filter(|length| (1..=period::LONGEST).contains(length))?);
            let (asks_until, until) = (moment(bytes)?, moment(bytes)?);
            let mut steps = SmallVec::new();
            for _ in 0..number(bytes, 1)?.min(MAX_STEPS as u64) {
                steps.push(UsedUntil { used: moment(bytes)?, closes: moment(bytes)? });
            }
            let (is_stated, is_assumed, is_beside) = (marks & STATED > 0, marks & ASSUMED > 0, marks & BESIDE > 0);
            let place = marks & (STATED - 1);
            windows.push(LearnedWindow {
                id,
                place,
                is_stated,
                is_assumed,
                is_beside,
                limit,
                length,
                asks_until,
                until,
                steps,
            });
        }
        bytes.is_empty().then_some(Self { calls, calls_until, wait_until, windows })
    }
}
