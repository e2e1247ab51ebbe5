//! The test kit for stores of applications, driven like a limiter: by the thread that calls it, or by the running event loop.

use std::sync::Arc;
use std::time::{Duration, Instant};

use pyo3::prelude::*;
use tidegate::host::{Mutex, Outcome, Wake, begin_verify, verify_awaited};
use tidegate::store::WaitingCaller;
use tidegate::{Error, ErrorKind};

use crate::call_coroutine::CallCoroutine;
use crate::convert::none_from_outcome;
use crate::error::raise;
use crate::own_store::{OwnStore, host_store};

/// Tests a store. Returns None, or a coroutine for methods that are `async def`.
#[pyfunction]
#[pyo3(signature = (store: "KeyValueStore | AsyncKeyValueStore") -> "Any")]
pub(crate) fn verify_store(py: Python<'_>, store: &Bound<'_, PyAny>) -> PyResult<Option<CallCoroutine>> {
    let host = host_store(store, None)?;
    let own = host.data.clone().and_then(|data| data.downcast::<OwnStore>().ok());
    let callers = own.as_ref().and_then(|own| own.callers());
    let ended = || Error::new(ErrorKind::Closed, "the test kit has ended early");
    let verified: Arc<Mutex<Option<tidegate::Result<()>>>> = Arc::default();
    let told = Arc::clone(&verified);
    if let Some(callers) = callers {
        let woken = Arc::clone(&callers);
        let caller = WaitingCaller::enter(callers);
        begin_verify(host, move |result| {
            *told.lock() = Some(result);
            woken.wake();
        })
        .map_err(raise)?;
        let far = Instant::now() + Duration::from_secs(3_600);
        py.detach(|| caller.work(&mut || verified.lock().is_some(), far));
        let result = verified.lock().take();
        return result.unwrap_or_else(|| Err(ended())).map(|()| None).map_err(raise);
    }
    let task = async move { verify_awaited(host).await.map(|()| Outcome::Nothing) };
    Ok(Some(CallCoroutine::of_store(own, none_from_outcome, task)))
}
