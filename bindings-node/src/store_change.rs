//! Reports to JavaScript when a store is lost or back, when a key comes near a limit and when a file was reloaded, and passes on the
//! limiter's warnings.

use std::sync::Arc;
use std::time::UNIX_EPOCH;

use napi::bindgen_prelude::Function;
use napi::threadsafe_function::ThreadsafeFunctionCallMode;
use napi_derive::napi;

use crate::error_value::node_name;

/// A store changed its state.
#[napi(object)]
pub struct StoreChange {
    /// The store, without secrets.
    pub store: String,
    /// `lost`, `refusing` or `back`.
    pub state: String,
    /// The event and its cause, in one sentence.
    pub message: String,
    /// When it was lost, in milliseconds since 1970.
    pub since: f64,
}

impl From<&tidegate::StoreChange> for StoreChange {
    fn from(change: &tidegate::StoreChange) -> Self {
        let since = change.since.duration_since(UNIX_EPOCH).unwrap_or_default();
        Self {
            store: change.store.clone(),
            state: change.state.name().to_owned(),
            message: change.sentence_for(node_name),
            since: since.as_secs_f64() * 1_000.0,
        }
    }
}

/// A listener in the form that the core needs.
pub(crate) type Listener<T = tidegate::StoreChange> = Arc<dyn Fn(&T) + Send + Sync>;

/// Calls a function on its event loop, whatever thread noticed the change. Weak, so that a listener keeps no process alive.
pub(crate) fn listener(function: &Function<'_, StoreChange, ()>) -> napi::Result<Listener> {
    let callback = function.build_threadsafe_function().weak::<true>().build()?;
    Ok(Arc::new(move |change| {
        // The call fails when the event loop is being torn down. Then there is no listener left.
        let _ = callback.call(StoreChange::from(change), ThreadsafeFunctionCallMode::NonBlocking);
    }))
}

/// A listener of warnings.
pub(crate) type WarningListener = Arc<dyn Fn(&str) + Send + Sync>;

/// Makes a listener of warnings.
pub(crate) fn warning_listener(function: &Function<'_, String, ()>) -> napi::Result<WarningListener> {
    let callback = function.build_threadsafe_function().weak::<true>().build()?;
    Ok(Arc::new(move |sentence: &str| {
        let _ = callback.call(sentence.to_owned(), ThreadsafeFunctionCallMode::NonBlocking);
    }))
}

/// A key has come near a limit.
#[napi(object)]
pub struct NearLimit {
    /// The policy.
    pub policy: String,
    /// The key.
    pub key: String,
    /// The limit that has the least left in proportion, as a notation.
    pub notation: String,
    /// The units of that limit.
    pub limit: f64,
    /// The units that are left of it.
    pub remaining: f64,
    /// The milliseconds until all its units are back.
    pub reset_after_ms: f64,
}

impl From<&tidegate::NearLimit> for NearLimit {
    fn from(near: &tidegate::NearLimit) -> Self {
        Self {
            policy: near.policy.clone(),
            key: near.key.clone(),
            notation: near.notation.clone(),
            limit: near.limit as f64,
            remaining: near.remaining as f64,
            reset_after_ms: near.reset_after.as_secs_f64() * 1_000.0,
        }
    }
}

/// Makes a listener of keys that come near a limit.
pub(crate) fn near_listener(function: &Function<'_, NearLimit, ()>) -> napi::Result<Listener<tidegate::NearLimit>> {
    let callback = function.build_threadsafe_function().weak::<true>().build()?;
    Ok(Arc::new(move |near| {
        let _ = callback.call(NearLimit::from(near), ThreadsafeFunctionCallMode::NonBlocking);
    }))
}

/// Makes a listener of reloads.
pub(crate) fn reload_listener(function: &Function<'_, (), ()>) -> napi::Result<Arc<dyn Fn() + Send + Sync>> {
    let callback = function.build_threadsafe_function().weak::<true>().build()?;
    Ok(Arc::new(move || {
        let _ = callback.call((), ThreadsafeFunctionCallMode::NonBlocking);
    }))
}
