//! What the entries of a Decision should have consumed, as Python says it.

use pyo3::prelude::*;
use pyo3::types::{PyList, PyMapping, PyTuple};
use tidegate::{AsyncLimiter, Decision, Error, ErrorKind, Limiter};

use crate::convert::{cost, utf8};
use crate::error::raise;

pub(crate) enum ActualCosts {
    One(u64),
    /// `None` leaves an entry as it is.
    Each(Vec<Option<u64>>),
}

impl ActualCosts {
    pub(crate) fn of(decision: &Decision, given: &Bound<'_, PyAny>) -> PyResult<Self> {
        if let Ok(by_name) = given.cast::<PyMapping>() {
            return Self::by_name(decision, by_name);
        }
        if given.is_instance_of::<PyList>() || given.is_instance_of::<PyTuple>() {
            return given.try_iter()?.map(|given| optional(&given?)).collect::<PyResult<_>>().map(Self::Each);
        }
        cost(given).map(Self::One)
    }

    pub(crate) fn settle(&self, limiter: &Limiter, decision: &Decision) -> tidegate::Result<()> {
        match self {
            Self::One(cost) => limiter.settle(decision, *cost),
            Self::Each(costs) => limiter.settle_each(decision, costs),
        }
    }

    pub(crate) async fn settle_awaited(&self, limiter: &AsyncLimiter, decision: &Decision) -> tidegate::Result<()> {
        match self {
            Self::One(cost) => limiter.settle(decision, *cost).await,
            Self::Each(costs) => limiter.settle_each(decision, costs).await,
        }
    }

    fn by_name(decision: &Decision, by_name: &Bound<'_, PyMapping>) -> PyResult<Self> {
        let parts = decision.decisions();
        let entries = if parts.is_empty() { std::slice::from_ref(decision) } else { parts };
        let mut each = vec![None; entries.len()];
        for item in by_name.items()?.iter() {
            let (name, actual): (Bound<'_, PyAny>, Bound<'_, PyAny>) = item.extract()?;
            let (name, actual) = (utf8(name.cast()?)?.to_owned(), optional(&actual)?);
            let meant = entries.iter().zip(&mut each).filter(|(entry, _)| entry.policy() == name);
            if meant.map(|(_, cost)| *cost = actual).count() == 0 {
                let names: Vec<String> = entries.iter().map(|entry| format!("{:?}", entry.policy())).collect();
                return Err(raise(Error::new(
                    ErrorKind::CostInvalid,
                    format!(
                        "settle was given a number for {name:?}, which is no policy of the Decision: it has {}",
                        names.join(", ")
                    ),
                )));
            }
        }
        Ok(Self::Each(each))
    }
}

fn optional(given: &Bound<'_, PyAny>) -> PyResult<Option<u64>> {
    if given.is_none() { Ok(None) } else { cost(given).map(Some) }
}
