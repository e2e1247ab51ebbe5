//! What nearly every request needs, in one call: whose it is, the check, and what the answer says of it.

use pyo3::prelude::*;
use pyo3::types::{PyInt, PyString};
use tidegate::CheckOptions;
use tidegate::host::{Call, HostLimiter};

use crate::asynchronous::AsyncLimiter;
use crate::convert::{PolicyArgument, cost};
use crate::decision::Decision;
use crate::error::raise_about;
use crate::http::{ClientIp, Headers};
use crate::limiter::Limiter;
use crate::pending::Pending;

/// One policy at one place, made ready when the place was written.
#[pyclass(module = "tidegate._tidegate", frozen)]
pub(crate) struct Desk {
    policy: Py<PyAny>,
    prefix: String,
    call: Call,
    headers: Py<Headers>,
    ip: Option<Py<ClientIp>>,
}

impl Desk {
    fn key(&self, who: &str) -> String {
        match &self.ip {
            Some(ip) => self.prefix.clone() + &ip.get().direct(who),
            None => self.prefix.clone() + who,
        }
    }
}

#[pymethods]
impl Desk {
    /// With an `ip` those who ask are known by their peer's address, without one by their key.
    #[new]
    #[pyo3(signature = (policy: "str | Policy", prefix: "str", cost: "int", headers: "Headers", ip: "ClientIp | None" = None))]
    fn new(
        policy: &Bound<'_, PyAny>,
        prefix: String,
        cost: &Bound<'_, PyInt>,
        headers: Py<Headers>,
        ip: Option<Py<ClientIp>>,
    ) -> PyResult<Self> {
        PolicyArgument::of(policy)?;
        let call = Call::Check(CheckOptions { cost: self::cost(cost)?, meta: None });
        Ok(Self { policy: policy.clone().unbind(), prefix, call, headers, ip })
    }

    /// Asks on this thread: the fields of the answer when it may go, else the Decision.
    #[pyo3(signature = (limiter: "Limiter", who: "str") -> "list[tuple[str, str]] | Decision")]
    fn ask<'py>(&self, limiter: &Bound<'py, Limiter>, who: &str) -> PyResult<Bound<'py, PyAny>> {
        let py = limiter.py();
        let policy = PolicyArgument::of(self.policy.bind(py))?;
        let decision = limiter.get().ask(py, policy, &self.key(who), &self.call)?;
        if decision.inner.allowed() {
            return Ok(self.headers.get().texts(py, &decision.inner)?.into_any());
        }
        Ok(Bound::new(py, decision)?.into_any())
    }

    /// Asks from an event loop: the Decision when it is at hand, else what is to be awaited for it.
    #[pyo3(signature = (limiter: "AsyncLimiter", who: "str") -> "Decision | Coroutine[Any, Any, Decision]")]
    fn post<'py>(&self, limiter: &Bound<'py, AsyncLimiter>, who: &str) -> PyResult<Bound<'py, PyAny>> {
        let (py, key) = (limiter.py(), self.key(who));
        let (limiter, policy) = (limiter.get(), self.policy.bind(py));
        // Where nobody ever waits, the way into the loop and out of it would cost more than the check.
        let blocking = limiter.reading.limiter.to_blocking();
        if !blocking.waits() {
            let policy = PolicyArgument::of(policy)?;
            if let Some(answer) = blocking.try_immediate(policy, &key, &self.call) {
                let decision = answer.map(Decision::from).map_err(|error| raise_about(error, policy.text()))?;
                return Ok(Bound::new(py, decision)?.into_any());
            }
        }
        let pending = Pending::call(limiter, policy, PyString::new(py, &key), self.call.clone());
        Ok(Bound::new(py, pending)?.into_any())
    }
}
