//! Costs that several policies share, and the actual costs of work, from Python.

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyMapping, PyTuple};
use tidegate::host::{ActualCosts, ChargedEntry, number_or_units};
use tidegate::{Cost, ErrorKind};

use crate::convert::{cost, not_units, owned_text, whole_number};
use crate::error::raise;
use crate::policy::Policy;

/// The actual costs that the argument of a `settle` gives.
pub(crate) fn actual_costs(given: &Bound<'_, PyAny>) -> PyResult<ActualCosts> {
    if let Ok(by_name) = given.cast::<PyMapping>() {
        let items = by_name.items()?;
        return items.iter().map(|item| named(&item)).collect::<PyResult<_>>().map(ActualCosts::Named);
    }
    if given.is_instance_of::<PyList>() || given.is_instance_of::<PyTuple>() {
        return given.try_iter()?.map(|given| optional(&given?)).collect::<PyResult<_>>().map(ActualCosts::Each);
    }
    cost(given).map(ActualCosts::One)
}

fn named(item: &Bound<'_, PyAny>) -> PyResult<(String, Option<Cost>)> {
    let (name, given): (Bound<'_, PyAny>, Bound<'_, PyAny>) = item.extract()?;
    let name = owned_text(&name, ErrorKind::CostInvalid, "the name of a policy or a unit")?;
    if given.is_none() || given.cast::<PyMapping>().is_ok() {
        return Ok((name, optional(&given)?));
    }
    let number = whole_number(&given).map_err(|_| not_units(&name, &given))?;
    Ok((name, Some(number.into())))
}

fn optional(given: &Bound<'_, PyAny>) -> PyResult<Option<Cost>> {
    if given.is_none() { Ok(None) } else { cost(given).map(Some) }
}

/// Returns the share of each policy in the cost that they share: the units that it counts, or 1.
#[pyfunction]
#[pyo3(signature = (policies: "list[Policy]", cost: "Mapping[str, int]") -> "list[int | dict[str, int]]")]
pub(crate) fn shared_cost<'py>(
    py: Python<'py>,
    policies: Vec<Bound<'py, Policy>>,
    #[pyo3(from_py_with = cost)] cost: Cost,
) -> PyResult<Vec<Bound<'py, PyAny>>> {
    let policies: Vec<&tidegate::Policy> = policies.iter().map(|policy| &policy.get().inner).collect();
    let shares = tidegate::host::shared_cost(&cost, &policies).map_err(raise)?;
    shares.iter().map(|share| to_python(py, share.as_ref().unwrap_or(&Cost::from(1)))).collect()
}

/// Returns the actual cost of each of several charged entries, a policy and if its call named a cost. None leaves an entry as it is.
#[pyfunction]
#[pyo3(signature = (
    entries: "list[tuple[Policy, bool]]",
    actual: "int | Sequence[int | Mapping[str, int] | None] | Mapping[str, int | Mapping[str, int] | None]"
) -> "list[int | dict[str, int] | None]")]
pub(crate) fn costs_of_entries<'py>(
    py: Python<'py>,
    entries: Vec<(Bound<'py, Policy>, bool)>,
    actual: &Bound<'py, PyAny>,
) -> PyResult<Vec<Option<Bound<'py, PyAny>>>> {
    let charged = entries.iter().map(|(policy, names_cost)| {
        let policy = &policy.get().inner;
        ChargedEntry { policy, given: policy.name(), names_cost: *names_cost }
    });
    let charged: Vec<_> = charged.collect();
    let costs = actual_costs(actual)?.of_entries(&charged).map_err(raise)?;
    costs.iter().map(|cost| cost.as_ref().map(|cost| to_python(py, cost)).transpose()).collect()
}

fn to_python<'py>(py: Python<'py>, cost: &Cost) -> PyResult<Bound<'py, PyAny>> {
    match number_or_units(cost) {
        Ok(number) => Ok(number.into_pyobject(py)?.into_any()),
        Err(units) => {
            let dict = PyDict::new(py);
            units.iter().try_for_each(|(name, number)| dict.set_item(name, number))?;
            Ok(dict.into_any())
        }
    }
}
