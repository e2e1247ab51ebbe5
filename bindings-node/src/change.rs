//! What becomes of stores, told to JavaScript.

use std::sync::Arc;
use std::time::UNIX_EPOCH;

use napi::bindgen_prelude::Function;
use napi::threadsafe_function::ThreadsafeFunctionCallMode;
use napi_derive::napi;
use tidegate::StoreChange;

/// A store changed its state.
#[napi(object)]
pub struct Change {
    /// The store, without secrets.
    pub store: String,
    /// `lost`, `refusing` or `back`.
    pub state: String,
    /// What happened and why.
    pub message: String,
    /// Since when it is or was away, in milliseconds since 1970.
    pub since: f64,
}

impl From<&StoreChange> for Change {
    fn from(change: &StoreChange) -> Self {
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
pub(crate) type Listener = Arc<dyn Fn(&StoreChange) + Send + Sync>;

/// Tells a function on its event loop, whatever thread noticed. Weak: to be told keeps no process alive.
pub(crate) fn listener(function: &Function<'_, Change, ()>) -> napi::Result<Listener> {
    let told = function.build_threadsafe_function().weak::<true>().build()?;
    Ok(Arc::new(move |change| {
        // A loop that is being torn down does not want to know.
        let _ = told.call(Change::from(change), ThreadsafeFunctionCallMode::NonBlocking);
    }))
}
