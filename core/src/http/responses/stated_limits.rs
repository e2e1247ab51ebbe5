//! Combines the fields of a response into limits.

use std::time::Duration;

use super::super::field_names::{LEFT, MORE_AFTER, QUOTA, UNIT, WINDOW};
use super::dialects::{Dialect, Says, rank};
use super::structured::{StructuredMember, members};
use super::waits::WaitReader;
use super::{MAX_OBSERVATIONS, Observation};
use crate::policy::{MAX_COUNT, MAX_NAME, Period, TimeUnit, Unit};

/// The window of a quota in older dialects.
const OLD_WINDOW: &str = "window";
/// The members of `RateLimit` in draft 07.
const MEMBERS: [&str; 3] = ["limit", "remaining", "reset"];

/// A limit as the fields of one family describe it.
struct StatedLimit {
    family: &'static str,
    /// The name that distinguishes several limits of a field.
    item: Option<String>,
    said: Observation,
    /// The time until the reset, if a field gives it as a length beside a moment.
    exact_reset: Option<Duration>,
}

/// Every limit of a response.
#[derive(Default)]
pub(super) struct StatedLimits {
    limits: Vec<StatedLimit>,
    /// The quota of each policy, with its family.
    quotas: Vec<(&'static str, Observation)>,
}

impl StatedLimits {
    /// Adds a field. `None` if its value is not believed.
    pub(super) fn say(&mut self, row: &Dialect, suffix: &str, value: &str, waits: &WaitReader) -> Option<()> {
        match row.says {
            Says::Items => return self.items(row.family, value, waits),
            Says::Policies => return self.quotas(row.family, &members(value)?),
            _ => {}
        }
        let identity = identity(suffix)?;
        let said = match row.says {
            Says::Limit => {
                let list = members(value)?;
                // If two services on the way wrote the field, the smaller count. A member with parameters is a quota.
                let is_bare = |member: &&StructuredMember<'_>| window_of(member).is_none();
                let counts = list.iter().filter(is_bare).map(|member| count(&member.value));
                let limit = counts.collect::<Option<Vec<_>>>()?.into_iter().min();
                let first = list.first().and_then(|member| count(&member.value))?;
                self.quotas(row.family, &list)?;
                Observation { limit: Some(limit.unwrap_or(first)), ..identity }
            }
            Says::Remaining => {
                let counts = value.split(',').map(|part| count(part.trim()));
                let remaining = counts.collect::<Option<Vec<_>>>()?.into_iter().min();
                Observation { remaining, ..identity }
            }
            Says::UsedOfLimit => {
                let (used, limit) = value.split_once('/')?;
                let (used, limit) = (count(used.trim())?, count(limit.trim())?);
                Observation { limit: Some(limit), remaining: Some(limit.saturating_sub(used)), ..identity }
            }
            Says::Name => Observation { name: Some(name(value)?), ..identity },
            Says::ResetAfter => {
                let reset = waits.of_text(value)?;
                let stated = self.of(row.family, None, &identity)?;
                stated.exact_reset = stated.exact_reset.max(Some(reset));
                return Some(());
            }
            _ => Observation { reset_after: Some(waits.of_text(value)?), ..identity },
        };
        add(&mut self.of(row.family, None, &said)?.said, said);
        Some(())
    }

    /// `"burst";r=50;t=30` since draft 08, `limit=100, remaining=50, reset=30` in draft 07.
    fn items(&mut self, family: &'static str, value: &str, waits: &WaitReader) -> Option<()> {
        let list = members(value)?;
        let member = |key| list.iter().find(|member| member.key == Some(key)).map(|member| &*member.value);
        if list.iter().any(|member| member.key.is_some()) {
            let [limit, remaining, reset] = MEMBERS.map(member);
            let said = Observation {
                limit: believed(limit, count)?,
                remaining: believed(remaining, count)?,
                reset_after: believed(reset, |reset| waits.of_text(reset))?,
                ..Observation::default()
            };
            add(&mut self.of(family, None, &said)?.said, said);
            return Some(());
        }
        for item in &list {
            let name = name(&item.value)?;
            let said = Observation {
                name: Some(name.clone()),
                remaining: believed(item.parameter(LEFT), count)?,
                reset_after: believed(item.parameter(MORE_AFTER), |reset| waits.of_text(reset))?,
                ..Observation::default()
            };
            add(&mut self.of(family, Some(name), &said)?.said, said);
        }
        Some(())
    }

    /// `"burst";q=100;w=60` since draft 08, `100;w=60` before.
    fn quotas(&mut self, family: &'static str, list: &[StructuredMember<'_>]) -> Option<()> {
        for item in list {
            let quota = item.parameter(QUOTA);
            let window = believed(window_of(item), window)?;
            if quota.is_none() && window.is_none() {
                continue;
            }
            let said = Observation {
                name: quota.and_then(|_| name(&item.value)),
                limit: Some(count(quota.unwrap_or(&item.value))?),
                window,
                unit: item.parameter(UNIT).and_then(|unit| Unit::new(unit).ok()),
                ..Observation::default()
            };
            if self.quotas.len() == MAX_OBSERVATIONS {
                return None;
            }
            self.quotas.push((family, said));
        }
        Some(())
    }

    /// The limit of a family with the unit and window of `said` and the name `item`. It is added if it is new. `None`
    /// if there are too many.
    fn of(&mut self, family: &'static str, item: Option<String>, said: &Observation) -> Option<&mut StatedLimit> {
        let same = |stated: &StatedLimit| {
            (stated.family, &stated.item) == (family, &item)
                && (&stated.said.unit, stated.said.window) == (&said.unit, said.window)
        };
        let index = self.limits.iter().position(same).unwrap_or(self.limits.len());
        if index == MAX_OBSERVATIONS {
            return None;
        }
        if index == self.limits.len() {
            let said = Observation { unit: said.unit.clone(), window: said.window, ..Observation::default() };
            self.limits.push(StatedLimit { family, item, said, exact_reset: None });
        }
        self.limits.get_mut(index)
    }

    /// An Observation for each limit, and the number of those that are too many. In a refusal a limit with a reset and
    /// without a number of remaining units has nothing left.
    pub(super) fn observations(mut self, refused: bool) -> (Vec<Observation>, u32) {
        self.limits.sort_by_key(|stated| rank(stated.family));
        let mut known: Vec<(&'static str, Observation)> = Vec::new();
        for StatedLimit { family, mut said, exact_reset, .. } in self.limits {
            said.reset_after = exact_reset.or(said.reset_after);
            let quota = self.quotas.iter().position(|(of, quota)| *of == family && is_of(quota, &said));
            if let Some(index) = quota {
                let (_, quota) = self.quotas.remove(index);
                said.limit = said.limit.or(quota.limit);
                said.window = said.window.or(quota.window);
                said.unit = said.unit.or(quota.unit);
            }
            if refused && said.remaining.is_none() && said.reset_after.is_some() {
                said.remaining = Some(0);
            }
            said.remaining = said.remaining.map(|remaining| remaining.min(said.limit.unwrap_or(remaining)));
            let says_something = (said.limit, said.remaining, said.reset_after) != (None, None, None);
            if says_something && !known.iter().any(|(of, other)| *of != family && is_again(&said, other)) {
                known.push((family, said));
            }
        }
        known.extend(self.quotas);
        // One place is kept for the wait.
        let too_many = known.len().saturating_sub(MAX_OBSERVATIONS - 1);
        let observations = known.into_iter().take(MAX_OBSERVATIONS - 1).map(|(_, said)| said).collect();
        (observations, u32::try_from(too_many).unwrap_or(u32::MAX))
    }
}

/// True if another family has announced the same limit with the same numbers.
fn is_again(said: &Observation, known: &Observation) -> bool {
    fn agree<T: PartialEq>(one: &Option<T>, other: &Option<T>) -> bool {
        one.is_none() || other.is_none() || one == other
    }
    said.limit.is_some()
        && (said.limit, said.remaining) == (known.limit, known.remaining)
        && agree(&said.unit, &known.unit)
        && agree(&said.window, &known.window)
}

/// True if this is the quota of a limit: by its name, or by its count if it has no name.
fn is_of(quota: &Observation, limit: &Observation) -> bool {
    match &quota.name {
        Some(name) => limit.name.as_ref() == Some(name),
        None => limit.limit.is_none_or(|count| quota.limit == Some(count)),
    }
}

/// Adds the value of a field. The smaller count and the later reset win.
fn add(known: &mut Observation, said: Observation) {
    let smaller = |one: Option<u64>, other: Option<u64>| one.into_iter().chain(other).min();
    known.name = said.name.or(known.name.take());
    known.limit = smaller(known.limit, said.limit);
    known.remaining = smaller(known.remaining, said.remaining);
    known.reset_after = known.reset_after.max(said.reset_after);
}

/// The unit and the window at the end of a field's name: `tokens`, `minute` or `requests-day`.
fn identity(suffix: &str) -> Option<Observation> {
    let (unit, last) = suffix.rsplit_once('-').unwrap_or(("", suffix));
    let window = TimeUnit::of_word(last).map(|unit| Duration::from_micros(unit.micros()));
    let unit = if window.is_some() { unit } else { suffix };
    let unit = if unit.is_empty() { None } else { Some(Unit::new(unit).ok()?) };
    Some(Observation { unit, window, ..Observation::default() })
}

/// `None` for a value that is there but not believed.
fn believed<T>(value: Option<&str>, read: impl FnOnce(&str) -> Option<T>) -> Option<Option<T>> {
    value.map_or(Some(None), |value| read(value).map(Some))
}

fn window_of<'a>(member: &'a StructuredMember<'_>) -> Option<&'a str> {
    member.parameter(WINDOW).or_else(|| member.parameter(OLD_WINDOW))
}

fn window(seconds: &str) -> Option<Duration> {
    let period = Period::new(count(seconds)?, TimeUnit::Second).ok()?;
    Some(Duration::from_micros(period.micros()))
}

/// A number of units. Digits after a point are left out.
fn count(text: &str) -> Option<u64> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let is_number = |digits: &str| !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    let number = if is_number(whole) && is_number(fraction) { whole.parse().ok() } else { None };
    number.filter(|number| *number <= MAX_COUNT)
}

fn name(text: &str) -> Option<String> {
    (!text.is_empty() && text.len() <= MAX_NAME).then(|| text.to_owned())
}
