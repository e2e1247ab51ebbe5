//! `Policy`.

use std::collections::BTreeMap;
use std::time::Duration;

use pyo3::IntoPyObjectExt as _;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyMapping, PyString, PyTuple};
use tidegate::host::{OptionKind, OptionValue, POLICY_OPTIONS, PolicyOption};
use tidegate::policy::{Format, PolicyFile};
use tidegate::{BlockFor, ErrorKind, KeyOverride, Lease, OnStoreError, Options, Overrides, Period, Priorities};

use crate::convert::{argument, owned_text, period, seconds as margin, shown, text, unexpected, whole};
use crate::error::{PolicyError, policy, raise, raise_about};
use crate::limit::Limit;
use crate::warning::{Warning, listed};

/// A named, immutable list of limits that must all admit, with options.
///
/// `limits` is a notation such as "20/minute; 5/3s", a Limit, or a list of both. Without a `name` the notation is its name:
/// the same limits in two places are the same policy.
///
/// The other options are those of `PolicyOptions`.
#[pyclass(module = "tidegate", frozen, eq)]
#[derive(PartialEq, Eq)]
pub(crate) struct Policy {
    pub(crate) inner: tidegate::Policy,
}

fn to_limits(given: &Bound<'_, PyAny>) -> PyResult<Vec<tidegate::Limit>> {
    if let Ok(text) = given.cast::<PyString>() {
        let text = self::text(text, ErrorKind::PolicyInvalid, "the notation")?;
        let parsed = tidegate::Policy::parse(text).map_err(|error| raise_about(error, Some(text)))?;
        return Ok(parsed.limits().to_vec());
    }
    if let Ok(limit) = given.cast::<Limit>() {
        return Ok(vec![limit.get().inner.clone()]);
    }
    let wrong =
        || PyTypeError::new_err(format!("limits must be a str, a Limit or a list of both, not {}", shown(given)));
    // A dict is iterable too, namely over its keys.
    if given.is_instance_of::<PyDict>() {
        return Err(wrong());
    }
    let mut limits = Vec::new();
    for one in given.try_iter().map_err(|_| wrong())? {
        let one = one?;
        if !one.is_instance_of::<PyString>() && !one.is_instance_of::<Limit>() {
            return Err(PyTypeError::new_err(format!("a limit must be a str or a Limit, not {}", shown(&one))));
        }
        limits.extend(to_limits(&one)?);
    }
    Ok(limits)
}

/// The choice for that word, or the reason why there is none.
pub(crate) fn on_store_error(word: &Bound<'_, PyAny>) -> Result<OnStoreError, String> {
    let choices = || OnStoreError::ALL.map(OnStoreError::name).join(", ");
    let choice = word.extract::<&str>().ok().and_then(OnStoreError::from_name);
    choice.ok_or_else(|| format!("on_store_error must be one of {}, not {}", choices(), shown(word)))
}

fn to_optional_name(given: &Bound<'_, PyAny>) -> PyResult<Option<String>> {
    let name = (!given.is_none()).then(|| owned_text(given, ErrorKind::PolicyInvalid, "the policy's name"));
    name.transpose()
}

/// The value of an option, from the caller's argument. `None` if that is None and None is the default.
fn option_value(option: &PolicyOption, given: &Bound<'_, PyAny>) -> PyResult<Option<OptionValue>> {
    if given.is_none() && option.get(&Options::default()).is_none() {
        return Ok(None);
    }
    Ok(Some(match option.kind {
        OptionKind::Flag => OptionValue::Flag(argument(option.name, given)?),
        OptionKind::OnStoreError => OptionValue::OnStoreError(on_store_error(given).map_err(policy)?),
        OptionKind::Duration => OptionValue::Duration(period(given)?),
        OptionKind::BlockFor => OptionValue::BlockFor(block_for(given)?),
        OptionKind::Count { of, .. } => {
            let wrong = || policy(format!("{} must be a whole number of {of}, not {}", option.name, shown(given)));
            let number = whole(given).ok_or_else(wrong)?;
            OptionValue::Count(u32::try_from(number).unwrap_or(u32::MAX))
        }
        OptionKind::Lease => OptionValue::Lease(lease(given)?),
        OptionKind::Priorities => OptionValue::Priorities(priorities(given)?),
        OptionKind::Overrides => OptionValue::Overrides(overrides(given)?),
    }))
}

/// A lease in the form for Python.
#[derive(IntoPyObject)]
enum LeaseValue {
    Units(u64),
    Part(String),
}

/// The value of an option in the form for Python.
fn shown_value(py: Python<'_>, value: Option<OptionValue>) -> PyResult<Bound<'_, PyAny>> {
    match value {
        None => Ok(py.None().into_bound(py)),
        Some(OptionValue::Flag(value)) => value.into_bound_py_any(py),
        Some(OptionValue::OnStoreError(choice)) => choice.name().into_bound_py_any(py),
        Some(OptionValue::Duration(period)) => (period.micros() as f64 / 1e6).into_bound_py_any(py),
        Some(OptionValue::BlockFor(lengths)) => block_lengths(&lengths).into_bound_py_any(py),
        Some(OptionValue::Overrides(overrides)) => override_texts(&overrides).into_bound_py_any(py),
        Some(OptionValue::Count(number)) => number.into_bound_py_any(py),
        Some(OptionValue::Lease(lease)) => lease_value(lease).into_bound_py_any(py),
        Some(OptionValue::Priorities(priorities)) => parts_by_class(&priorities).into_bound_py_any(py),
    }
}

fn lease_value(lease: Lease) -> LeaseValue {
    lease.as_units().map_or_else(|| LeaseValue::Part(lease.to_string()), LeaseValue::Units)
}

fn parts_by_class(priorities: &Priorities) -> BTreeMap<String, String> {
    priorities.iter().map(|(class, part)| (class.to_owned(), part)).collect()
}

fn priorities(given: &Bound<'_, PyAny>) -> PyResult<Priorities> {
    let wrong = || {
        policy(format!(
            "priorities must be a dict from classes to their parts, as in {{\"batch\": \"30%\"}}, not {}",
            shown(given)
        ))
    };
    let classes = given.cast::<PyMapping>().map_err(|_| wrong())?;
    let mut parts = Vec::new();
    for pair in classes.items()? {
        parts.push(pair.extract::<(String, String)>().map_err(|_| wrong())?);
    }
    Priorities::new(parts).map_err(raise)
}

/// The limits of each override, in the form for Python.
fn override_texts(overrides: &Overrides) -> BTreeMap<String, String> {
    overrides.iter().map(|(key, own)| (key.to_owned(), own.to_string())).collect()
}

/// Reads the argument of `override`: a notation or "none", a Limit, a list of both, or a Policy, which gives only its limits.
pub(crate) fn key_override(given: &Bound<'_, PyAny>) -> PyResult<KeyOverride> {
    if let Ok(text) = given.cast::<PyString>() {
        let text = self::text(text, ErrorKind::PolicyInvalid, "the notation of an override")?;
        return KeyOverride::parse(text).map_err(|error| raise_about(error, Some(text)));
    }
    if let Ok(policy) = given.cast::<Policy>() {
        return Ok(KeyOverride::of(policy.get().inner.limits().to_vec()));
    }
    match to_limits(given)? {
        limits if limits.is_empty() => {
            Err(policy("an override has no limits: give \"none\" for a key without limits".to_owned()))
        }
        limits => Ok(KeyOverride::of(limits)),
    }
}

fn overrides(given: &Bound<'_, PyAny>) -> PyResult<Overrides> {
    let wrong = || PyTypeError::new_err(format!("overrides must be a dict from keys to limits, not {}", shown(given)));
    let given = given.cast::<PyDict>().map_err(|_| wrong())?;
    let own = |(key, own): (Bound<'_, PyAny>, Bound<'_, PyAny>)| {
        Ok((owned_text(&key, ErrorKind::PolicyInvalid, "the key of an override")?, key_override(&own)?))
    };
    given.iter().map(own).collect()
}

/// The lengths of blocks in seconds, in the form for Python.
#[derive(IntoPyObject)]
enum BlockLengths {
    One(f64),
    Several(Vec<f64>),
}

fn block_lengths(lengths: &BlockFor) -> BlockLengths {
    let seconds = |length: &Period| length.micros() as f64 / 1e6;
    match lengths.lengths() {
        [length] => BlockLengths::One(seconds(length)),
        several => BlockLengths::Several(several.iter().map(seconds).collect()),
    }
}

/// A length of time, or a sequence of them.
fn block_for(given: &Bound<'_, PyAny>) -> PyResult<BlockFor> {
    let several = given.cast::<PyList>().map(|list| list.iter().collect::<Vec<_>>());
    let several = several.or_else(|_| given.cast::<PyTuple>().map(|tuple| tuple.iter().collect()));
    match several {
        Ok(lengths) => {
            let lengths = lengths.iter().map(period).collect::<PyResult<Vec<_>>>()?;
            BlockFor::new(lengths).map_err(raise)
        }
        Err(_) => Ok(period(given)?.into()),
    }
}

fn lease(given: &Bound<'_, PyAny>) -> PyResult<Lease> {
    if let Ok(text) = given.cast::<PyString>() {
        return Lease::parse(self::text(text, ErrorKind::PolicyInvalid, "lease")?).map_err(raise);
    }
    let wrong =
        || policy(format!("lease must be a part such as \"5%\" or a whole number of units, not {}", shown(given)));
    Lease::units(whole(given).ok_or_else(wrong)?).map_err(raise)
}

/// Reads a value of `policies={…}`: a Policy, the limits of one, or a dict as in a policy file.
fn named(name: &str, given: &Bound<'_, PyAny>) -> PyResult<tidegate::Policy> {
    if let Ok(policy) = given.cast::<Policy>() {
        return policy.get().inner.clone().named(name).map_err(raise);
    }
    if given.is_instance_of::<PyDict>() {
        return from_dict(name, given);
    }
    let limits = to_limits(given).map_err(|error| about_policy(given.py(), name, error))?;
    tidegate::Policy::new(limits, Options::default()).and_then(|policy| policy.named(name)).map_err(raise)
}

/// Adds the name of the policy to an error in its notation.
fn about_policy(py: Python<'_>, name: &str, error: PyErr) -> PyErr {
    if error.is_instance_of::<PolicyError>(py) {
        let value = error.value(py);
        let renamed = value.getattr("message").and_then(|message| {
            let message = format!("policy {name:?}: {message}");
            value.setattr("args", (&message,))?;
            value.setattr("message", message)
        });
        return renamed.err().unwrap_or(error);
    }
    error
}

/// Reads a map of policies by name.
pub(crate) fn named_policies(policies: &Bound<'_, PyAny>) -> PyResult<Vec<tidegate::Policy>> {
    let wrong =
        || PyTypeError::new_err(format!("policies must be a dict of policies by name, not {}", shown(policies)));
    let mut found = Vec::new();
    for item in policies.call_method0("items").map_err(|_| wrong())?.try_iter()? {
        let (name, given): (Bound<'_, PyAny>, Bound<'_, PyAny>) = item?.extract()?;
        let wrong = |_| policy(format!("a policy's name must be text (str), not {}", shown(&name)));
        let name = text(name.cast().map_err(wrong)?, ErrorKind::PolicyInvalid, "the policy's name")?.to_owned();
        found.push(named(&name, &given)?);
    }
    Ok(found)
}

/// Reads a policy from a dict. The core reads it as a policy file, so that both mean the same.
fn from_dict(name: &str, map: &Bound<'_, PyAny>) -> PyResult<tidegate::Policy> {
    let py = map.py();
    let (whole, policies) = (PyDict::new(py), PyDict::new(py));
    policies.set_item(name, map)?;
    whole.set_item("policies", policies)?;
    let dumps = py.import("tidegate._options")?.getattr("as_json")?;
    let text: String = dumps.call1((whole,))?.extract()?;
    // Environment variables are only for files.
    let file = PolicyFile::parse_with(&text, Format::Json, None, &|_| None)
        .map_err(|error| policy(format!("policy {name:?}: {}", error.message())))?;
    file.policies().first().cloned().ok_or_else(|| {
        policy(format!(
            "the policy {name:?} has no limits: give at least one, such \
        as '20/minute'"
        ))
    })
}

#[pymethods]
impl Policy {
    #[new]
    #[pyo3(signature = (
        limits: "str | Limit | Iterable[str | Limit]", *, name: "str | None" = None, **options: "Unpack[PolicyOptions]"
    ))]
    fn new(
        #[pyo3(from_py_with = to_limits)] limits: Vec<tidegate::Limit>,
        #[pyo3(from_py_with = to_optional_name)] name: Option<String>,
        options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Self> {
        let mut set = Options::default();
        for (name, given) in options.into_iter().flatten() {
            let name = name.cast::<PyString>()?.to_string_lossy();
            let option = PolicyOption::named(&name).ok_or_else(|| unexpected("Policy.__new__()", &name))?;
            if let Some(value) = option_value(option, &given)? {
                option.set(&mut set, value);
            }
        }
        let mut policy = tidegate::Policy::new(limits, set).map_err(raise)?;
        if let Some(name) = name {
            policy = policy.named(name).map_err(raise)?;
        }
        Ok(Self { inner: policy })
    }

    /// This policy for outgoing calls. The service counts calls when they arrive, and begins its windows at any moment, so a
    /// margin of this number of seconds allows for differences in travel time. Its calls obey the limits in responses: see `observe`.
    #[pyo3(signature = (margin: "float | timedelta" = Duration::from_millis(50)) -> "Policy", text_signature = "($self, margin=0.05)")]
    fn paced(&self, #[pyo3(from_py_with = margin)] margin: Duration) -> PyResult<Self> {
        self.inner.paced(margin).map(|inner| Self { inner }).map_err(raise)
    }

    /// The policy of calls that only the limits in responses limit.
    #[staticmethod]
    #[pyo3(signature = () -> "Policy")]
    fn learned() -> PyResult<Self> {
        tidegate::Policy::learned().map(|inner| Self { inner }).map_err(raise)
    }

    /// The name, or the notation when none was given.
    #[getter]
    fn name(&self) -> &str {
        self.inner.name()
    }

    /// The limits, in the order they were written.
    #[getter]
    fn limits<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let limits = self.inner.limits().iter().map(|limit| Limit { inner: limit.clone() }.into_pyobject(py));
        PyTuple::new(py, limits.collect::<PyResult<Vec<_>>>()?)
    }

    // options: policy
    /// The answer to a check when the store fails. It overrides the choice of the limiter.
    #[getter]
    fn on_store_error(&self) -> Option<&'static str> {
        self.inner.options().on_store_error.map(OnStoreError::name)
    }

    /// Evaluate and count the policy, but never deny a call.
    #[getter]
    fn shadow(&self) -> bool {
        self.inner.options().shadow
    }

    /// The time for which a key stays denied after a denial. With several times, each new block takes the next, and the
    /// last repeats.
    #[getter]
    fn block_for(&self) -> Option<BlockLengths> {
        self.inner.options().block_for.as_ref().map(block_lengths)
    }

    /// The time after the end of a block until the next block takes the first time of `block_for` again. Without it, a
    /// day.
    #[getter]
    fn forgive(&self) -> Option<f64> {
        self.inner.options().forgive.map(|period| period.micros() as f64 / 1e6)
    }

    /// Charge denied checks too, so that a caller that keeps trying stays denied.
    #[getter]
    fn count_denied(&self) -> bool {
        self.inner.options().count_denied
    }

    /// The number of newest attempts to remember with their metadata. With 0, nothing is remembered.
    #[getter]
    fn journal(&self) -> u32 {
        self.inner.options().journal
    }

    /// The units that a process takes in advance and spends without the network: a number, or a part such as `5%`.
    #[getter]
    fn lease(&self) -> Option<LeaseValue> {
        self.inner.options().lease.map(lease_value)
    }

    /// The classes of calls. Each must leave a part of every limit free for others, such as `batch: 30%`.
    #[getter]
    fn priorities(&self) -> Option<BTreeMap<String, String>> {
        self.inner.options().priorities.as_ref().map(parts_by_class)
    }

    /// The longest time that a hold of a `concurrency` limit is renewed. After it, the ttl ends the hold.
    #[getter]
    fn max_hold(&self) -> Option<f64> {
        self.inner.options().max_hold.map(|period| period.micros() as f64 / 1e6)
    }

    /// Other limits for single keys, by the key: a notation, or `none` for a key without limits.
    #[getter]
    fn overrides(&self) -> Option<BTreeMap<String, String>> {
        self.inner.options().overrides.as_ref().map(override_texts)
    }

    // options end

    /// Warns about limits and options that probably do not have the intended effect.
    #[pyo3(signature = () -> "list[Warning]")]
    fn lint(&self) -> Vec<Warning> {
        listed(self.inner.lint())
    }

    fn __hash__(&self) -> u64 {
        use std::hash::{BuildHasher as _, BuildHasherDefault, DefaultHasher};
        BuildHasherDefault::<DefaultHasher>::default().hash_one((self.inner.name(), self.inner.limits()))
    }

    /// The notation of its limits.
    fn __str__(&self) -> String {
        self.inner.to_string()
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let (policy, options) = (&self.inner, self.inner.options());
        let limits = self.limits(py)?;
        let mut text = match policy.limits() {
            // The notation has everything but these.
            limits_ if limits_.iter().all(|limit| limit.initial().is_none() && is_plain(limit)) => {
                format!("Policy({}", PyString::new(py, &policy.to_string()).repr()?)
            }
            _ => format!("Policy([{}]", limits.iter().map(|one| shown_limit(&one)).collect::<Vec<_>>().join(", ")),
        };
        if policy.name() != policy.to_string() {
            text += &format!(", name={}", PyString::new(py, policy.name()).repr()?);
        }
        for option in POLICY_OPTIONS.iter().filter(|option| option.is_set(options)) {
            text += &format!(", {}={}", option.name, shown_value(py, option.get(options))?.repr()?);
        }
        Ok(text + ")")
    }

    #[pyo3(signature = () -> "tuple[object, ...]")]
    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let options = PyDict::new(py);
        if self.inner.name() != self.inner.to_string() {
            options.set_item("name", self.inner.name())?;
        }
        for option in POLICY_OPTIONS {
            options.set_item(option.name, shown_value(py, option.get(self.inner.options()))?)?;
        }
        let make = py.import("functools")?.getattr("partial")?.call((py.get_type::<Self>(),), Some(&options))?;
        Ok((make, (self.limits(py)?,)).into_pyobject(py)?.into_any())
    }
}

fn is_plain(limit: &tidegate::Limit) -> bool {
    limit.precision() == tidegate::policy::DEFAULT_PRECISION
}

fn shown_limit(limit: &Bound<'_, PyAny>) -> String {
    limit.repr().map_or_else(|_| String::new(), |text| text.to_string())
}

/// The name that was probably meant, of names that are right.
#[pyfunction]
#[pyo3(signature = (word: "str", names: "list[str]") -> "str | None")]
pub(crate) fn nearest(word: &str, names: Vec<String>) -> Option<String> {
    tidegate::host::nearest(word, names.iter().map(String::as_str)).map(str::to_owned)
}
