//! The HTTP rules of the core, for the web layers.

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBool, PyBytes, PyFloat, PyInt, PyList, PyString, PyTuple};
use tidegate::ErrorKind;
use tidegate::http::{self, Peer, Trusted};

use crate::convert::{not_a_key, shown, text, utf8};
use crate::decision::Decision;
use crate::error::{config, raise};
use crate::policy::Policy;

/// The header fields that announce limits. The option is read once, not for every response.
#[pyclass(module = "tidegate._tidegate", frozen)]
pub(crate) struct Headers {
    inner: http::Headers,
}

impl Headers {
    fn fields(&self, announced: &Bound<'_, PyTuple>) -> PyResult<Vec<(&'static str, String)>> {
        if announced.len() == 1
            && let Ok(decision) = announced.get_item(0)?.cast::<Decision>()
        {
            return Ok(http::headers(&decision.get().inner, self.inner));
        }
        let (mut policies, mut decisions) = (Vec::new(), Vec::new());
        for one in announced {
            match one.cast_into::<Policy>() {
                Ok(policy) => policies.push(policy),
                Err(other) => decisions.push(other.into_inner().cast_into::<Decision>()?),
            }
        }
        let policies: Vec<&tidegate::Policy> = policies.iter().map(|one| &one.get().inner).collect();
        let decisions: Vec<&tidegate::Decision> = decisions.iter().map(|one| &one.get().inner).collect();
        Ok(http::headers_of_route(&policies, &decisions, self.inner))
    }
}

impl Headers {
    /// The fields of a response after one Decision, as text. They announce `policies` before it.
    pub(crate) fn texts<'py>(
        &self,
        py: Python<'py>,
        policies: &[tidegate::Policy],
        decision: &tidegate::Decision,
    ) -> PyResult<Bound<'py, PyList>> {
        if policies.is_empty() {
            return as_text(py, &http::headers(decision, self.inner));
        }
        as_text(py, &http::headers_of_route(&policies.iter().collect::<Vec<_>>(), &[decision], self.inner))
    }
}

fn as_text<'py>(py: Python<'py>, fields: &[(&'static str, String)]) -> PyResult<Bound<'py, PyList>> {
    let pairs = fields.iter().map(|(name, value)| Ok((&field_name(py, name)?.text, PyString::new(py, value))));
    PyList::new(py, pairs.collect::<PyResult<Vec<_>>>()?)
}

/// The name of a field as Python objects. It is made once.
struct FieldName {
    name: &'static str,
    text: Py<PyString>,
    /// In lower case, for ASGI.
    bytes: Py<PyBytes>,
}

fn field_name<'py>(py: Python<'py>, name: &'static str) -> PyResult<&'py FieldName> {
    static NAMES: PyOnceLock<Vec<FieldName>> = PyOnceLock::new();
    let names = NAMES.get_or_init(py, || {
        let made = |name: &'static str| FieldName {
            name,
            text: PyString::intern(py, name).unbind(),
            bytes: PyBytes::new(py, name.to_ascii_lowercase().as_bytes()).unbind(),
        };
        http::NAMES.map(made).into()
    });
    let found = names.iter().find(|known| known.name == name);
    found.ok_or_else(|| config(format!("{name} is not a field that the module knows")))
}

#[pymethods]
impl Headers {
    #[new]
    #[pyo3(signature = (name: "str"))]
    fn new(name: &Bound<'_, PyAny>) -> PyResult<Self> {
        let text = name.cast::<PyString>().map_err(|_| {
            let words = http::Headers::ALL.map(|choice| format!("{:?}", choice.name())).join(", ");
            config(format!("headers must be one of {words}, not {}", shown(name)))
        })?;
        Ok(Self { inner: self::text(text, ErrorKind::ConfigInvalid, "headers")?.parse().map_err(raise)? })
    }

    /// The fields of a response after these Decisions, as text. Policies are announced before them, also those that were not
    /// asked.
    #[pyo3(signature = (*announced: "Policy | Decision") -> "list[tuple[str, str]]")]
    fn text<'py>(&self, announced: &Bound<'py, PyTuple>) -> PyResult<Bound<'py, PyList>> {
        as_text(announced.py(), &self.fields(announced)?)
    }

    /// The fields as ASGI has them: bytes, names in lower case.
    #[pyo3(signature = (*announced: "Policy | Decision") -> "list[tuple[bytes, bytes]]")]
    fn raw<'py>(&self, announced: &Bound<'py, PyTuple>) -> PyResult<Bound<'py, PyList>> {
        let py = announced.py();
        let fields = self.fields(announced)?;
        let pairs =
            fields.iter().map(|(name, value)| Ok((&field_name(py, name)?.bytes, PyBytes::new(py, value.as_bytes()))));
        PyList::new(py, pairs.collect::<PyResult<Vec<_>>>()?)
    }

    /// The description of a refusal for an OpenAPI document, as JSON.
    #[pyo3(signature = () -> "str")]
    fn openapi(&self) -> String {
        http::openapi_response(self.inner)
    }
}

/// The status of the response: 200, 429 or 503.
#[pyfunction]
#[pyo3(signature = (decision: "Decision") -> "int")]
pub(crate) fn status(decision: &Bound<'_, Decision>) -> u16 {
    http::status(&decision.get().inner)
}

/// The body of a refusal: application/problem+json.
#[pyfunction]
#[pyo3(signature = (decision: "Decision") -> "str")]
pub(crate) fn problem(decision: &Bound<'_, Decision>) -> String {
    http::problem(&decision.get().inner)
}

/// The body of a refusal of a request whose policies could not be asked.
#[pyfunction]
#[pyo3(signature = (*policies: "Policy") -> "str")]
pub(crate) fn problem_without_store(policies: &Bound<'_, PyTuple>) -> PyResult<String> {
    let policies = policies.iter().map(|one| Ok(one.cast_into::<Policy>()?)).collect::<PyResult<Vec<_>>>()?;
    let policies: Vec<&tidegate::Policy> = policies.iter().map(|one| &one.get().inner).collect();
    Ok(http::Refusal::unavailable(&policies).problem())
}

/// A digest to use as a key instead of a secret.
#[pyfunction]
#[pyo3(signature = (secret: "str") -> "str")]
pub(crate) fn hashed(secret: &Bound<'_, PyString>) -> PyResult<String> {
    // The message must not show the secret.
    let wrong = |_| not_a_key("the secret has half a surrogate pair: it cannot be written as UTF-8".to_owned());
    Ok(http::hashed(secret.to_str().map_err(wrong)?))
}

/// The key of a client without a key of its own, made of its address.
#[pyfunction]
#[pyo3(signature = (client: "str") -> "str")]
pub(crate) fn anonymous(client: &Bound<'_, PyString>) -> PyResult<String> {
    Ok(http::anonymous(utf8(client)?))
}

/// The key of a user, or of another name that its owner may have chosen: no such key is that of another client.
#[pyfunction]
#[pyo3(signature = (name: "str") -> "str")]
pub(crate) fn named(name: &Bound<'_, PyString>) -> PyResult<String> {
    Ok(http::named(utf8(name)?).into_owned())
}

/// The key under which a notation that is written at a place counts, for `peek`, `clear` and the like. None as the place is
/// that of a policy with a name, which counts alike wherever it is used.
///
/// `method` is that of the request, for a limit with `per_method`::
///
///     limiter.clear("5/minute", placed_key("login", "203.0.113.9"))
#[pyfunction]
#[pyo3(signature = (place: "str | None", key: "str", method: "str | None" = None) -> "str")]
pub(crate) fn placed_key(place: Option<&str>, key: &Bound<'_, PyString>, method: Option<&str>) -> PyResult<String> {
    Ok(http::placed_key(place, method.map(str::to_uppercase).as_deref(), utf8(key)?))
}

/// Makes the key client_ip.
#[pyclass(module = "tidegate._tidegate", frozen)]
pub(crate) struct ClientIp {
    inner: http::ClientIp,
}

impl ClientIp {
    /// The key of a peer that is no trusted proxy.
    pub(crate) fn direct(&self, peer: &str) -> PyResult<String> {
        self.inner.key::<&[u8]>(Peer::Address(peer), &[]).map_err(raise)
    }
}

/// The proxies: a number of hops, or a list of addresses and networks.
fn trusted(given: &Bound<'_, PyAny>) -> PyResult<Trusted> {
    let wrong = || {
        config(format!(
            "trusted_proxies must be a list of addresses and networks such as [\"10.0.0.0/8\"], or a number of hops, not {}",
            shown(given)
        ))
    };
    // A text is a sequence too, namely of its characters, and True is a number.
    if given.is_instance_of::<PyString>() || given.is_instance_of::<PyBytes>() || given.is_instance_of::<PyBool>() {
        return Err(wrong());
    }
    if let Ok(number) = given.cast::<PyFloat>() {
        return Err(raise(Trusted::no_hops(&format!("{:?}", number.value()))));
    }
    if given.is_instance_of::<PyInt>() {
        let hops = given.extract::<i64>().map_err(|_| raise(Trusted::no_hops(&shown(given))))?;
        return Trusted::hops(hops).map_err(raise);
    }
    let mut proxies = Vec::new();
    for proxy in given.try_iter().map_err(|_| wrong())? {
        // `str` also converts the addresses and networks of `ipaddress`.
        proxies.push(text(&proxy?.str()?, ErrorKind::ConfigInvalid, "the trusted proxy")?.to_owned());
    }
    Trusted::parse(proxies).map_err(raise)
}

/// A number of bits. The core checks its range.
fn ipv6_prefix(given: &Bound<'_, PyAny>) -> PyResult<u8> {
    if given.is_instance_of::<PyBool>() || !given.hasattr("__index__")? {
        return Err(PyTypeError::new_err(format!(
            "ipv6_prefix must be a whole number of bits from 1 to 128, not {}",
            shown(given)
        )));
    }
    given
        .extract()
        .map_err(|_| config(format!("ipv6_prefix {} is out of range: it must be from 1 to 128", shown(given))))
}

#[pymethods]
impl ClientIp {
    #[new]
    #[pyo3(signature = (trusted_proxies: "Iterable[object] | int | None" = None, ipv6_prefix: "int" = 64))]
    fn new(
        trusted_proxies: Option<&Bound<'_, PyAny>>,
        #[pyo3(from_py_with = ipv6_prefix)] ipv6_prefix: u8,
    ) -> PyResult<Self> {
        let trusted = trusted_proxies.map_or_else(|| Ok(Trusted::default()), trusted)?;
        Ok(Self { inner: http::ClientIp::new(trusted, ipv6_prefix).map_err(raise)? })
    }

    /// True if X-Forwarded-For is read at all.
    #[getter]
    fn reads_forwarded(&self) -> bool {
        self.inner.reads_forwarded()
    }

    /// The key of a request, from its peer's address and the lines of X-Forwarded-For. `unix` is true if the server listens on
    /// a Unix domain socket, because its peers have no address. Any other peer without one raises KeyInvalid.
    #[pyo3(signature = (peer: "str | None", forwarded: "list[bytes] | None" = None, unix: "bool" = false) -> "str")]
    fn key(&self, peer: Option<&Bound<'_, PyString>>, forwarded: Option<Vec<Vec<u8>>>, unix: bool) -> PyResult<String> {
        let address = peer.map(|peer| peer.to_string_lossy());
        let peer = match address.as_deref() {
            Some(address) if !address.is_empty() => Peer::Address(address),
            _ if unix => Peer::Unix,
            _ => Peer::Missing,
        };
        self.inner.key(peer, &forwarded.unwrap_or_default()).map_err(raise)
    }
}
