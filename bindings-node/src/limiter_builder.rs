//! A limiter that is being described.

use napi::Env;
use napi::bindgen_prelude::{Either, Float64Array, Function, Uint8Array, Uint16Array};
use napi_derive::napi;
use tidegate::{Builder, ErrorKind, Limiter, Result};

use crate::clock::Clock;
use crate::error_value::ErrorValue;
use crate::native_limiter::NativeLimiter;
use crate::node_completions::NodeCompletions;
use crate::number::{self, milliseconds};
use crate::policy::{Policy, on_store_error};
use crate::store_change::{StoreChange, listener, warning_listener};

/// The core's `Builder`. A step that fails returns why.
#[napi]
pub struct LimiterBuilder {
    builder: Builder,
}

impl LimiterBuilder {
    fn step(&mut self, step: impl FnOnce(Builder) -> Result<Builder>) -> Option<ErrorValue> {
        match step(std::mem::take(&mut self.builder)) {
            Ok(builder) => {
                self.builder = builder;
                None
            }
            Err(error) => Some(error.into()),
        }
    }
}

#[napi]
impl LimiterBuilder {
    /// A builder with defaults only.
    #[napi(factory, catch_unwind)]
    pub fn create() -> Self {
        Self { builder: Limiter::builder() }
    }

    /// Takes everything from a policy file.
    #[napi(catch_unwind)]
    pub fn file(&mut self, path: String) -> Option<ErrorValue> {
        self.step(|_| Builder::from_file(path))
    }

    /// The store; of several, each has a share of the keys.
    #[napi(catch_unwind)]
    pub fn store(&mut self, urls: Vec<String>) -> Option<ErrorValue> {
        self.step(|builder| Ok(builder.stores(urls)))
    }

    /// A move from an old store to a new one.
    #[napi(catch_unwind)]
    pub fn rollout(&mut self, old_url: String, new_url: String, percent: f64) -> Option<ErrorValue> {
        self.step(|builder| Ok(builder.rollout(old_url, new_url, percent)))
    }

    /// Whether usage lives in this process, so that every answer is immediate.
    #[napi(catch_unwind)]
    pub fn is_local(&self) -> bool {
        self.builder.is_local()
    }

    /// A policy under a name.
    #[napi(catch_unwind)]
    pub fn policy(&mut self, name: String, policy: &Policy) -> Option<ErrorValue> {
        self.step(|builder| builder.named(policy.policy.clone().named(name)?))
    }

    /// The prefix of every key in Redis.
    #[napi(catch_unwind)]
    pub fn prefix(&mut self, prefix: String) -> Option<ErrorValue> {
        self.step(|builder| Ok(builder.prefix(prefix)))
    }

    /// The secret of the digests in the names of keys.
    #[napi(catch_unwind)]
    pub fn key_secret(&mut self, secret: Uint8Array) -> Option<ErrorValue> {
        self.step(|builder| Ok(builder.key_secret(secret.to_vec())))
    }

    /// The longest a call may wait for the store.
    #[napi(catch_unwind)]
    pub fn timeout(&mut self, length: f64) -> Option<ErrorValue> {
        self.step(|builder| Ok(builder.timeout(milliseconds("timeoutMs", length)?)))
    }

    /// What a check answers when the store fails.
    #[napi(catch_unwind)]
    pub fn on_store_error(&mut self, word: String) -> Option<ErrorValue> {
        self.step(|builder| Ok(builder.on_store_error(on_store_error(&word, ErrorKind::ConfigInvalid)?)))
    }

    /// How long a denial may be repeated without asking the store.
    #[napi(catch_unwind)]
    pub fn deny_cache(&mut self, length: f64) -> Option<ErrorValue> {
        self.step(|builder| Ok(builder.deny_cache(milliseconds("denyCacheMs", length)?)))
    }

    /// The most callers that wait in `acquire`.
    #[napi(catch_unwind)]
    pub fn max_waiting(&mut self, callers: f64) -> Option<ErrorValue> {
        self.step(|builder| Ok(builder.max_waiting(number::callers("maxWaiting", callers)?)))
    }

    /// The most callers that wait for one policy and key.
    #[napi(catch_unwind)]
    pub fn max_waiting_per_key(&mut self, callers: f64) -> Option<ErrorValue> {
        self.step(|builder| Ok(builder.max_waiting_per_key(number::callers("maxWaitingPerKey", callers)?)))
    }

    /// A function that is called when a store is lost or back.
    #[napi(catch_unwind, ts_args_type = "onChange: (change: StoreChange) => void")]
    pub fn on_change(&mut self, on_change: Function<'_, StoreChange, ()>) -> napi::Result<()> {
        let listener = listener(&on_change)?;
        self.builder = std::mem::take(&mut self.builder).on_change(listener);
        Ok(())
    }

    /// A function that is called with each warning that is no change of a store's state.
    #[napi(catch_unwind, ts_args_type = "onWarning: (message: string) => void")]
    pub fn on_warning(&mut self, on_warning: Function<'_, String, ()>) -> napi::Result<()> {
        let listener = warning_listener(&on_warning)?;
        self.builder = std::mem::take(&mut self.builder).on_warning(listener);
        Ok(())
    }

    /// A clock for tests.
    #[napi(catch_unwind)]
    pub fn clock(&mut self, clock: &Clock) -> Option<ErrorValue> {
        self.step(|builder| Ok(builder.clock(clock.clock.clone())))
    }

    /// Opens the limiter. `array_layout.rs` says what the arrays hold. `onAnswers` is called when answers were delivered: with
    /// how many numbers of `answers` they are, or with nothing when they are still to be collected. `readsOnLoop` says whether
    /// the event loop can read the limiter's sockets.
    #[napi(
        catch_unwind,
        ts_args_type = "calls: Float64Array, keyText: Uint16Array, answers: Float64Array, onAnswers: (count?: number) => void, readsOnLoop: boolean"
    )]
    pub fn build(
        &mut self,
        env: Env,
        calls: Float64Array,
        key_text: Uint16Array,
        answers: Float64Array,
        on_answers: Function<'_, i32, ()>,
        reads_on_loop: bool,
    ) -> napi::Result<Either<NativeLimiter, ErrorValue>> {
        let loop_callback = on_answers.create_ref()?;
        let wake_callback = on_answers.build_threadsafe_function::<()>().weak::<true>().build_callback(|_| Ok(()))?;
        Ok(match std::mem::take(&mut self.builder).build_async() {
            Ok(limiter) => {
                let completions = NodeCompletions::new(wake_callback);
                let native = NativeLimiter::new(limiter, completions, calls, key_text, answers);
                if reads_on_loop {
                    native.read_on_loop(&env, loop_callback);
                }
                Either::A(native)
            }
            Err(error) => Either::B(error.into()),
        })
    }
}
