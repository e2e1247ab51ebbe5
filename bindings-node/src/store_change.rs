//! What becomes of stores, told to JavaScript.

use std::sync::Arc;
use std::time::UNIX_EPOCH;

use napi::bindgen_prelude::Function;
use napi::threadsafe_function::ThreadsafeFunctionCallMode;
use napi_derive::napi;

/// A store changed its state.
#[napi(object)]
pub struct StoreChange {
    /// The store, without secrets.
    pub store: String,
    /// `lost`, `refusing` or `back`.
    pub state: String,
    /// What happened and why.
    pub message: String,
    /// Since when it is or was away, in milliseconds since 1970.
    pub since: f64,
}

impl From<&tidegate::StoreChange> for StoreChange {
    fn from(change: &tidegate::StoreChange) -> Self {
        let since = change.since.duration_since(UNIX_EPOCH).unwrap_or_default();
        Self {
            store: change.store.clone(),
            state: change.state.name().to_owned(),
            message: change.sentence.clone(),
            since: since.as_secs_f64() * 1_000.0,
        }
    }
}

/// Somebody who wants to know, as the core takes it.
pub(crate) type Listener = Arc<dyn Fn(&tidegate::StoreChange) + Send + Sync>;

/// Tells a function on its event loop, whatever thread noticed. Weak: to be told keeps no process alive.
pub(crate) fn listener(function: &Function<'_, StoreChange, ()>) -> napi::Result<Listener> {
    let told = function.build_threadsafe_function().weak::<true>().build()?;
    Ok(Arc::new(move |change| {
        // A loop that is being torn down does not want to know.
        let _ = told.call(StoreChange::from(change), ThreadsafeFunctionCallMode::NonBlocking);
    }))
}
