//! The actual costs of the entries of a Decision, from the argument of a `settle` in Python.

use pyo3::prelude::*;
use pyo3::types::{PyList, PyMapping, PyTuple};
use tidegate::{AsyncLimiter, Cost, Decision, Error, ErrorKind, Limiter};

use crate::convert::{cost, utf8};
use crate::error::raise;

pub(crate) enum ActualCosts {
    One(Cost),
    /// `None` leaves an entry as it is.
    Each(Vec<Option<Cost>>),
}

impl ActualCosts {
    pub(crate) fn of(decision: &Decision, given: &Bound<'_, PyAny>) -> PyResult<Self> {
        if let Ok(by_name) = given.cast::<PyMapping>() {
            return if names_units(decision, by_name)? {
                cost(given).map(Self::One)
            } else {
                Self::by_name(decision, by_name)
            };
        }
        if given.is_instance_of::<PyList>() || given.is_instance_of::<PyTuple>() {
            return given.try_iter()?.map(|given| optional(&given?)).collect::<PyResult<_>>().map(Self::Each);
        }
        cost(given).map(Self::One)
    }

    pub(crate) fn settle(&self, limiter: &Limiter, decision: &Decision) -> tidegate::Result<()> {
        match self {
            Self::One(cost) => limiter.settle(decision, cost.clone()),
            Self::Each(costs) => limiter.settle_each(decision, costs),
        }
    }

    pub(crate) async fn settle_awaited(&self, limiter: &AsyncLimiter, decision: &Decision) -> tidegate::Result<()> {
        match self {
            Self::One(cost) => limiter.settle(decision, cost.clone()).await,
            Self::Each(costs) => limiter.settle_each(decision, costs).await,
        }
    }

    fn by_name(decision: &Decision, by_name: &Bound<'_, PyMapping>) -> PyResult<Self> {
        let entries = entries(decision);
        let mut each = vec![None; entries.len()];
        for item in by_name.items()?.iter() {
            let (name, actual): (Bound<'_, PyAny>, Bound<'_, PyAny>) = item.extract()?;
            let (name, actual) = (utf8(name.cast()?)?.to_owned(), optional(&actual)?);
            let meant = entries.iter().zip(&mut each).filter(|(entry, _)| entry.policy() == name);
            if meant.map(|(_, cost)| *cost = actual.clone()).count() == 0 {
                let names: Vec<String> = entries.iter().map(|entry| format!("{:?}", entry.policy())).collect();
                return Err(raise(Error::new(
                    ErrorKind::CostInvalid,
                    format!(
                        "settle was given a number for {name:?}, which is not a policy of the Decision: it has {}",
                        names.join(", ")
                    ),
                )));
            }
        }
        Ok(Self::Each(each))
    }
}

fn entries(decision: &Decision) -> &[Decision] {
    let parts = decision.decisions();
    if parts.is_empty() { std::slice::from_ref(decision) } else { parts }
}

/// True if a dict names units: the Decision's policies count some, and the dict names none of these policies.
fn names_units(decision: &Decision, by_name: &Bound<'_, PyMapping>) -> PyResult<bool> {
    let entries = entries(decision);
    let counts_units = entries.iter().any(tidegate::host::counts_units);
    let is_policy = |name: &Bound<'_, PyAny>| entries.iter().any(|entry| name.eq(entry.policy()).unwrap_or(false));
    Ok(counts_units && !by_name.keys()?.iter().any(|name| is_policy(&name)))
}

fn optional(given: &Bound<'_, PyAny>) -> PyResult<Option<Cost>> {
    if given.is_none() { Ok(None) } else { cost(given).map(Some) }
}
