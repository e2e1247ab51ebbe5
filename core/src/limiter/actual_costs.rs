//! Shares the actual cost of work among the entries that were charged for it.

use smallvec::SmallVec;

use super::cost::{Cost, Units};
use crate::decision::Decision;
use crate::error::{Error, ErrorKind, Result};
use crate::plan::Plan;
use crate::policy::{Algorithm, Policy};

/// An entry that was charged.
#[derive(Debug, Clone, Copy)]
pub struct ChargedEntry<'a> {
    /// Its policy, without an override.
    pub policy: &'a Policy,
    /// The notation that its place was given, or the policy's name.
    pub given: &'a str,
    /// True if its call named a cost, and false if it counts the request.
    pub names_cost: bool,
}

impl<'a> ChargedEntry<'a> {
    pub(super) fn of(entry: &'a Decision) -> Self {
        let policy = &Plan::base(entry.plan()).policy;
        let names_cost = entry.cost() != 1 || !entry.answer().amounts().is_empty();
        Self { policy, given: policy.name(), names_cost }
    }

    fn is_named(&self, name: &str) -> bool {
        self.policy.name() == name || self.given == name
    }

    /// False if a hold gives back all its units.
    fn can_be_settled(&self) -> bool {
        self.policy.limits().iter().any(|limit| limit.algorithm() != Algorithm::Concurrency)
    }
}

/// The actual cost of each entry. `None` leaves an entry as it is.
pub(super) type EntryCosts = SmallVec<[Option<Cost>; 1]>;

/// The actual cost of work, as an application gives it.
#[derive(Debug, Clone)]
pub enum ActualCosts {
    /// A number is for the entries whose call named a cost, or for all if none did. Units go to the entries that count them.
    One(Cost),
    /// A cost for each entry.
    Each(Vec<Option<Cost>>),
    /// Costs by the names of policies. If none of these is a policy of an entry, they are numbers by the names of units.
    Named(Vec<(String, Option<Cost>)>),
}

impl ActualCosts {
    /// A cost for each entry, in any form.
    pub(super) fn each(costs: &[Option<impl Into<Cost> + Clone>]) -> Self {
        Self::Each(costs.iter().map(|cost| cost.clone().map(Into::into)).collect())
    }

    /// The costs of the entries.
    ///
    /// # Errors
    /// `cost_invalid`.
    pub fn of_entries(self, entries: &[ChargedEntry<'_>]) -> Result<EntryCosts> {
        let costs = match self {
            Self::One(cost) => shared(&cost, entries)?,
            Self::Each(costs) if costs.len() == entries.len() => costs.into(),
            Self::Each(costs) => {
                let (given, count) = (costs.len(), entries.len());
                return Err(invalid(format!(
                    "settle was given {given} numbers for a Decision of {count} entries: give one number for each"
                )));
            }
            Self::Named(costs) if names_units(&costs, entries) => shared(&units(&costs)?.into(), entries)?,
            Self::Named(costs) => by_policy(&costs, entries)?,
        };
        for (entry, cost) in entries.iter().zip(&costs) {
            cost.iter().try_for_each(|cost| cost.check_actual(entry.policy))?;
        }
        Ok(costs)
    }
}

fn shared(cost: &Cost, entries: &[ChargedEntry<'_>]) -> Result<EntryCosts> {
    if entries.len() == 1 {
        return Ok(EntryCosts::from_iter([Some(cost.clone())]));
    }
    cost.check_counted(entries.iter().map(|entry| entry.policy))?;
    let are_named = entries.iter().any(|entry| entry.can_be_settled() && entry.names_cost);
    let share = |entry: &ChargedEntry<'_>| {
        let is_meant = entry.can_be_settled() && (entry.names_cost || !are_named);
        if cost.is_number() { is_meant.then(|| cost.clone()) } else { cost.part_of(entry.policy, is_meant) }
    };
    Ok(entries.iter().map(share).collect())
}

/// True if the names are those of units: some entry counts units, and no name is that of a policy.
fn names_units(costs: &[(String, Option<Cost>)], entries: &[ChargedEntry<'_>]) -> bool {
    entries.iter().any(|entry| entry.policy.limits().iter().any(|limit| limit.unit().is_some()))
        && !costs.iter().any(|(name, _)| entries.iter().any(|entry| entry.is_named(name)))
}

fn units(costs: &[(String, Option<Cost>)]) -> Result<Units> {
    let number = |(name, cost): &(String, Option<Cost>)| {
        let number = cost.as_ref().filter(|cost| cost.is_number()).and_then(Cost::unnamed);
        let wrong = || invalid(format!("settle was given no number for the unit {name:?}: give it a whole number"));
        Ok((name.clone(), number.ok_or_else(wrong)?))
    };
    costs.iter().map(number).collect()
}

fn by_policy(costs: &[(String, Option<Cost>)], entries: &[ChargedEntry<'_>]) -> Result<EntryCosts> {
    let mut each: EntryCosts = entries.iter().map(|_| None).collect();
    for (name, cost) in costs {
        let about = entries.iter().zip(&mut each).filter(|(entry, _)| entry.is_named(name));
        if about.map(|(_, of_entry)| of_entry.clone_from(cost)).count() == 0 {
            let names: Vec<String> = entries.iter().map(|entry| format!("{:?}", entry.policy.name())).collect();
            return Err(invalid(format!(
                "settle was given a number for {name:?}, which is not a policy of the Decision: it has {}",
                names.join(", ")
            )));
        }
    }
    Ok(each)
}

fn invalid(text: String) -> Error {
    Error::new(ErrorKind::CostInvalid, text)
}
