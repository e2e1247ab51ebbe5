//! A check of one policy, prepared where a web layer declares it: with a request comes only the key.

use pyo3::prelude::*;
use pyo3::types::{PyList, PyString};
use tidegate::CheckOptions;
use tidegate::host::Call;
use tidegate::http::placed_key;

use crate::call_coroutine::CallCoroutine;
use crate::convert::{cost, utf8};
use crate::decision::Decision;
use crate::error::raise_about;
use crate::http::{ClientIp, Headers};
use crate::limiter::{AsyncLimiter, Limiter};
use crate::policy_argument::PolicyArgument;

/// A check that one native call makes for a request: its key, the check, and the header fields of the response.
#[pyclass(module = "tidegate._tidegate", frozen)]
pub(crate) struct PreparedCheck {
    policy: Py<PyAny>,
    place: Option<String>,
    call: Call,
    headers: Py<Headers>,
    ip: Option<Py<ClientIp>>,
}

impl PreparedCheck {
    fn key(&self, identity: &Bound<'_, PyString>) -> PyResult<String> {
        let identity = utf8(identity)?;
        let place = self.place.as_deref();
        Ok(match &self.ip {
            Some(ip) => placed_key(place, None, &ip.get().direct(identity)?),
            None => placed_key(place, None, identity),
        })
    }
}

#[pymethods]
impl PreparedCheck {
    /// With an `ip` the identity of a request is the address of its peer, without one it is the key.
    #[new]
    #[pyo3(signature = (
        policy: "str | Policy", place: "str | None", cost: "int | Mapping[str, int]", headers: "Headers", ip: "ClientIp | None" = None
    ))]
    fn new(
        policy: &Bound<'_, PyAny>,
        place: Option<String>,
        cost: &Bound<'_, PyAny>,
        headers: Py<Headers>,
        ip: Option<Py<ClientIp>>,
    ) -> PyResult<Self> {
        PolicyArgument::of(policy)?;
        let call = Call::check(CheckOptions::from(self::cost(cost)?));
        Ok(Self { policy: policy.clone().unbind(), place, call, headers, ip })
    }

    /// Checks on this thread: the Decision, and the header fields of the response.
    #[pyo3(signature = (limiter: "Limiter", identity: "str") -> "tuple[Decision, list[tuple[str, str]]]")]
    fn check<'py>(
        &self,
        limiter: &Bound<'py, Limiter>,
        identity: &Bound<'py, PyString>,
    ) -> PyResult<(Bound<'py, Decision>, Bound<'py, PyList>)> {
        let py = limiter.py();
        let policy = PolicyArgument::of(self.policy.bind(py))?;
        let decision = limiter.get().call(py, policy, &self.key(identity)?, &self.call)?;
        let fields = self.headers.get().texts(py, &decision.inner)?;
        Ok((Bound::new(py, decision)?, fields))
    }

    /// Checks from an event loop: the Decision when it is immediate, or an awaitable of it.
    #[pyo3(signature = (limiter: "AsyncLimiter", identity: "str") -> "Decision | Coroutine[Any, Any, Decision]")]
    fn check_async<'py>(
        &self,
        limiter: &Bound<'py, AsyncLimiter>,
        identity: &Bound<'py, PyString>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = limiter.py();
        let key = self.key(identity)?;
        let (reader, policy) = (&limiter.get().reader, self.policy.bind(py));
        // Where no call ever waits, awaiting would cost more than the check.
        let blocking = reader.limiter.to_blocking();
        if !blocking.waits() {
            let policy = PolicyArgument::of(policy)?;
            if let Some(answer) = blocking.try_immediate(policy, &key, &self.call) {
                let decision = answer.map(Decision::from).map_err(|error| raise_about(error, policy.text()))?;
                return Ok(Bound::new(py, decision)?.into_any());
            }
        }
        let key = PyString::new(py, &key);
        let coroutine = CallCoroutine::of_call(reader, policy, key, self.call.clone(), Decision::from_outcome)?;
        Ok(Bound::new(py, coroutine)?.into_any())
    }
}
