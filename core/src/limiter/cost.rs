//! The units of a call.

use compact_str::CompactString;

use crate::algorithm::{Limit, MAX_SAFE_INTEGER, Unit};
use crate::error::{Error, ErrorKind, Result};
use crate::plan::{Amount, Amounts, Plan};
use crate::policy::{CapacityPart, Policy};

/// Numbers of units by their names, such as 1,200 `tokens`, for limits that name their unit. The name `cost` is for
/// limits that name none.
///
/// ```
/// use tidegate::{CheckOptions, Limiter};
///
/// let limiter = Limiter::builder().policy("llm", "500/minute; 100000 tokens/minute")?.build()?;
/// let options = CheckOptions { units: [("tokens", 1_200)].into(), ..CheckOptions::default() };
/// let decision = limiter.check_with("llm", "org", &options)?;
/// let left: Vec<u64> = decision.limits().map(|limit| limit.remaining).collect();
/// assert_eq!(left, [499, 98_800]);
/// # Ok::<(), tidegate::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Units(Option<Box<[(CompactString, u64)]>>);

/// The name of the units of limits that name none.
const COST: &str = "cost";

fn is_cost(name: &str) -> bool {
    name.eq_ignore_ascii_case(COST)
}

impl Units {
    /// No numbers, so that a call takes its cost of each limit.
    pub(super) const NONE: Self = Self(None);

    pub(crate) const fn is_none(&self) -> bool {
        self.0.is_none()
    }

    fn get(&self, is_name: impl Fn(&str) -> bool) -> Option<u64> {
        self.iter().find(|(name, _)| is_name(name)).map(|(_, units)| units)
    }

    /// # Errors
    /// `cost_invalid` if two names are the same. Names ignore case.
    fn check_names(&self) -> Result<()> {
        let named = self.0.as_deref().unwrap_or_default();
        for (index, (name, units)) in named.iter().enumerate() {
            if let Some((same, other)) = named[..index].iter().find(|(same, _)| same.eq_ignore_ascii_case(name)) {
                return Err(Error::new(
                    ErrorKind::CostInvalid,
                    format!(
                        "a cost names {name:?} twice, as {same:?}: {other} and as {name:?}: {units}; names ignore case, so give one of \
                         them"
                    ),
                ));
            }
        }
        Ok(())
    }

    /// # Errors
    /// `cost_invalid` for a name that the policy does not count, and for a number that is too large.
    fn check(&self, policy: &Policy) -> Result<()> {
        self.check_names()?;
        for (name, units) in self.iter() {
            if !counts(policy, name) {
                return Err(invalid(policy, &format!("counts no {name:?}: it counts {}", counted(policy))));
            }
            check_units(name, units, policy)?;
        }
        Ok(())
    }

    /// Each name with its number.
    pub fn iter(&self) -> impl Iterator<Item = (&str, u64)> {
        self.0.iter().flatten().map(|(name, units)| (name.as_str(), *units))
    }
}

impl<N: AsRef<str>> FromIterator<(N, u64)> for Units {
    fn from_iter<I: IntoIterator<Item = (N, u64)>>(units: I) -> Self {
        Self(Some(units.into_iter().map(|(name, units)| (name.as_ref().into(), units)).collect()))
    }
}

impl<const N: usize> From<[(&str, u64); N]> for Units {
    fn from(units: [(&str, u64); N]) -> Self {
        units.into_iter().collect()
    }
}

/// The units that a call is about: a number, or [`Units`] by their names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cost {
    pub(super) number: u64,
    pub(super) units: Units,
}

impl Cost {
    /// One unit of each limit of a policy, whatever they count.
    #[must_use]
    pub fn one_of_each(policy: &Policy) -> Self {
        Self::of_each(policy, 1)
    }

    /// So many units of each limit of a policy, whatever they count.
    #[must_use]
    pub fn of_each(policy: &Policy, number: u64) -> Self {
        if policy.limits().iter().all(|limit| limit.unit().is_none()) {
            return Self::of(number);
        }
        let mut units: Vec<(&str, u64)> = Vec::new();
        for name in policy.limits().iter().map(|limit| limit.unit().map_or(COST, Unit::name)) {
            if units.iter().all(|(other, _)| !other.eq_ignore_ascii_case(name)) {
                units.push((name, number));
            }
        }
        units.into_iter().collect::<Units>().into()
    }

    /// So many units of each limit.
    pub(super) const fn of(number: u64) -> Self {
        Self { number, units: Units::NONE }
    }

    /// The number for limits that name no unit. `None` if the call names only units.
    pub(super) fn unnamed(&self) -> Option<u64> {
        if self.units.0.is_none() { Some(self.number) } else { self.units.get(is_cost) }
    }

    /// The number for a limit, if the call gives one.
    pub(super) fn of_limit(&self, limit: &Limit) -> Option<u64> {
        match limit.unit() {
            None => self.unnamed(),
            Some(unit) => self.units.get(|name| unit.is(name)),
        }
    }

    /// True if it takes nothing of any limit.
    #[cfg(feature = "tower")]
    pub(crate) const fn is_nothing(&self) -> bool {
        self.is_number() && self.number == 0
    }

    pub(crate) const fn is_number(&self) -> bool {
        self.units.is_none()
    }

    #[cfg(feature = "tower")]
    pub(crate) const fn number(&self) -> u64 {
        self.number
    }

    /// Checks the units for several policies. Each policy takes the units that it counts.
    ///
    /// # Errors
    /// `cost_invalid` for a unit that none of them counts, and for a number that is out of range.
    pub(crate) fn check_counted<'a>(&self, policies: impl Iterator<Item = &'a Policy> + Clone) -> Result<()> {
        self.units.check_names()?;
        for (name, units) in self.units.iter() {
            let Some(policy) = policies.clone().find(|policy| counts(policy, name)) else {
                let names = policies.clone().map(|policy| format!("{:?} counts {}", policy.name(), counted(policy)));
                let names = names.collect::<Vec<_>>().join(", ");
                return Err(Error::new(
                    ErrorKind::CostInvalid,
                    format!("cost names {name:?}, which no policy counts: {names}"),
                ));
            };
            check_units(name, units, policy)?;
        }
        Ok(())
    }

    /// The share of one of several policies in their common cost. It takes only named units that it counts.
    #[cfg(feature = "tower")]
    pub(crate) fn share_of(&self, policy: &Policy) -> Self {
        if self.is_number() { self.clone() } else { self.part_of(policy, true).unwrap_or_else(|| Self::of(1)) }
    }

    /// The named units that a policy counts, with or without the number for limits that name no unit. `None` if it counts none.
    pub(super) fn part_of(&self, policy: &Policy, takes_cost: bool) -> Option<Self> {
        let is_part = |name: &str| counts(policy, name) && (takes_cost || !is_cost(name));
        let part: Vec<_> = self.units.iter().filter(|(name, _)| is_part(name)).collect();
        match *part {
            [] => None,
            // A plain number is checked faster. A 0 stays a map, which takes nothing.
            [(name, number @ 1..)] if is_cost(name) => Some(Self::of(number)),
            _ => Some(part.into_iter().collect::<Units>().into()),
        }
    }

    /// Checks the actual cost of work. It may be nothing, and units that it does not name stay as they are.
    ///
    /// # Errors
    /// `cost_invalid` for a number that is out of range, and for a unit that the policy does not count.
    pub(super) fn check_actual(&self, policy: &Policy) -> Result<()> {
        self.units.check(policy)?;
        if self.units.0.is_none() && policy.limits().iter().all(|limit| limit.unit().is_some()) {
            return Err(not_counted(policy, self.number));
        }
        if self.number > MAX_SAFE_INTEGER { valid_cost(self.number).map(drop) } else { Ok(()) }
    }
}

/// No other type of number converts, so that number literals in code are of this type.
impl From<u64> for Cost {
    fn from(number: u64) -> Self {
        Self::of(number)
    }
}

impl From<Units> for Cost {
    fn from(units: Units) -> Self {
        Self { number: 1, units }
    }
}

impl<const N: usize> From<[(&str, u64); N]> for Cost {
    fn from(units: [(&str, u64); N]) -> Self {
        Units::from(units).into()
    }
}

/// The units that a call takes of the limits of a policy.
pub(super) struct Taken {
    /// For limits that name no unit.
    pub(super) cost: u64,
    /// For each limit. Empty if that is the cost for all.
    pub(super) amounts: Amounts,
}

impl Taken {
    /// # Errors
    /// `cost_invalid` for a number that is out of range, for a unit that the policy counts and the call does not name,
    /// and for one that the call names and the policy does not count.
    #[inline]
    pub(super) fn of(number: u64, units: &Units, class: Option<&str>, plan: &Plan) -> Result<Self> {
        if units.0.is_none() && !plan.has_units && class.is_none() {
            return Ok(Self { cost: valid_cost(number)?, amounts: Amounts::new() });
        }
        Self::of_each(number, units, class, &plan.policy)
    }

    #[cold]
    fn of_each(number: u64, units: &Units, class: Option<&str>, policy: &Policy) -> Result<Self> {
        let part = class.map(|class| part_of(class, policy)).transpose()?;
        let limits = policy.limits();
        let cost = units.get(is_cost);
        let counts_cost = limits.iter().any(|limit| limit.unit().is_none());
        units.check(policy)?;
        if cost.is_none() && (number != 1 || units.0.is_none()) && counts_cost {
            valid_cost(number)?;
        } else if number != 1 && !counts_cost {
            return Err(not_counted(policy, number));
        }
        let cost = cost.unwrap_or(number);
        let amounts = limits.iter().map(|limit| match limit.unit() {
            None => Ok(Amount::of(cost)),
            Some(unit) => match units.get(|name| unit.is(name)) {
                Some(units) => Ok(Amount::of(units)),
                None if unit.is(Unit::REQUESTS) => Ok(Amount::of(1)),
                None => Err(invalid(
                    policy,
                    &format!(
                        "counts {unit}, and the call does not say how many: give a cost by names, {unit} among them"
                    ),
                )),
            },
        });
        let mut amounts = amounts.collect::<Result<Amounts>>()?;
        if let Some(part) = part {
            amounts.iter_mut().zip(limits).for_each(|(amount, limit)| amount.reserve = part.of(limit.capacity()));
        }
        let is_plain = cost > 0 && amounts.iter().all(|amount| *amount == Amount::of(cost));
        Ok(Self { cost, amounts: if is_plain { Amounts::new() } else { amounts } })
    }
}

fn counts(policy: &Policy, name: &str) -> bool {
    policy.limits().iter().any(|limit| is_name_of(name, limit))
}

fn is_name_of(name: &str, limit: &Limit) -> bool {
    limit.unit().map_or_else(|| is_cost(name), |unit| unit.is(name))
}

fn check_units(name: &str, units: u64, policy: &Policy) -> Result<()> {
    if units > MAX_SAFE_INTEGER {
        return Err(invalid(policy, &format!("cannot count {units} {name}: a number is at most 2^53 - 1")));
    }
    Ok(())
}

/// The part of each limit that calls of a class leave free.
fn part_of(class: &str, policy: &Policy) -> Result<CapacityPart> {
    let name = policy.name();
    match &policy.options().priorities {
        Some(priorities) => priorities.part_of(class, name),
        None => Err(Error::config(format!(
            "priority: {name:?} has no classes; declare them with its option priorities, as in `{{batch: 30%}}`"
        ))),
    }
}

fn invalid(policy: &Policy, text: &str) -> Error {
    Error::new(ErrorKind::CostInvalid, format!("{:?} {text}", policy.name()))
}

/// The error for a number that no limit counts.
fn not_counted(policy: &Policy, number: u64) -> Error {
    invalid(policy, &format!("has no limit for a cost of {number}: it counts {}; name the unit", counted(policy)))
}

/// The number of a cost, or else its units.
///
/// # Errors
/// The units.
pub fn number_or_units(cost: &Cost) -> std::result::Result<u64, &Units> {
    if cost.is_number() { Ok(cost.number) } else { Err(&cost.units) }
}

/// The shares of several policies in a cost by units. A policy that counts none of the units has none, and takes one unit.
///
/// # Errors
/// `cost_invalid` for a unit that none of them counts, and for a number that is out of range.
pub fn shared_cost(cost: &Cost, policies: &[&Policy]) -> Result<Vec<Option<Cost>>> {
    cost.check_counted(policies.iter().copied())?;
    Ok(policies.iter().map(|policy| cost.part_of(policy, true)).collect())
}

/// Checks that calls of that cost may be made with a policy.
///
/// # Errors
/// `cost_invalid`, as a call would answer.
pub fn check_cost(policy: &Policy, cost: &Cost) -> Result<()> {
    Taken::of_each(cost.number, &cost.units, None, policy).map(drop)
}

/// The names that a map of units may have for a policy, in words.
fn counted(policy: &Policy) -> String {
    let mut names: Vec<&str> = Vec::new();
    for limit in policy.limits() {
        let name = limit.unit().map_or(COST, Unit::name);
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names.join(", ")
}

/// # Errors
/// `cost_invalid` for a cost that is out of range.
#[inline]
pub(crate) fn valid_cost(cost: u64) -> Result<u64> {
    if cost == 0 || cost > MAX_SAFE_INTEGER {
        return Err(Error::new(
            ErrorKind::CostInvalid,
            format!("a cost of {cost} is out of range: it must be a whole number from 1 to 2^53 - 1"),
        ));
    }
    Ok(cost)
}
