//! `Limit`.

use pyo3::prelude::*;
use tidegate::{Algorithm, Anchor, ErrorKind, Period, TimeUnit, host};

use crate::convert::{owned_text, period as to_period, shown, whole};
use crate::error::{policy, raise};

/// A limit: `count` units per `period`, counted by an algorithm.
///
/// `period` is a number of seconds or a text such as "10m" or "month". For "concurrency" it is the ttl of holds and may be
/// left out. Only buckets have a `burst`, only token-bucket has `initial`, only sliding-window has a `precision`.
/// With a `unit` it counts that unit, such as "tokens", and a call gives the number. A calendar-window of one day, week, month or year
/// may begin at another moment, `from_="day 15 at 06:00"`, and by the clocks of a time zone, `in_="Europe/Berlin"`.
#[pyclass(module = "tidegate", frozen, eq, hash)]
#[derive(PartialEq, Eq, Hash)]
pub(crate) struct Limit {
    pub(crate) inner: tidegate::Limit,
}

fn to_algorithm(given: &Bound<'_, PyAny>) -> PyResult<Algorithm> {
    let text = owned_text(given, ErrorKind::PolicyInvalid, "the algorithm")?;
    Algorithm::from_name(&text).ok_or_else(|| {
        let known = Algorithm::ALL.map(Algorithm::name).join(", ");
        policy(format!("there is no algorithm {}: use one of {known}", host::quoted(&text)))
    })
}

fn to_number(given: &Bound<'_, PyAny>) -> PyResult<u64> {
    whole(given).ok_or_else(|| policy(format!("{} is not a whole number from 0 on", shown(given))))
}

fn to_optional_number(given: &Bound<'_, PyAny>) -> PyResult<Option<u64>> {
    if given.is_none() { Ok(None) } else { to_number(given).map(Some) }
}

fn to_optional_unit(given: &Bound<'_, PyAny>) -> PyResult<Option<String>> {
    if given.is_none() { Ok(None) } else { owned_text(given, ErrorKind::PolicyInvalid, "the unit").map(Some) }
}

fn to_optional_anchor(given: &Bound<'_, PyAny>) -> PyResult<Option<Anchor>> {
    if given.is_none() {
        return Ok(None);
    }
    owned_text(given, ErrorKind::PolicyInvalid, "from_")?.parse().map(Some).map_err(raise)
}

fn to_optional_zone(given: &Bound<'_, PyAny>) -> PyResult<Option<String>> {
    if given.is_none() { Ok(None) } else { owned_text(given, ErrorKind::PolicyInvalid, "in_").map(Some) }
}

fn to_optional_period(given: &Bound<'_, PyAny>) -> PyResult<Option<Period>> {
    if given.is_none() { Ok(None) } else { to_period(given).map(Some) }
}

#[pymethods]
impl Limit {
    #[new]
    #[allow(clippy::too_many_arguments, reason = "Python gives each by its name")]
    #[pyo3(signature = (
        algorithm: "str", count: "int", period: "float | str | timedelta | None" = None, *, burst: "int | None" = None,
        initial: "int | None" = None, precision: "int | None" = None, unit: "str | None" = None, from_: "str | None" = None, in_: "str | None" = None
    ))]
    fn new(
        #[pyo3(from_py_with = to_algorithm)] algorithm: Algorithm,
        #[pyo3(from_py_with = to_number)] count: u64,
        #[pyo3(from_py_with = to_optional_period)] period: Option<Period>,
        #[pyo3(from_py_with = to_optional_number)] burst: Option<u64>,
        #[pyo3(from_py_with = to_optional_number)] initial: Option<u64>,
        #[pyo3(from_py_with = to_optional_number)] precision: Option<u64>,
        #[pyo3(from_py_with = to_optional_unit)] unit: Option<String>,
        #[pyo3(from_py_with = to_optional_anchor)] from_: Option<Anchor>,
        #[pyo3(from_py_with = to_optional_zone)] in_: Option<String>,
    ) -> PyResult<Self> {
        let period = match period {
            Some(period) => period,
            None if algorithm == Algorithm::Concurrency => host::DEFAULT_TTL,
            None => {
                return Err(policy(format!(
                    "a limit of {algorithm} needs a period: give one, as in period='1 minute'"
                )));
            }
        };
        let mut limit = tidegate::Limit::new(algorithm, count, period).map_err(raise)?;
        if let Some(burst) = burst {
            limit = limit.with_burst(burst).map_err(raise)?;
        }
        if let Some(initial) = initial {
            limit = limit.with_initial(initial).map_err(raise)?;
        }
        if let Some(precision) = precision {
            limit = limit.with_precision(u32::try_from(precision).unwrap_or(u32::MAX)).map_err(raise)?;
        }
        if let Some(unit) = unit {
            limit = limit.with_unit(&unit).map_err(raise)?;
        }
        if let Some(anchor) = from_ {
            limit = limit.with_anchor(anchor).map_err(raise)?;
        }
        if let Some(zone) = in_ {
            limit = limit.with_zone(&zone).map_err(raise)?;
        }
        Ok(Self { inner: limit })
    }

    /// Its algorithm: "gcra", "sliding-window", …
    #[getter]
    fn algorithm(&self) -> &'static str {
        self.inner.algorithm().name()
    }

    /// Units per period.
    #[getter]
    fn count(&self) -> u64 {
        self.inner.count()
    }

    /// The period in seconds, with months of 30 and years of 360 days. For "concurrency", the ttl of holds.
    #[getter]
    fn period(&self) -> f64 {
        self.inner.period().micros() as f64 / 1e6
    }

    /// The burst, if one was given.
    #[getter]
    fn burst(&self) -> Option<u64> {
        self.inner.burst()
    }

    /// The tokens that a token-bucket starts with, if they were given.
    #[getter]
    fn initial(&self) -> Option<u64> {
        self.inner.initial()
    }

    /// The granules of a sliding-window, else None.
    #[getter]
    fn precision(&self) -> Option<u32> {
        (self.inner.algorithm() == Algorithm::SlidingWindow).then(|| self.inner.precision())
    }

    /// The unit that it counts, if it has one. A call gives the number of them.
    #[getter]
    fn unit(&self) -> Option<&str> {
        self.inner.unit().map(tidegate::Unit::name)
    }

    /// The moment of its period at which each window begins, such as "day 15 at 06:00". None for the beginning of the period.
    #[getter]
    fn from_(&self) -> Option<String> {
        self.inner.anchor().map(ToString::to_string)
    }

    /// The time zone of its windows. None for UTC.
    #[getter]
    fn in_(&self) -> Option<&str> {
        self.inner.zone()
    }

    /// The most units that it ever admits at once.
    #[getter]
    fn capacity(&self) -> u64 {
        self.inner.capacity()
    }

    /// The notation, such as "gcra 100/s burst 200".
    fn __str__(&self) -> String {
        self.inner.to_string()
    }

    fn __repr__(&self) -> String {
        let limit = &self.inner;
        let mut text = format!("Limit('{}', {}, {}", limit.algorithm(), limit.count(), self.written_period());
        if let Some(burst) = limit.burst() {
            text += &format!(", burst={burst}");
        }
        if let Some(initial) = limit.initial() {
            text += &format!(", initial={initial}");
        }
        if self.precision().is_some_and(|precision| precision != tidegate::policy::DEFAULT_PRECISION) {
            text += &format!(", precision={}", limit.precision());
        }
        if let Some(unit) = self.unit() {
            text += &format!(", unit='{unit}'");
        }
        if let Some(anchor) = limit.anchor() {
            text += &format!(", from_='{anchor}'");
        }
        if let Some(zone) = limit.zone() {
            text += &format!(", in_='{zone}'");
        }
        text + ")"
    }

    #[pyo3(signature = () -> "tuple[object, ...]")]
    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let limit = &self.inner;
        let options = pyo3::types::PyDict::new(py);
        options.set_item("burst", limit.burst())?;
        options.set_item("initial", limit.initial())?;
        options.set_item("precision", self.precision())?;
        options.set_item("unit", self.unit())?;
        options.set_item("from_", self.from_())?;
        options.set_item("in_", self.in_())?;
        // A plain tuple of arguments cannot have keyword options.
        let make = py.import("functools")?.getattr("partial")?.call((py.get_type::<Self>(),), Some(&options))?;
        let period = match limit.period().unit() {
            TimeUnit::Week | TimeUnit::Month | TimeUnit::Year => {
                limit.period().to_string().into_pyobject(py)?.into_any()
            }
            _ => self.period().into_pyobject(py)?.into_any(),
        };
        Ok((make, (self.algorithm(), limit.count(), period)).into_pyobject(py)?.into_any())
    }
}

impl Limit {
    /// The period as an argument: calendar units by name, all others in seconds.
    fn written_period(&self) -> String {
        let period = self.inner.period();
        match period.unit() {
            TimeUnit::Week | TimeUnit::Month | TimeUnit::Year => format!("'{period}'"),
            _ => format!("{:?}", self.period()),
        }
    }
}
