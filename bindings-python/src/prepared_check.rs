//! The check of a limit, prepared where a web layer declares it. A request adds its key, and the cost that a function returned.

use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::{PyList, PyString};
use tidegate::host::{Call, Outcome};
use tidegate::http::placed_key;
use tidegate::{AsPolicy, Cost, PolicyRef};

use crate::call_coroutine::CallCoroutine;
use crate::convert::{cost, utf8};
use crate::decision::Decision;
use crate::error::{raise, raise_about};
use crate::http::{ClientIp, Headers};
use crate::limiter::{AsyncLimiter, Limiter};
use crate::policy::Policy;
use crate::prepared_policy::{PolicyAtPlace, PreparedPolicy};

/// A check that one native call makes for a request: its key, the check, and the header fields of the response.
#[pyclass(module = "tidegate._tidegate", frozen)]
pub(crate) struct PreparedCheck {
    policies: Vec<CheckedPolicy>,
    /// The header fields announce these before the Decision. The Decision of a single policy carries everything itself.
    announced: Vec<tidegate::Policy>,
    headers: Py<Headers>,
    ip: Option<Py<ClientIp>>,
}

struct CheckedPolicy {
    at_place: Arc<PolicyAtPlace>,
    /// The cost, if it is always the same.
    cost: Option<Cost>,
}

/// A policy as Python passes it: prepared, as announced, and its cost. `None` stands for the cost of the request.
type GivenPolicy<'py> = (Bound<'py, PreparedPolicy>, Bound<'py, Policy>, Bound<'py, PyAny>);

impl CheckedPolicy {
    fn of((prepared, _, given): &GivenPolicy<'_>) -> PyResult<Self> {
        let cost = if given.is_none() { None } else { Some(cost(given)?) };
        Ok(Self { at_place: Arc::clone(prepared.get().at_place()), cost })
    }

    fn key(&self, client: &str) -> String {
        placed_key(self.at_place.place.as_deref(), None, client)
    }

    /// The units that a request takes. Its cost is 1 if no function returned one.
    fn cost(&self, of_request: Option<u64>) -> Cost {
        self.cost.clone().unwrap_or_else(|| Cost::from(of_request.unwrap_or(1)))
    }

    fn call(&self, of_request: Option<u64>) -> Call {
        Call::check(self.cost(of_request).into())
    }
}

impl PreparedCheck {
    /// The client with the budget that a request uses.
    fn client(&self, identity: &Bound<'_, PyString>) -> PyResult<String> {
        let identity = utf8(identity)?;
        self.ip.as_ref().map_or_else(|| Ok(identity.to_owned()), |ip| ip.get().direct(identity))
    }

    /// The entries for a check of several policies.
    fn entries<'a>(&'a self, client: &str, cost: Option<u64>) -> Vec<(PolicyRef<'a>, String, Cost)> {
        self.policies.iter().map(|one| (one.at_place.policy.as_policy(), one.key(client), one.cost(cost))).collect()
    }

    fn fields<'py>(&self, py: Python<'py>, decision: &Decision) -> PyResult<Bound<'py, PyList>> {
        self.headers.get().texts(py, &self.announced, &decision.inner)
    }
}

#[pymethods]
impl PreparedCheck {
    /// With an `ip` the identity of a request is the address of its peer, without one it is the key.
    #[new]
    #[pyo3(signature = (
        policies: "list[tuple[PreparedPolicy, Policy, int | Mapping[str, int] | None]]", headers: "Headers", ip: "ClientIp | None" = None
    ))]
    fn new(policies: Vec<GivenPolicy<'_>>, headers: Py<Headers>, ip: Option<Py<ClientIp>>) -> PyResult<Self> {
        let announced = policies.iter().map(|(_, announced, _)| announced.get().inner.clone());
        let announced = if policies.len() > 1 { announced.collect() } else { Vec::new() };
        let policies = policies.iter().map(CheckedPolicy::of).collect::<PyResult<_>>()?;
        Ok(Self { policies, announced, headers, ip })
    }

    /// Checks on this thread: the Decision, and the header fields of the response.
    #[pyo3(signature = (limiter: "Limiter", identity: "str", cost: "int | None" = None) -> "tuple[Decision, list[tuple[str, str]]]")]
    fn check<'py>(
        &self,
        limiter: &Bound<'py, Limiter>,
        identity: &Bound<'py, PyString>,
        cost: Option<u64>,
    ) -> PyResult<(Bound<'py, Decision>, Bound<'py, PyList>)> {
        let (py, client) = (limiter.py(), self.client(identity)?);
        let decision = if let [only] = &self.policies[..] {
            limiter.get().call(py, only.at_place.argument(), &only.key(&client), &only.call(cost))?
        } else {
            limiter.get().decide_all(py, self.entries(&client, cost))?
        };
        let fields = self.fields(py, &decision)?;
        Ok((Bound::new(py, decision)?, fields))
    }

    /// Checks from an event loop: the Decision when it is immediate, or an awaitable of it.
    #[pyo3(signature = (
        limiter: "AsyncLimiter", identity: "str", cost: "int | None" = None
    ) -> "Decision | Coroutine[Any, Any, Decision]")]
    fn check_async<'py>(
        &self,
        limiter: &Bound<'py, AsyncLimiter>,
        identity: &Bound<'py, PyString>,
        cost: Option<u64>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let (py, client) = (limiter.py(), self.client(identity)?);
        let reader = &limiter.get().reader;
        // If no call ever waits, awaiting would cost more than the check.
        let blocking = reader.limiter.to_blocking();
        if let [only] = &self.policies[..] {
            let (policy, key, call) = (only.at_place.argument(), only.key(&client), only.call(cost));
            if !blocking.waits()
                && let Some(answer) = blocking.try_immediate(policy, &key, &call)
            {
                let decision = answer.map(Decision::from).map_err(|error| raise_about(error, policy.text()))?;
                return Ok(Bound::new(py, decision)?.into_any());
            }
            let given = only.at_place.given.bind(py);
            let coroutine =
                CallCoroutine::of_call(reader, given, PyString::new(py, &key), call, Decision::from_outcome)?;
            return Ok(Bound::new(py, coroutine)?.into_any());
        }
        if !blocking.waits() {
            let decision = blocking.check_all(self.entries(&client, cost)).map_err(raise)?;
            return Ok(Bound::new(py, Decision::from(decision))?.into_any());
        }
        let asked: Vec<_> =
            self.policies.iter().map(|one| (Arc::clone(&one.at_place), one.key(&client), one.cost(cost))).collect();
        let limiter = reader.limiter.clone();
        let checked = async move {
            let entries = asked.iter().map(|(at_place, key, cost)| (at_place.policy.as_policy(), key, cost.clone()));
            limiter.check_all(entries).await.map(Outcome::Decision)
        };
        Ok(Bound::new(py, CallCoroutine::of_task(&reader.limiter, Decision::from_outcome, true, checked))?.into_any())
    }
}
