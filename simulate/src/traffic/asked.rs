//! The options of a call beside its cost: numbers of named units, and a class.

use std::borrow::Cow;
use std::sync::Arc;

use tidegate::{Result, Unit};

use super::Event;
use crate::errors::invalid;

/// The largest number of units that a call may have.
const MAX_UNITS: u64 = (1 << 53) - 1;
/// The field or the column with the class of a call.
pub(crate) const CLASS_FIELD: &str = "priority";

/// The named units and the class of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Asked {
    pub(crate) units: Vec<(Unit, u64)>,
    pub(crate) class: Option<String>,
}

impl Event {
    /// The calls of a pattern, with the texts of `--cost` and `--priority`.
    ///
    /// # Errors
    /// `config_invalid` for a cost that is no number.
    pub fn new(cost: Option<&str>, class: Option<String>) -> Result<Self> {
        let (cost, units) =
            cost.map_or(Ok((1, Vec::new())), of_option).map_err(|error| invalid(format!("--cost: {error}")))?;
        let is_plain = units.is_empty() && class.is_none();
        Ok(Self { at: 0, key: 0, cost, asked: (!is_plain).then(|| Arc::new(Asked { units, class })) })
    }

    /// The number that the call takes of this unit. If it does not name the unit, that is its cost, or 1 `requests`.
    pub fn units_of(&self, unit: Option<&Unit>) -> u64 {
        let (Some(asked), Some(unit)) = (&self.asked, unit) else { return self.cost };
        let named = asked.units.iter().find(|(name, _)| name == unit).map(|(_, units)| *units);
        named.unwrap_or(if unit.name() == Unit::REQUESTS { 1 } else { self.cost })
    }

    /// The class of the call.
    pub(crate) fn class(&self) -> Option<&str> {
        self.asked.as_ref()?.class.as_deref()
    }
}

/// The places of the units and the class in a line, which are columns or fields.
#[derive(Debug, Clone)]
pub(crate) struct AskedPlaces<P> {
    pub(crate) units: Vec<(Unit, P)>,
    pub(crate) class: Option<P>,
}

impl<P> AskedPlaces<P> {
    pub(crate) const NONE: Self = Self { units: Vec::new(), class: None };

    pub(crate) const fn is_empty(&self) -> bool {
        self.units.is_empty() && self.class.is_none()
    }

    /// Reads the units and the class of a call from its line. `None` if the line has neither.
    pub(crate) fn read<'a>(
        &self,
        field: impl Fn(&P) -> Result<Option<Cow<'a, str>>, String>,
    ) -> Result<Option<Arc<Asked>>, String> {
        let mut units = Vec::new();
        for (unit, place) in &self.units {
            if let Some(text) = field(place)?.filter(|text| !text.trim().is_empty()) {
                units.push((unit.clone(), number(&text).ok_or_else(|| wrong(&text, unit.name()))?));
            }
        }
        let class = self.class.as_ref().map(field).transpose()?.flatten();
        let class = class.map(|class| class.trim().to_owned()).filter(|class| !class.is_empty());
        Ok((!units.is_empty() || class.is_some()).then(|| Arc::new(Asked { units, class })))
    }
}

/// Parses the cost and the units of each call of a pattern: `5`, or `tokens=1200,cost=2`.
fn of_option(text: &str) -> Result<(u64, Vec<(Unit, u64)>), String> {
    let (mut cost, mut units) = (1, Vec::new());
    for part in text.split(',') {
        let (name, count) = part.split_once('=').map_or(("cost", part), |(name, count)| (name.trim(), count));
        let count = number(count).ok_or_else(|| wrong(count, name))?;
        if name.eq_ignore_ascii_case("cost") {
            cost = count;
        } else {
            units.push((Unit::new(name).map_err(|error| error.message().to_owned())?, count));
        }
    }
    if cost == 0 && units.is_empty() { Err("a call takes at least 1".to_owned()) } else { Ok((cost, units)) }
}

fn number(text: &str) -> Option<u64> {
    text.trim().parse().ok().filter(|units| *units <= MAX_UNITS)
}

fn wrong(text: &str, name: &str) -> String {
    let beginning: String = text.chars().take(60).collect();
    format!("{beginning:?} is not a number of {name}: expected a whole number from 0 to 2^53 - 1")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_takes_what_it_names() {
        let unit = |name: &str| Unit::new(name).expect("a unit");
        let event = |asked| Event { at: 0, key: 0, cost: 3, asked };
        let asked = Asked { units: vec![(unit("tokens"), 1_200)], class: Some("batch".to_owned()) };
        let named = event(Some(Arc::new(asked)));
        let of = |name: &str| named.units_of(Some(&unit(name)));
        assert_eq!((of("tokens"), of("pages"), of("requests"), named.units_of(None)), (1_200, 3, 1, 3));
        assert_eq!((named.class(), event(None).units_of(Some(&unit("tokens")))), (Some("batch"), 3));
        assert_eq!(of_option("5"), Ok((5, Vec::new())));
        assert_eq!(of_option("tokens=1200, cost=2"), Ok((2, vec![(unit("tokens"), 1_200)])));
        for text in ["", "0", "tokens", "tokens=", "tokens=-1", "burst=1", "tokens=1.5"] {
            assert!(of_option(text).is_err(), "{text}");
        }
    }
}
