//! Costs that several policies share, and the actual costs of work, from JavaScript.

use std::collections::HashMap;

use napi::bindgen_prelude::Either;
use napi_derive::napi;
use tidegate::host::{ActualCosts, number_or_units};
use tidegate::{Cost, Result};

use crate::number;

/// A number, or numbers by the names of units.
#[napi]
#[allow(unreachable_pub, reason = "its type for TypeScript is exported")]
pub type GivenCost = Either<f64, HashMap<String, f64>>;

/// An entry that was charged.
#[napi(object)]
pub struct SettledEntry {
    pub policy: u32,
    pub given: String,
    pub names_cost: bool,
}

/// The actual costs in the argument of a `settle`: one, one for each entry, or one for each name.
pub(crate) fn actual_costs(
    costs: Vec<Option<GivenCost>>,
    names: Option<Vec<String>>,
    is_one: bool,
) -> Result<ActualCosts> {
    let costs = costs.into_iter().map(|cost| cost.map(from_js).transpose());
    let mut costs = costs.collect::<Result<Vec<_>>>()?;
    Ok(match names {
        Some(names) => ActualCosts::Named(names.into_iter().zip(costs).collect()),
        None => match costs.pop_if(|_| is_one).flatten() {
            Some(one) => ActualCosts::One(one),
            None => ActualCosts::Each(costs),
        },
    })
}

fn from_js(given: GivenCost) -> Result<Cost> {
    match given {
        Either::A(cost) => number::cost_of(cost, None),
        Either::B(units) => number::cost_of(1.0, Some(units)),
    }
}

pub(crate) fn to_js(costs: impl IntoIterator<Item = Option<Cost>>) -> Vec<Option<GivenCost>> {
    let to_js = |cost: Cost| match number_or_units(&cost) {
        Ok(number) => Either::A(number as f64),
        Err(units) => Either::B(units.iter().map(|(name, number)| (name.to_owned(), number as f64)).collect()),
    };
    costs.into_iter().map(|cost| cost.map(to_js)).collect()
}
