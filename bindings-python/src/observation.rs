//! `Observation`, and the function that reads Observations from a response.

use std::borrow::Cow;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyString};
use tidegate::http::{MAX_LEARNED_WAIT, ObservationScope, ResponseReader};
use tidegate::policy::Unit;

use crate::convert::{in_seconds, named_seconds, number, optional_seconds, shown};
use crate::error::{config, raise};

/// One limit that a response reports, or a wait that it asks for. A field is None if the response does not have it.
///
///     for observation in Observation.from_headers(response.headers, status=response.status_code):
///         print(observation.limit, observation.remaining, observation.retry_after)
#[pyclass(module = "tidegate.outgoing", frozen, eq)]
#[derive(PartialEq)]
pub(crate) struct Observation {
    inner: tidegate::http::Observation,
}

#[pymethods]
impl Observation {
    #[new]
    #[pyo3(signature = (
        *, name: "str | None" = None, limit: "int | None" = None, window: "float | timedelta | None" = None, unit: "str | None" = None,
        remaining: "int | None" = None, reset_after: "float | timedelta | None" = None, retry_after: "float | timedelta | None" = None,
        scope: "Literal['key', 'all']" = "key"
    ))]
    #[allow(clippy::too_many_arguments, reason = "each is a keyword of the constructor")]
    fn new(
        name: Option<String>,
        limit: Option<u64>,
        #[pyo3(from_py_with = optional_seconds)] window: Option<Duration>,
        unit: Option<&str>,
        remaining: Option<u64>,
        #[pyo3(from_py_with = optional_seconds)] reset_after: Option<Duration>,
        #[pyo3(from_py_with = optional_seconds)] retry_after: Option<Duration>,
        scope: &str,
    ) -> PyResult<Self> {
        let scopes = [ObservationScope::Key, ObservationScope::All];
        let mut inner = tidegate::http::Observation::default();
        inner.scope = scopes
            .into_iter()
            .find(|known| known.name() == scope)
            .ok_or_else(|| config(format!("scope must be 'key' or 'all', not {scope:?}")))?;
        inner.unit = unit.map(Unit::new).transpose().map_err(raise)?;
        (inner.name, inner.limit, inner.remaining) = (name, limit, remaining);
        (inner.window, inner.reset_after, inner.retry_after) = (window, reset_after, retry_after);
        Ok(Self { inner })
    }

    /// Reads the limits in these headers: an Observation for each limit. One with `retry_after` comes first.
    ///
    /// `headers` is a mapping, or pairs of names and values. `date` is the time of the response, in seconds since 1970 or as a
    /// datetime, by default now. If the response has a `Date`, moments go by the clock of the service. `status` shows
    /// if it is a refusal. Give the `body` as it came, which is read for a 403, 429 and 503. No wait is longer than
    /// `max_learned_wait`. Impossible values are ignored.
    #[staticmethod]
    #[pyo3(signature = (headers: "Mapping[str, str] | Mapping[bytes, bytes] | Iterable[tuple[str, str]] | Iterable[tuple[bytes, bytes]]", date: "float | datetime | None" = None, *, status: "int | None" = None, body: "bytes | str | None" = None, max_learned_wait: "float | timedelta | None" = None) -> "list[Observation]")]
    fn from_headers(
        headers: &Bound<'_, PyAny>,
        date: Option<&Bound<'_, PyAny>>,
        status: Option<u16>,
        body: Option<&Bound<'_, PyAny>>,
        #[pyo3(from_py_with = optional_seconds)] max_learned_wait: Option<Duration>,
    ) -> PyResult<Vec<Self>> {
        Ok(read_response(headers, date, status, body, max_learned_wait)?.0)
    }

    /// The name that the response gives the limit: of a policy, a bucket or a resource.
    #[getter]
    fn name(&self) -> Option<&str> {
        self.inner.name.as_deref()
    }

    /// The count of the limit.
    #[getter]
    fn limit(&self) -> Option<u64> {
        self.inner.limit
    }

    /// The seconds for which the count holds.
    #[getter]
    fn window(&self) -> Option<f64> {
        self.inner.window.map(in_seconds)
    }

    /// The unit that the limit counts, such as "tokens".
    #[getter]
    fn unit(&self) -> Option<&str> {
        self.inner.unit.as_ref().map(Unit::name)
    }

    /// The units that are left, never more than `limit`.
    #[getter]
    fn remaining(&self) -> Option<u64> {
        self.inner.remaining
    }

    /// The seconds until the limit is reset, or until more units are left if the response has that. 0 if the moment has passed.
    #[getter]
    fn reset_after(&self) -> Option<f64> {
        self.inner.reset_after.map(in_seconds)
    }

    /// The seconds until the request may be made again.
    #[getter]
    fn retry_after(&self) -> Option<f64> {
        self.inner.retry_after.map(in_seconds)
    }

    /// The scope of `retry_after`: "key" for the key of the request, or "all" for every request to the service.
    #[getter]
    fn scope(&self) -> &'static str {
        self.inner.scope.name()
    }

    /// Its fields as a dict.
    #[pyo3(signature = () -> "dict[str, Any]")]
    fn as_dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let dict = PyDict::new(py);
        dict.set_item("name", self.name())?;
        dict.set_item("limit", self.limit())?;
        dict.set_item("window", self.window())?;
        dict.set_item("unit", self.unit())?;
        dict.set_item("remaining", self.remaining())?;
        dict.set_item("reset_after", self.reset_after())?;
        dict.set_item("retry_after", self.retry_after())?;
        dict.set_item("scope", self.scope())?;
        Ok(dict)
    }

    /// The fields that the response has.
    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let mut fields = Vec::new();
        for (name, value) in self.as_dict(py)? {
            if !value.is_none() {
                fields.push(format!("{}={}", name.cast::<PyString>()?.to_str()?, value.repr()?.to_str()?));
            }
        }
        Ok(format!("Observation({})", fields.join(", ")))
    }
}

/// The argument of `observe`: an Observation or several.
pub(crate) fn observations(given: &Bound<'_, PyAny>) -> PyResult<Vec<tidegate::http::Observation>> {
    let wrong = |given: &Bound<'_, PyAny>| {
        PyTypeError::new_err(format!("argument 'observation' must be an Observation or several, not {}", shown(given)))
    };
    let one = |given: &Bound<'_, PyAny>| Some(given.cast::<Observation>().ok()?.get().inner.clone());
    match one(given) {
        Some(single) => Ok(vec![single]),
        None => {
            let several = given.try_iter().map_err(|_| wrong(given))?;
            several.map(|item| item.and_then(|item| one(&item).ok_or_else(|| wrong(&item)))).collect()
        }
    }
}

/// Returns the Observations of `Observation.from_headers`, the number of values that were not believed, the seconds until the call may be
/// made again if it may, and True if only the body can name that wait.
#[pyfunction]
#[pyo3(signature = (headers: "Mapping[str, str] | Mapping[bytes, bytes] | Iterable[tuple[str, str]] | Iterable[tuple[bytes, bytes]]", date: "float | datetime | None" = None, status: "int | None" = None, body: "bytes | str | None" = None, max_learned_wait: "float | timedelta | None" = None) -> "tuple[list[Observation], int, float | None, bool]")]
pub(crate) fn read_response(
    headers: &Bound<'_, PyAny>,
    date: Option<&Bound<'_, PyAny>>,
    status: Option<u16>,
    body: Option<&Bound<'_, PyAny>>,
    #[pyo3(from_py_with = optional_seconds)] max_learned_wait: Option<Duration>,
) -> PyResult<(Vec<Observation>, u32, Option<f64>, bool)> {
    let now = match date {
        Some(date) => moment(date)?,
        None => SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default(),
    };
    let reader = ResponseReader::new(now).max_learned_wait(max_learned_wait.unwrap_or(MAX_LEARNED_WAIT));
    let reader = status.map_or(reader, |status| reader.status(status));
    let body = body.map(|body| bytes("body", body)).transpose()?.unwrap_or_default();
    let fields = fields(headers)?;
    let needs_body = reader.needs_body(&fields);
    let read = reader.read(fields, &body);
    let wait = read.wait().filter(|_| status.is_some_and(ResponseReader::allows_retry)).map(in_seconds);
    Ok((read.observations.into_iter().map(|inner| Observation { inner }).collect(), read.ignored, wait, needs_body))
}

fn moment(date: &Bound<'_, PyAny>) -> PyResult<Duration> {
    if date.hasattr("timestamp")? {
        return named_seconds("date", date.call_method0("timestamp")?.extract()?);
    }
    named_seconds("date", number("date", date)?)
}

/// The header fields of any client, including repeated ones.
fn fields(headers: &Bound<'_, PyAny>) -> PyResult<Vec<(String, Vec<u8>)>> {
    let wrong = |given: &Bound<'_, PyAny>| {
        PyTypeError::new_err(format!(
            "argument 'headers' must be a mapping of names to values, or pairs of them, not {}",
            shown(given)
        ))
    };
    // httpx joins repeated fields in `items`. A list has neither method, and looking for one takes time.
    let methods = if headers.is_instance_of::<PyList>() { &[][..] } else { &["multi_items", "items"] };
    let pairs = methods.iter().find_map(|name| headers.call_method0(*name).ok());
    let pairs = pairs.as_ref().unwrap_or(headers);
    let mut fields = Vec::new();
    for pair in pairs.try_iter().map_err(|_| wrong(headers))? {
        let pair = pair?;
        // A text is a sequence too, namely of its characters.
        let is_text = pair.is_instance_of::<PyString>() || pair.is_instance_of::<PyBytes>();
        let parts = if is_text { None } else { pair.extract::<[Bound<'_, PyAny>; 2]>().ok() };
        let [name, value] = parts.ok_or_else(|| wrong(headers))?;
        let (name, value) = (bytes("headers", &name)?, bytes("headers", &value)?);
        let name = String::from_utf8_lossy(&name);
        // Nearly every field has no meaning here, so it is not copied.
        if ResponseReader::reads_field(&name) {
            fields.push((name.into_owned(), value.into_owned()));
        }
    }
    Ok(fields)
}

/// The bytes of a text, or bytes as they are.
fn bytes<'a>(what: &str, given: &'a Bound<'_, PyAny>) -> PyResult<Cow<'a, [u8]>> {
    if let Ok(text) = given.cast::<PyString>() {
        return Ok(match text.to_string_lossy() {
            Cow::Borrowed(text) => Cow::Borrowed(text.as_bytes()),
            Cow::Owned(text) => Cow::Owned(text.into_bytes()),
        });
    }
    let bytes = given.cast::<PyBytes>().map(|bytes| Cow::Borrowed(bytes.as_bytes()));
    bytes.map_err(|_| PyTypeError::new_err(format!("argument '{what}' must be text or bytes, not {}", shown(given))))
}
