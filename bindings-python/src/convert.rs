//! Converts Python's arguments to values of the core, and times of the core to Python's.

use std::path::PathBuf;
use std::time::Duration;

use pyo3::exceptions::{PyStopIteration, PyTypeError, PyUnicodeError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyDelta, PyInt, PyMapping, PyString};
use tidegate::host::Outcome;
use tidegate::{Cost, Error, ErrorKind, Period, Units};

use crate::error::{config, raise};

/// Describes a wrong argument for messages: `shown` of `tidegate/_shown.py`.
pub(crate) fn shown(given: &Bound<'_, PyAny>) -> String {
    say("shown", given)
}

/// A text in quotes, for messages and `repr`: `shortened` of `tidegate/_shown.py`.
pub(crate) fn shortened(py: Python<'_>, text: &str) -> String {
    say("shortened", PyString::new(py, text).as_any())
}

fn say(function: &str, given: &Bound<'_, PyAny>) -> String {
    let module = given.py().import("tidegate._shown");
    let text = module.and_then(|module| module.call_method1(function, (given,)));
    text.map_or_else(|_| "something".to_owned(), |text| text.to_string())
}

/// A text argument as UTF-8. A Python text may have half a surrogate pair, which UTF-8 cannot express.
pub(crate) fn text<'a>(given: &'a Bound<'_, PyString>, kind: ErrorKind, what: &str) -> PyResult<&'a str> {
    let wrong = || format!("{what} {} has half a surrogate pair: it cannot be written as UTF-8", shown(given));
    // Python's error would be of another class, and carry the whole text.
    given.to_str().map_err(|_| raise(Error::new(kind, wrong())))
}

/// A copy of a text. Anything else raises `TypeError`.
pub(crate) fn owned_text(given: &Bound<'_, PyAny>, kind: ErrorKind, what: &str) -> PyResult<String> {
    let wrong = || PyTypeError::new_err(format!("{what} must be text (str), not {}", shown(given)));
    text(given.cast::<PyString>().map_err(|_| wrong())?, kind, what).map(str::to_owned)
}

/// The URL of a store. The error does not show it, because it may have a password.
pub(crate) fn store_url<'a>(url: &'a Bound<'_, PyString>) -> PyResult<&'a str> {
    url.to_str().map_err(|_| config("the store URL has half a surrogate pair: it cannot be written as UTF-8"))
}

/// The path of a policy file.
pub(crate) fn path(given: &Bound<'_, PyAny>) -> PyResult<PathBuf> {
    let unicode = |error: &PyErr| error.is_instance_of::<PyUnicodeError>(given.py());
    given.extract().map_err(|error: PyErr| match unicode(&error) {
        true => crate::error::policy("the path of the policy file has half a surrogate pair: there is no such file"),
        false => error,
    })
}

pub(crate) struct Key<'py>(pub(crate) Bound<'py, PyString>);

impl<'py> FromPyObject<'_, 'py> for Key<'py> {
    type Error = PyErr;

    #[inline]
    fn extract(given: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        key(&given).map(Self)
    }
}

fn not_a_cost(given: &Bound<'_, PyAny>) -> PyErr {
    let message = format!("a cost of {} is not valid: it must be a whole number from 1 to 2^53 - 1", shown(given));
    raise(Error::new(ErrorKind::CostInvalid, message))
}

pub(crate) fn not_units(name: &str, given: &Bound<'_, PyAny>) -> PyErr {
    let name = shortened(given.py(), name);
    let message =
        format!("a cost of {} {name} is not valid: it must be a whole number from 0 to 2^53 - 1", shown(given));
    raise(Error::new(ErrorKind::CostInvalid, message))
}

/// A whole number. The core checks its range. `True` does not count as 1.
#[inline]
pub(crate) fn whole_number(given: &Bound<'_, PyAny>) -> PyResult<u64> {
    if let Ok(number) = given.cast_exact::<PyInt>() {
        return number.extract().map_err(|_| not_a_cost(given));
    }
    // Whole numbers from other libraries.
    if given.is_instance_of::<PyBool>() || given.is_none() {
        return Err(not_a_cost(given));
    }
    let index = given.call_method0(pyo3::intern!(given.py(), "__index__")).map_err(|_| not_a_cost(given))?;
    index.extract().map_err(|_| not_a_cost(given))
}

/// The cost of a call: a whole number, or numbers by the names of units.
#[inline]
pub(crate) fn cost(given: &Bound<'_, PyAny>) -> PyResult<Cost> {
    if let Ok(number) = given.cast_exact::<PyInt>() {
        return number.extract::<u64>().map(Cost::from).map_err(|_| not_a_cost(given));
    }
    match given.cast::<PyMapping>() {
        Ok(units) => self::units(units).map(Cost::from),
        Err(_) => whole_number(given).map(Cost::from),
    }
}

/// Numbers by the names of units.
fn units(given: &Bound<'_, PyMapping>) -> PyResult<Units> {
    let of_item = |item: Bound<'_, PyAny>| {
        let (name, number): (Bound<'_, PyAny>, Bound<'_, PyAny>) = item.extract()?;
        let name = owned_text(&name, ErrorKind::CostInvalid, "the name of a unit")?;
        let number = whole_number(&number).map_err(|_| not_units(&name, &number))?;
        Ok((name, number))
    };
    given.items()?.iter().map(of_item).collect()
}

/// A key, which must be text.
#[inline]
pub(crate) fn key<'py>(given: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyString>> {
    match given.cast::<PyString>() {
        Ok(text) => Ok(text.clone()),
        Err(_) => Err(not_a_key(format!("a key must be text (str), not {}", shown(given)))),
    }
}

pub(crate) fn not_a_key(message: String) -> PyErr {
    raise(Error::new(ErrorKind::KeyInvalid, message))
}

#[inline]
pub(crate) fn utf8<'a>(key: &'a Bound<'_, PyString>) -> PyResult<&'a str> {
    text(key, ErrorKind::KeyInvalid, "the key")
}

/// The name of a class of calls.
pub(crate) fn priority(given: &Bound<'_, PyAny>) -> PyResult<Option<String>> {
    if given.is_none() {
        return Ok(None);
    }
    owned_text(given, ErrorKind::ConfigInvalid, "priority").map(Some)
}

/// The metadata of a check: bytes, or text as UTF-8.
pub(crate) fn meta(given: &Bound<'_, PyAny>) -> PyResult<Option<Vec<u8>>> {
    if given.is_none() {
        return Ok(None);
    }
    if let Ok(text) = given.cast::<PyString>() {
        return Ok(Some(self::text(text, ErrorKind::ConfigInvalid, "the metadata")?.as_bytes().to_vec()));
    }
    match given.cast::<PyBytes>() {
        Ok(bytes) => Ok(Some(bytes.as_bytes().to_vec())),
        Err(_) => Err(PyTypeError::new_err(format!("meta must be str or bytes, not {}", shown(given)))),
    }
}

fn seconds_of(given: &Bound<'_, PyAny>) -> Option<f64> {
    // A text is a duration with a unit, never a number of seconds.
    if given.is_instance_of::<PyString>() || given.is_instance_of::<PyBool>() {
        return None;
    }
    given.extract().ok().or_else(|| timedelta_seconds(given))
}

pub(crate) fn timedelta_seconds(given: &Bound<'_, PyAny>) -> Option<f64> {
    given.cast::<PyDelta>().ok()?.call_method0("total_seconds").ok()?.extract().ok()
}

/// Microseconds of a number of seconds, rounded to the nearest.
fn micros(seconds: f64) -> Option<u64> {
    let micros = (seconds * 1e6).round();
    (micros.is_finite() && (0.0..=9_007_199_254_740_991.0).contains(&micros)).then_some(micros as u64)
}

/// A length of time, as a number of seconds from 0 on.
pub(crate) fn seconds(given: &Bound<'_, PyAny>) -> PyResult<Duration> {
    let wrong = || {
        config(format!("{} is not a length of time: give a number of seconds from 0 on, or a timedelta", shown(given)))
    };
    seconds_of(given).and_then(micros).map(Duration::from_micros).ok_or_else(wrong)
}

/// A whole number from 0 on, or nothing. `True` is no number.
pub(crate) fn whole(given: &Bound<'_, PyAny>) -> Option<u64> {
    if given.is_instance_of::<PyBool>() { None } else { given.extract().ok() }
}

/// A number for the option or argument of this name. `True` is no number.
pub(crate) fn number(name: &str, given: &Bound<'_, PyAny>) -> PyResult<f64> {
    let number = if given.is_instance_of::<PyBool>() { None } else { given.extract().ok() };
    number.ok_or_else(|| PyTypeError::new_err(format!("argument '{name}' must be a number, not {}", shown(given))))
}

/// A length of time from a number of seconds, from 0 on.
pub(crate) fn named_seconds(name: &str, number: f64) -> PyResult<Duration> {
    let wrong = || config(format!("{name} must be a number of seconds from 0 on, not {number:?}"));
    micros(number).map(Duration::from_micros).ok_or_else(wrong)
}

/// The percentage of a rollout. The core checks its range.
pub(crate) fn percent(given: &Bound<'_, PyAny>) -> PyResult<f64> {
    number("percent", given)
}

/// A length of time, or None.
pub(crate) fn optional_seconds(given: &Bound<'_, PyAny>) -> PyResult<Option<Duration>> {
    if given.is_none() { Ok(None) } else { seconds(given).map(Some) }
}

/// A length of time: a number of seconds, or a text such as `10m`.
pub(crate) fn length(given: &Bound<'_, PyAny>) -> PyResult<Duration> {
    match given.cast::<PyString>() {
        Ok(text) => {
            let text = self::text(text, ErrorKind::PolicyInvalid, "the length of time")?;
            Ok(Duration::from_micros(text.parse::<Period>().map_err(raise)?.micros()))
        }
        Err(_) => seconds(given),
    }
}

/// A period of a limit: a number of seconds, or a text such as `10m` or `month`.
pub(crate) fn period(given: &Bound<'_, PyAny>) -> PyResult<Period> {
    if let Ok(text) = given.cast::<PyString>() {
        let text = self::text(text, ErrorKind::PolicyInvalid, "the period")?;
        return text.parse().map_err(|error| crate::error::raise_about(error, Some(text)));
    }
    let wrong = || {
        crate::error::policy(format!(
            "{} is not a period: give a number of seconds, a timedelta, or a text such as \"10m\" or \"month\"",
            shown(given)
        ))
    };
    let micros = seconds_of(given).and_then(micros).ok_or_else(wrong)?;
    Period::from_micros(micros).map_err(raise)
}

/// The error of a call that has no argument with that name.
pub(crate) fn unexpected(function: &str, name: &str) -> PyErr {
    PyTypeError::new_err(format!("{function} got an unexpected keyword argument '{name}'"))
}

/// The value of an option. A wrong type raises the same error as for any argument.
pub(crate) fn argument<'py, T>(name: &str, value: &Bound<'py, PyAny>) -> PyResult<T>
where
    T: for<'a> FromPyObject<'a, 'py>,
{
    value
        .extract()
        .map_err(Into::into)
        .map_err(|error: PyErr| PyTypeError::new_err(format!("argument '{name}': {}", error.value(value.py()))))
}

/// The result of the `AsyncLimiter` calls that return nothing.
pub(crate) fn none_from_outcome(py: Python<'_>, _: Outcome) -> PyResult<Py<PyAny>> {
    Ok(py.None())
}

/// The exception that an iterator raises to return an answer. That is never a tuple, which would become its arguments.
#[inline]
pub(crate) fn returned(answer: Py<PyAny>) -> PyErr {
    PyStopIteration::new_err(answer)
}

/// A length of time as a Python number of seconds.
#[inline]
pub(crate) fn in_seconds(length: Duration) -> f64 {
    // Divides whole microseconds, so that the result is the nearest float to the decimal number.
    length.as_micros() as f64 / 1e6
}

/// A dict of the fields of an object, each under its name.
macro_rules! dict_of {
    ($py:expr, $object:expr, $($field:ident)+) => {{
        let dict = pyo3::types::PyDict::new($py);
        $(dict.set_item(stringify!($field), $object.$field())?;)+
        dict
    }};
}

pub(crate) use dict_of;
