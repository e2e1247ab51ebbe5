//! One window of a limit that the other side keeps.

use smallvec::{SmallVec, smallvec};

use super::said::SaidLimit;
use crate::algorithm::{MAX_SAFE_INTEGER, SECOND};

/// The most steps of a window.
pub(super) const MAX_STEPS: usize = 3;
/// Steps with ends closer than this are one, because services round to seconds.
pub(super) const SAME_STEP: u64 = SECOND;
/// The time that calls wait for the answer to the call that begins an unknown window, and the interval at which they look again.
pub(super) const ANSWER: u64 = SECOND;
pub(super) const LOOK_AGAIN: u64 = 50_000;
/// For how long a window stays known after its reset.
pub(super) const REMEMBERED: u64 = 3_600 * SECOND;

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct LearnedWindow {
    pub(super) id: u64,
    pub(super) place: u8,
    pub(super) is_stated: bool,
    /// True if its one step is an assumption, because the other side has not reported on this window.
    pub(super) is_assumed: bool,
    /// True if it is beside a limit of the policy that counts our calls. Its steps are the usage of others, and no call charges it.
    pub(super) is_beside: bool,
    /// True if the other side states no limit. The limit is then the number of calls that it served until it refused one. So many
    /// calls go freely, and the others one at a time.
    pub(super) is_counted: bool,
    pub(super) limit: u64,
    pub(super) length: u64,
    /// Until when it admits no further call, unless the call that begins the window is answered before.
    pub(super) asks_until: u64,
    /// Until when it stays known.
    pub(super) until: u64,
    /// In order of their ends, and from the most units to the fewest.
    pub(super) steps: SmallVec<[UsedUntil; MAX_STEPS]>,
}

/// This many units are used until that moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct UsedUntil {
    pub(super) used: u64,
    pub(super) closes: u64,
}

impl LearnedWindow {
    pub(super) fn live(&self, now: u64) -> impl Iterator<Item = &UsedUntil> + Clone {
        self.steps.iter().filter(move |step| step.closes > now)
    }

    pub(super) fn is_over(&self, now: u64) -> bool {
        self.until <= now || !self.is_stated && self.live(now).next().is_none()
    }

    pub(super) fn used(&self, now: u64) -> u64 {
        self.live(now).map(|step| step.used).max().unwrap_or(0)
    }

    /// The units that a call leaves free in a limit of that capacity: those that others use, and the difference to a smaller limit of the
    /// other side. A call that takes more than that limit has is admitted when nothing is used.
    pub(super) fn reserve(&self, capacity: u64, units: u64, moment: u64) -> u64 {
        let less = capacity.saturating_sub(self.limit).min(capacity.saturating_sub(units));
        less + self.used(moment)
    }

    /// The first moment at which it admits so many units. More than its limit are admitted when nothing is used.
    pub(super) fn admits_at(&self, now: u64, units: u64) -> u64 {
        if self.is_counted {
            let waits = self.used(now) >= self.limit && self.asks_until > now;
            return if waits { self.asks_until.min(now + LOOK_AGAIN) } else { now };
        }
        let refusing = self.live(now).filter(|step| step.used + units > self.limit);
        let closes = refusing.map(|step| step.closes).max().unwrap_or(now);
        if self.asks_until > now { closes.max(self.asks_until.min(now + LOOK_AGAIN)) } else { closes }
    }

    /// The first moment at which it admits a call. `units` returns the units that the call takes of a limit, and 0 is always admitted. If
    /// the policy does not count these units, the call takes one.
    pub(super) fn admits_call_at(&self, now: u64, units: impl Fn(usize) -> u64) -> u64 {
        match units_of(self.place, units).unwrap_or(1) {
            0 => now,
            units => self.admits_at(now, units),
        }
    }

    pub(super) fn charge(&mut self, now: u64, units: u64, asks: bool) {
        let last = self.steps.last().map_or(now, |step| step.closes);
        self.steps.retain(|step| step.closes > now);
        if self.steps.is_empty() {
            let gone = now - last.min(now);
            self.steps.push(UsedUntil { used: 0, closes: now - gone % self.length + self.length });
            self.is_assumed = true;
            if asks && !self.is_counted {
                self.asks_until = now + ANSWER;
            }
        }
        let units = if self.is_counted { 1 } else { units };
        for step in &mut self.steps {
            step.used = (step.used + units).min(MAX_SAFE_INTEGER);
        }
        if self.is_counted && self.used(now) >= self.limit {
            self.asks_until = now + ANSWER;
        }
    }

    /// A window of a side that states no limit, after a first refusal with a wait until it closes. Its length is not known yet.
    pub(super) fn counted(served: u64, closes: u64) -> Self {
        let mut window = Self {
            place: 1,
            is_stated: true,
            is_counted: true,
            limit: served.max(1),
            length: REMEMBERED,
            until: closes + REMEMBERED,
            ..Self::default()
        };
        window.steps.push(UsedUntil { used: window.limit, closes });
        window
    }

    /// The newest call of such a window was served. Earlier calls that go freely may still be on their way.
    pub(super) fn answered(&mut self, now: u64) {
        self.asks_until = if self.used(now) == self.limit { now + LOOK_AGAIN } else { 0 };
    }

    /// The other side refused a call of such a window. `calls` calls were charged after that one.
    pub(super) fn refused(&mut self, calls: u64, now: u64, closes: u64) {
        let Some(step) = self.steps.iter_mut().find(|step| step.closes > now) else { return };
        if calls >= step.used {
            // The call belongs to the window before.
            return;
        }
        let served = (step.used - calls - 1).max(1);
        if self.is_assumed {
            let length = closes.saturating_sub(step.closes.saturating_sub(self.length)).clamp(1, REMEMBERED);
            // Services round to seconds.
            let is_same = length.abs_diff(self.length) < SAME_STEP;
            self.length = if is_same { self.length.max(length) } else { length };
            (self.limit, self.is_assumed, step.closes) = (served, false, closes);
        } else {
            (self.limit, step.closes) = (self.limit.min(served), step.closes.max(closes));
        }
        (self.asks_until, self.until) = (0, self.until.max(closes + REMEMBERED));
    }

    /// Takes a report about this window. `calls` were charged since the answered call, if known.
    pub(super) fn observe(&mut self, said: &SaidLimit, calls: Option<u64>, now: u64, (asks, own): (bool, u64)) {
        if said.reset == 0 {
            return self.observe_left(said, calls, now);
        }
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
        self.take_limit(said);
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

    /// Takes the units left from a report without an end. They hold for a second. When all units are used and the newest call has its
    /// answer, the next call asks.
    fn observe_left(&mut self, said: &SaidLimit, calls: Option<u64>, now: u64) {
        let is_asked = self.asks_until > now;
        // The newest call is the one that asks.
        if is_asked && calls.is_some_and(|calls| calls > 0) {
            return;
        }
        (self.place, self.asks_until, self.until) = (said.place, 0, self.until.max(now + REMEMBERED));
        self.steps.retain(|step| step.closes > now);
        self.take_limit(said);
        self.length = if said.length > 0 { said.length } else { self.length.max(1) };
        let used = match calls {
            Some(calls) => said.used + calls * said.units,
            None => said.used.max(self.used(now)),
        };
        match self.steps.last_mut() {
            // A step with a reported end stands.
            Some(_) if !self.is_assumed => return,
            Some(step) if !is_asked => step.used = step.used.max(said.used),
            _ => {
                self.is_assumed = true;
                self.steps = smallvec![UsedUntil { used: used.min(MAX_SAFE_INTEGER), closes: now + ANSWER }];
            }
        }
        if calls == Some(0) && self.used(now) >= self.limit {
            self.steps.clear();
        }
    }

    fn take_limit(&mut self, said: &SaidLimit) {
        if said.is_stated || !self.is_stated {
            // A raised limit leaves no more than before, because a report never adds units.
            let raised = said.limit.saturating_sub(self.limit);
            self.steps.iter_mut().for_each(|step| step.used = (step.used + raised).min(MAX_SAFE_INTEGER));
            (self.limit, self.is_stated) = (said.limit, said.is_stated);
        }
    }

    /// The same beside a limit of the policy that has `own` units in use. Usage that our own calls do not explain belongs to
    /// others. A raised limit leaves no more than before until the last reported end.
    pub(super) fn observe_beside(
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

    /// Adds a step, or raises the step with the same end to `same`.
    pub(super) fn raise(&mut self, added: UsedUntil, same: u64) {
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

/// The index of the policy's limit that shows this window.
pub(super) fn index_of(place: u8) -> usize {
    usize::from(place).saturating_sub(1)
}

/// The units of a call that a window counts. `None` if the policy does not count these units.
pub(super) fn units_of(place: u8, units: impl Fn(usize) -> u64) -> Option<u64> {
    (place > 0).then(|| units(index_of(place)))
}
