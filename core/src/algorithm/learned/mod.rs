//! The limits that the other side of a key has announced, and until when they hold. `lua/learned.lua` has the same
//! rules. docs/adr/0041 has the reasons.

mod said;
#[cfg(feature = "stored")]
mod stored;
mod window;

use smallvec::SmallVec;

use self::window::{LearnedWindow, index_of, units_of};
use super::{MAX_SAFE_INTEGER, SECOND, View, left};

pub(crate) use self::said::{Said, SaidLimit};

/// The most windows of a key.
pub(crate) const MAX_LEARNED_WINDOWS: usize = 8;
/// For how long calls are remembered that no response has answered.
const IN_FLIGHT: u64 = 60 * SECOND;

/// The numbers that the sources of the script use by name.
#[cfg(feature = "bench")]
pub(super) const LEARNED_NUMBERS: [(&str, u64); 7] = [
    ("MOST_LEARNED_WINDOWS", MAX_LEARNED_WINDOWS as u64),
    ("MOST_LEARNED_STEPS", window::MAX_STEPS as u64),
    ("SAME_LEARNED_STEP", window::SAME_STEP),
    ("ANSWER_OF_LEARNED", window::ANSWER),
    ("LEARNED_IS_REMEMBERED", window::REMEMBERED),
    ("LOOK_AT_LEARNED_AGAIN", window::LOOK_AGAIN),
    ("CALLS_IN_FLIGHT", IN_FLIGHT),
];

/// The learned limits of a key.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct LearnedLimits {
    /// The number of charged calls.
    calls: u64,
    /// Until when that number stays known.
    calls_until: u64,
    /// The end of the last announced wait.
    wait_until: u64,
    windows: Vec<LearnedWindow>,
}

/// A call's demand on a limit of the policy.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AskedOf {
    pub(crate) capacity: u64,
    pub(crate) units: u64,
    /// The units that it leaves free, apart from the learned ones.
    pub(crate) reserve: u64,
}

/// The learned part of an answer.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct LearnedAnswer {
    /// The number of charged calls.
    pub(crate) calls: u64,
    /// The end of the last announced wait.
    pub(crate) wait_until: u64,
    /// The limits of the policy that have less left because of a learned limit, with the count of that one.
    pub(crate) limits: SmallVec<[(u8, u64); 1]>,
}

impl LearnedLimits {
    /// From this moment on nothing is known.
    pub(crate) fn ends(&self) -> u64 {
        self.windows.iter().map(|window| window.until).fold(self.calls_until.max(self.wait_until), u64::max)
    }

    pub(crate) fn heap_bytes(&self) -> usize {
        self.windows.capacity() * size_of::<LearnedWindow>()
    }

    /// The windows that are not beside a limit of the policy.
    fn alone(&self, now: u64) -> impl Iterator<Item = &LearnedWindow> {
        self.windows.iter().filter(move |window| !window.is_beside && !window.is_over(now))
    }

    /// The units that a call of so many units leaves free in a limit of the policy at a moment.
    pub(crate) fn reserve(&self, index: usize, (capacity, units): (u64, u64), now: u64, moment: u64) -> u64 {
        let beside = self.windows.iter().filter(|window| window.is_beside && !window.is_over(now));
        let of_limit = beside.filter(|window| index_of(window.place) == index);
        of_limit.map(|window| window.reserve(capacity, units, moment)).max().unwrap_or(0)
    }

    /// The view for a call that leaves this free, and so may fit when others use less. `used` units count in the limit.
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

    /// The first moment at which all windows admit a call. `units` returns the units that the call takes of a limit.
    pub(crate) fn admits_at(&self, now: u64, units: impl Fn(usize) -> u64) -> u64 {
        self.alone(now).map(|window| window.admits_call_at(now, &units)).fold(now, u64::max)
    }

    /// The units that all windows have left for a call, at most `most`.
    pub(crate) fn left(&self, now: u64, most: u64) -> u64 {
        self.alone(now)
            .filter(|window| window.place > 0)
            .map(|window| window.limit.saturating_sub(window.used(now)))
            .fold(most, u64::min)
    }

    /// The limits of the policy that refuse the call, one bit each.
    pub(crate) fn refusing(&self, now: u64, units: impl Fn(usize) -> u64) -> u16 {
        let refusing = self.alone(now).filter(|window| window.admits_call_at(now, &units) > now);
        refusing.fold(0, |bits, window| bits | 1 << index_of(window.place))
    }

    /// Charges a call as of a moment. `asks` is that of the policy, and `None` if it does not learn.
    pub(crate) fn charge(&mut self, now: u64, moment: u64, units: impl Fn(usize) -> u64, asks: Option<bool>) {
        self.calls = (self.calls + 1).min(MAX_SAFE_INTEGER);
        if asks.is_some() {
            self.calls_until = now + IN_FLIGHT;
        }
        self.windows.retain(|window| !window.is_over(now));
        for window in self.windows.iter_mut().filter(|window| !window.is_beside) {
            window.charge(moment, units_of(window.place, &units).unwrap_or(0), asks == Some(true));
        }
    }

    /// Takes the announcements of a response. `used` returns the units that count in a limit of the policy.
    pub(crate) fn observe(&mut self, said: &Said, now: u64, asks: bool, used: impl Fn(usize) -> u64) {
        if said.wait > 0 {
            self.wait_until = self.wait_until.max(now + said.wait);
        }
        let calls = said.calls.map(|calls| self.calls.saturating_sub(calls));
        self.windows.retain(|window| !window.is_over(now));
        // A number of units left without an end is news about a known window, and about no other.
        let is_known = |limit: &&SaidLimit| self.windows.iter().any(|window| window.id == limit.id);
        let limits: SmallVec<[&SaidLimit; 1]> =
            said.limits.iter().filter(|limit| limit.reset > 0 || is_known(limit)).collect();
        if !limits.is_empty() {
            self.windows.retain(|window| !window.is_counted);
        } else if asks {
            self.observe_counted(said.wait, calls, now);
        }
        for limit in limits {
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

    /// Takes a response without a limit. A refusal with a wait ends a window, and any other response lets the next call go.
    fn observe_counted(&mut self, wait: u64, calls: Option<u64>, now: u64) {
        let behind = calls.unwrap_or(0);
        let is_first = self.windows.is_empty();
        match self.windows.iter_mut().find(|window| window.is_counted) {
            Some(window) if wait > 0 => window.refused(behind, now, now + wait),
            // The newest call is the one that asks.
            Some(window) if calls == Some(0) => window.answered(now),
            None if wait > 0 && is_first => {
                self.windows.push(LearnedWindow::counted(self.calls.saturating_sub(behind + 1), now + wait));
            }
            _ => {}
        }
    }

    /// Another version of the policy counts now. Until the next report nothing is known about its limits.
    pub(crate) fn forget_places(&mut self) {
        self.windows.retain(|window| !window.is_beside);
        self.windows.iter_mut().for_each(|window| window.place = 0);
    }

    /// Lowers the views of the policy's limits to the learned ones. `asked` returns the call's units of each limit.
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
