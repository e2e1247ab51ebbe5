//! One limit and key by its definition: everything that was ever charged, and how much of it still counts.
//!
//! The units that a limit counts never grow by themselves. So every question about a future moment is answered in the
//! same way, by a search for the first microsecond at which it is true.

use tidegate::{Algorithm, Limit};

use super::bucket_level::Level;
use super::calendar::window;

/// The largest count of any kind.
const MOST: u128 = (1 << 53) - 1;
/// At most as many units are missing from a bucket as come back in 2^52 µs.
const LONGEST_DEBT: u128 = 1 << 52;

#[derive(Clone, Debug)]
struct Charge {
    at: u64,
    units: u128,
    /// `sliding-window`: the last instant of its granule.
    last_instant: u64,
}

#[derive(Clone, Debug)]
struct HeldUnits {
    expires: u64,
    /// 0 for units that were taken without a hold.
    id: u64,
    units: u128,
}

/// A charge of one limit, as a settle needs it.
#[derive(Clone, Debug)]
pub(super) struct ChargedLimit {
    pub(super) limit: Limit,
    pub(super) at: u64,
    /// The charged units.
    pub(super) units: u64,
    /// The moment at which the bucket would have been empty again, or 0 if it is unknown.
    pub(super) empty_at: u64,
}

/// All charges of one limit and key.
#[derive(Clone, Debug)]
pub(super) struct Ledger {
    pub(super) limit: Limit,
    /// When it was last charged, or a bucket with `initial` began.
    last: u64,
    /// For windows.
    charges: Vec<Charge>,
    /// `calendar-window`: the latest end of a window with a charge.
    closes: u64,
    /// For buckets. `None` until the first charge.
    level: Option<Level>,
    /// For `concurrency`, in the order in which they expire.
    held: Vec<HeldUnits>,
}

impl Ledger {
    pub(super) fn new(limit: &Limit) -> Self {
        Self { limit: limit.clone(), last: 0, charges: Vec::new(), closes: 0, level: None, held: Vec::new() }
    }

    fn period(&self) -> u64 {
        self.limit.period().micros()
    }

    pub(super) fn capacity(&self) -> u64 {
        if self.limit.count() == 0 { 0 } else { self.limit.burst().unwrap_or(self.limit.count()) }
    }

    fn is_bucket(&self) -> bool {
        matches!(self.limit.algorithm(), Algorithm::TokenBucket | Algorithm::Gcra | Algorithm::LeakyBucket)
    }

    /// Units that come back to a bucket in a period.
    fn rate(&self) -> u128 {
        u128::from(self.limit.count().max(1))
    }

    /// Units come back to a bucket at multiples of one microsecond divided by this.
    fn steps(&self) -> u64 {
        steps(&self.limit)
    }

    /// The time for this limit, which does not run backwards.
    fn time(&self, now: u64) -> u64 {
        now.max(self.last)
    }

    /// True if a later version of the limit continues this usage.
    pub(super) fn is_same(&self, other: &Limit) -> bool {
        let (mine, other_period) = (self.limit.period(), other.period());
        self.limit.algorithm() == other.algorithm()
            && match other.algorithm() {
                Algorithm::Concurrency => true,
                Algorithm::CalendarWindow => mine == other_period,
                _ => mine.micros() == other_period.micros(),
            }
    }

    /// Takes other numbers. The missing units of a bucket come back at the new rate from the moment of its level on, or
    /// from the next microsecond if the new numbers cannot express that moment. A bucket that is full at the old rate
    /// stays full.
    pub(super) fn change(&mut self, limit: &Limit, now: u64) {
        let (old_steps, until) = (self.steps(), self.counts_until());
        let old_rate = self.rate();
        if let (Some(level), true) = (&mut self.level, old_rate != u128::from(limit.count().max(1))) {
            if until <= now {
                *level = Level::new(until.max(level.at), 0);
            } else if level.part > 0 && old_steps != steps(limit) {
                *level = Level::new(level.at + 1, level.units);
            }
            level.units = level.units.min(most_missing(limit));
        }
        let old_granule = self.granule();
        self.limit = limit.clone();
        if limit.algorithm() == Algorithm::SlidingWindow && self.granule() != old_granule {
            // Only the granule that is still being filled changes its end.
            let (newest, last) = (last_instant(self.last, old_granule), self.last);
            let granule = self.granule();
            for charge in self.charges.iter_mut().filter(|charge| charge.last_instant == newest) {
                charge.last_instant = last_instant(last, granule);
            }
        }
    }

    fn granule(&self) -> u64 {
        self.period() / u64::from(self.limit.precision())
    }

    /// True if a charge still counts at a moment.
    fn counts(&self, charge: &Charge, moment: u64) -> bool {
        let period = self.period();
        match self.limit.algorithm() {
            Algorithm::FixedWindow => {
                // Windows follow one another, each opened by the first charge that finds none open.
                let mut opened: Option<u64> = None;
                for other in self.charges.iter().filter(|other| other.units > 0) {
                    if opened.is_none_or(|opened| other.at >= opened + period) {
                        opened = Some(other.at);
                    }
                }
                opened.is_some_and(|opened| charge.at >= opened && moment < opened + period)
            }
            // A window keeps its end. Under another calendar it also counts until the first end after its last charge.
            Algorithm::CalendarWindow => moment < self.closes || moment < window(&self.limit, self.last).1,
            Algorithm::SlidingLog => charge.at + period > moment,
            Algorithm::SlidingWindow => charge.last_instant + period > moment,
            Algorithm::SlidingCounter => charge.at / period + 1 >= moment / period,
            _ => false,
        }
    }

    /// True if a charge counts at a moment with some weight. A counter gives its previous window less and less weight.
    fn weighs(&self, charge: &Charge, moment: u64) -> bool {
        let (period, window) = (self.period(), charge.at / self.period());
        let is_previous = self.limit.algorithm() == Algorithm::SlidingCounter && window < moment / period;
        let of_window = self.charges.iter().filter(|other| other.at / period == window).map(|other| other.units);
        let left = u128::from(period - moment % period);
        self.counts(charge, moment) && !(is_previous && of_window.sum::<u128>() * left < u128::from(period))
    }

    /// Units that count at a moment, when nothing was charged after `last`.
    fn used(&self, moment: u64) -> u128 {
        let period = self.period();
        match self.limit.algorithm() {
            Algorithm::SlidingCounter => {
                let sum = |window: u64| -> u128 {
                    self.charges.iter().filter(|charge| charge.at / period == window).map(|charge| charge.units).sum()
                };
                let (window, elapsed) = (moment / period, moment % period);
                let previous = window.checked_sub(1).map_or(0, sum);
                previous * u128::from(period - elapsed) / u128::from(period) + sum(window)
            }
            Algorithm::Concurrency => {
                self.held.iter().filter(|held| held.expires > moment).map(|held| held.units).sum()
            }
            _ if self.is_bucket() => self.level.map_or(0, |level| {
                let (regained, _) = level.regained(moment, self.rate(), u128::from(period));
                level.units.saturating_sub(regained)
            }),
            _ => self.charges.iter().filter(|charge| self.counts(charge, moment)).map(|charge| charge.units).sum(),
        }
    }

    /// The first moment from `now` on at which at most so many units count.
    fn first(&self, now: u64, most: u128) -> u64 {
        let from = self.time(now);
        if self.used(from) <= most {
            return now;
        }
        let mut step = 1;
        while self.used(from + step) > most {
            step *= 2;
        }
        let (mut early, mut late) = (from, from + step);
        while early + 1 < late {
            let middle = early + (late - early) / 2;
            if self.used(middle) > most { early = middle } else { late = middle }
        }
        late
    }

    /// The moment from which nothing counts any more.
    pub(super) fn counts_until(&self) -> u64 {
        let until = self.first(self.last, 0);
        // A refund may have filled a bucket since.
        let filled = self.level.filter(|level| level.units == 0 && self.fills().is_some());
        filled.map_or(until, |level| until.max(level.at + u64::from(level.part > 0)))
    }

    /// How long a token bucket with `initial` below its capacity takes to fill. `None` for every other limit.
    pub(super) fn fills(&self) -> Option<u64> {
        self.limit.initial().filter(|initial| *initial < self.capacity())?;
        Some((u128::from(self.capacity()) * u128::from(self.period())).div_ceil(self.rate()) as u64)
    }

    /// Starts a bucket with `initial`.
    pub(super) fn begin(&mut self, now: u64) {
        let missing = self.capacity().saturating_sub(self.limit.initial().unwrap_or(u64::MAX));
        self.level = Some(Level::new(now, u128::from(missing)));
        self.last = now;
    }

    /// True if it was never used.
    pub(super) const fn is_blank(&self) -> bool {
        self.last == 0
    }

    pub(super) fn admits(&self, now: u64, cost: u64) -> bool {
        self.used(self.time(now)) + u128::from(cost) <= u128::from(self.capacity())
    }

    /// The first moment at which a cost is admitted. `None` means never.
    pub(super) fn admits_at(&self, now: u64, cost: u64) -> Option<u64> {
        let room = self.capacity().checked_sub(cost)?;
        Some(self.first(now, u128::from(room)))
    }

    pub(super) fn remaining(&self, now: u64) -> u64 {
        let used = self.used(self.time(now));
        u128::from(self.capacity()).saturating_sub(used) as u64
    }

    /// The units used beyond the limit.
    pub(super) fn over(&self, now: u64) -> u64 {
        self.used(self.time(now)).saturating_sub(u128::from(self.capacity())) as u64
    }

    /// The first moment from `now` on at which no unit counts.
    pub(super) fn resets_at(&self, now: u64) -> u64 {
        self.first(now, 0)
    }

    /// `leaky-bucket`: the time until everything before the newest `charged` units has drained.
    pub(super) fn delay(&self, now: u64, charged: u64) -> u64 {
        if self.limit.algorithm() != Algorithm::LeakyBucket {
            return 0;
        }
        self.first(now, u128::from(charged)) - now
    }

    /// True if its units are held.
    pub(super) fn holds(&self) -> bool {
        self.limit.algorithm() == Algorithm::Concurrency
    }

    /// Charges the units, even if they are not admitted.
    pub(super) fn charge(&mut self, now: u64, cost: u64, hold: u64) {
        let now = self.time(now);
        let (cost, period) = (u128::from(cost), u128::from(self.period()));
        if self.is_bucket() {
            let most = most_missing(&self.limit);
            let mut level = self.level.unwrap_or(Level::new(now, 0)).at(now, self.rate(), period);
            level.units = (level.units + cost).min(most);
            self.level = Some(level);
        } else if self.limit.algorithm() == Algorithm::Concurrency {
            self.held.retain(|held| held.expires > now);
            let room = MOST - self.used(now).min(MOST);
            self.held.push(HeldUnits { expires: now + self.period(), id: hold, units: cost.min(room) });
            self.held.sort_by_key(|held| held.expires);
        } else {
            let room = match self.limit.algorithm() {
                Algorithm::SlidingLog => MOST / 2 - self.used(now).min(MOST / 2),
                _ => MOST - self.used(now).min(MOST),
            };
            if self.limit.algorithm() == Algorithm::CalendarWindow {
                let next = window(&self.limit, now).1;
                if self.used(now) == 0 {
                    (self.charges, self.closes) = (Vec::new(), next);
                }
                self.closes = self.closes.max(next);
            }
            let last_instant = last_instant(now, self.granule());
            self.charges.push(Charge { at: now, units: cost.min(room), last_instant });
        }
        self.last = now;
    }

    /// Gives units back, the oldest first if the algorithm knows their age. Returns their number.
    pub(super) fn refund(&mut self, now: u64, cost: u64) -> u64 {
        let now = self.time(now);
        if self.is_bucket() {
            return self.lower(now, cost);
        }
        if self.limit.algorithm() == Algorithm::Concurrency {
            let live = |held: &&mut HeldUnits| held.expires > now && held.id == 0;
            let taken = take(self.held.iter_mut().filter(live).map(|held| &mut held.units), cost);
            self.held.retain(|held| held.units > 0);
            return taken;
        }
        let counted: Vec<bool> = self.charges.iter().map(|charge| self.weighs(charge, now)).collect();
        let units = self.charges.iter_mut().zip(counted).filter(|(_, counted)| *counted);
        let units = units.map(|(charge, _)| &mut charge.units);
        match self.limit.algorithm() {
            // The newest units go back first, because the first charge keeps the window open.
            Algorithm::FixedWindow => take(units.rev(), cost),
            _ => take(units, cost),
        }
    }

    fn lower(&mut self, now: u64, units: u64) -> u64 {
        let Some(level) = self.level else { return 0 };
        let mut level = level.at(now, self.rate(), u128::from(self.period()));
        let taken = level.units.min(u128::from(units));
        level.units -= taken;
        self.level = Some(level);
        taken as u64
    }

    /// True if units that go back matter to earlier charges.
    pub(super) fn counts_refunds(&self, by_decision: bool) -> bool {
        let slides = |algorithm| {
            [Algorithm::SlidingLog, Algorithm::SlidingWindow, Algorithm::SlidingCounter].contains(&algorithm)
        };
        self.is_bucket() || !by_decision && slides(self.limit.algorithm())
    }

    /// Gives back the units of a charge that certainly still count. `refunded` units went back since the charge.
    /// Refunds without a Decision can have taken at most `taken` units of it.
    pub(super) fn give_back(&mut self, now: u64, units: u64, charged: &ChargedLimit, refunded: u64, taken: u64) -> u64 {
        let (at, period, granule) = (charged.at, self.period(), self.granule());
        let now = if self.limit.algorithm() == Algorithm::SlidingLog { now } else { self.time(now) };
        if self.is_bucket() {
            return self.give_back_to_bucket(now, units, charged, refunded, taken);
        }
        if self.limit.algorithm() == Algorithm::Concurrency {
            let own = |held: &&mut HeldUnits| held.expires == at + period && held.id == 0 && held.expires > now;
            let taken = take(self.held.iter_mut().filter(own).map(|held| &mut held.units), units);
            self.held.retain(|held| held.units > 0);
            return taken;
        }
        let is_own = |charge: &Charge| match self.limit.algorithm() {
            Algorithm::SlidingLog => charge.at == at,
            Algorithm::SlidingWindow => charge.last_instant == last_instant(at, granule),
            Algorithm::SlidingCounter => charge.at / period == at / period,
            Algorithm::FixedWindow => {
                self.charges.iter().any(|first| first.at <= at && first.units > 0 && self.counts(first, now))
            }
            _ => at >= window(&self.limit, now).0,
        };
        let own: Vec<bool> = self.charges.iter().map(|charge| is_own(charge) && self.weighs(charge, now)).collect();
        // Refunds take the oldest units first: none of this charge while units before its entry, granule or window count.
        let tells = self.counts_refunds(false);
        let first = own.iter().position(|own| *own).unwrap_or(0);
        let is_older = |charge: &Charge| charge.units > 0 && !is_own(charge) && self.weighs(charge, now);
        let taken = if !tells || self.charges[..first].iter().any(is_older) { 0 } else { taken.min(units) };
        let parts = self.charges.iter_mut().zip(own).filter(|(_, own)| *own).map(|(charge, _)| &mut charge.units);
        take(parts.rev(), units - taken)
    }

    fn give_back_to_bucket(&mut self, now: u64, units: u64, charged: &ChargedLimit, refunded: u64, taken: u64) -> u64 {
        let (rate, period) = (self.rate(), u128::from(self.period()));
        let drained = |time: u64| u128::from(time) * rate / period;
        let steps = u128::from(self.steps());
        // The script counts exactly only up to this time, and gives back nothing after it.
        let exact = |time: u64| u128::from(time) * steps <= 1 << 51;
        let until = charged.empty_at.saturating_sub(u64::from(self.steps() > 1));
        let (ahead, elapsed) = (until.saturating_sub(now), now.saturating_sub(charged.at));
        if !exact(elapsed) {
            return 0;
        }
        let waiting = if exact(ahead) { (drained(ahead) as u64).saturating_sub(refunded) } else { 0 };
        // Refunds take the units ahead of this charge first: while all its units wait, they have taken none of it.
        let units = units.saturating_sub(taken.min(charged.units.saturating_sub(waiting)));
        let own = units.saturating_sub(u64::try_from(drained(elapsed)).unwrap_or(u64::MAX));
        if waiting >= own {
            let units = units.min(waiting);
            return if units == 0 { 0 } else { self.lower(now, units) };
        }
        let taken = self.lower(now, own);
        // The part of a unit that has drained since then stays charged.
        if let Some(level) = self.level.as_mut().filter(|level| level.at < now) {
            let rest = (u128::from(elapsed) * rate % period).div_ceil(rate) as u64;
            let at = now.min(level.at + rest);
            level.at = at;
            if at == now {
                level.part = 0;
            }
        }
        taken
    }

    /// Makes a hold last for another ttl, unless it has expired.
    pub(super) fn renew(&mut self, now: u64, id: u64) {
        let (now, ttl) = (self.time(now), self.period());
        if let Some(held) = self.held.iter_mut().find(|held| held.id == id && held.expires > now) {
            held.expires = now + ttl;
            self.held.sort_by_key(|held| held.expires);
            self.last = now;
        }
    }

    /// Ends a hold.
    pub(super) fn release(&mut self, id: u64) {
        self.held.retain(|held| held.id != id);
    }
}

/// Takes up to `units` units, in this order. Returns the number that it took.
fn take<'a>(parts: impl Iterator<Item = &'a mut u128>, units: u64) -> u64 {
    let mut left = u128::from(units);
    for part in parts {
        let taken = left.min(*part);
        *part -= taken;
        left -= taken;
    }
    units - left as u64
}

/// See [`Ledger::steps`].
fn steps(limit: &Limit) -> u64 {
    let (count, period) = (limit.count().max(1), limit.period().micros());
    let (mut common, mut rest) = (count, period);
    while rest > 0 {
        (common, rest) = (rest, common % rest);
    }
    count / common
}

/// The most units that can be missing from a bucket.
fn most_missing(limit: &Limit) -> u128 {
    (LONGEST_DEBT * u128::from(limit.count().max(1)) / u128::from(limit.period().micros())).min(MOST)
}

/// The last instant of the granule that holds a moment.
fn last_instant(moment: u64, granule: u64) -> u64 {
    (moment / granule + 1) * granule - 1
}
