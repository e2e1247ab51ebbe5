//! A limiter that is being described.

use napi::Env;
use napi::bindgen_prelude::{Either, Float64Array, Function, Uint16Array};
use napi_derive::napi;
use tidegate::{Builder, ErrorKind, Limiter, Result};

use crate::clock::Clock;
use crate::failure::Failure;
use crate::native_limiter::NativeLimiter;
use crate::node_completions::NodeCompletions;
use crate::number::milliseconds;
use crate::policy::{Policy, on_store_error};
use crate::store_change::{StoreChange, listener};

/// The core's `Builder`. A step that fails says why; the others say nothing.
#[napi]
pub struct LimiterBuilder {
    builder: Builder,
}

impl LimiterBuilder {
    fn step(&mut self, step: impl FnOnce(Builder) -> Result<Builder>) -> Option<Failure> {
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
    /// A limiter of which nothing is said yet.
    #[napi(factory, catch_unwind)]
    pub fn empty() -> Self {
        Self { builder: Limiter::builder() }
    }

    /// What a policy file says.
    #[napi(catch_unwind)]
    pub fn file(&mut self, path: String) -> Option<Failure> {
        self.step(|_| Builder::from_file(path))
    }

    /// Where usage lives.
    #[napi(catch_unwind)]
    pub fn store(&mut self, urls: Vec<String>) -> Option<Failure> {
        self.step(|builder| Ok(builder.stores(urls)))
    }

    /// From an old store to a new one.
    #[napi(catch_unwind)]
    pub fn rollout(&mut self, old_url: String, new_url: String, percent: f64) -> Option<Failure> {
        self.step(|builder| Ok(builder.rollout(old_url, new_url, percent)))
    }

    /// Whether usage lives in this process, so that answers come at once.
    #[napi(catch_unwind)]
    pub fn is_local(&self) -> bool {
        self.builder.is_local()
    }

    /// A policy under a name.
    #[napi(catch_unwind)]
    pub fn policy(&mut self, name: String, policy: &Policy) -> Option<Failure> {
        self.step(|builder| builder.named(policy.policy.clone().named(name)?))
    }

    /// What every key in Redis begins with.
    #[napi(catch_unwind)]
    pub fn prefix(&mut self, prefix: String) -> Option<Failure> {
        self.step(|builder| Ok(builder.prefix(prefix)))
    }

    /// The longest a call may wait for the store.
    #[napi(catch_unwind)]
    pub fn timeout(&mut self, length: f64) -> Option<Failure> {
        self.step(|builder| Ok(builder.timeout(milliseconds("timeoutMs", length)?)))
    }

    /// What a check answers when the store fails.
    #[napi(catch_unwind)]
    pub fn on_store_error(&mut self, word: String) -> Option<Failure> {
        self.step(|builder| Ok(builder.on_store_error(on_store_error(&word, ErrorKind::ConfigInvalid)?)))
    }

    /// How long denials may be repeated without asking.
    #[napi(catch_unwind)]
    pub fn deny_cache(&mut self, length: f64) -> Option<Failure> {
        self.step(|builder| Ok(builder.deny_cache(milliseconds("denyCacheMs", length)?)))
    }

    /// Who is told when a store is lost or back.
    #[napi(catch_unwind, ts_args_type = "listener: (change: StoreChange) => void")]
    pub fn on_change(&mut self, told: Function<'_, StoreChange, ()>) -> napi::Result<()> {
        let listener = listener(&told)?;
        self.builder = std::mem::take(&mut self.builder).on_change(listener);
        Ok(())
    }

    /// A clock for tests.
    #[napi(catch_unwind)]
    pub fn clock(&mut self, clock: &Clock) -> Option<Failure> {
        self.step(|builder| Ok(builder.clock(clock.clock.clone())))
    }

    /// Opens the limiter. Calls are read from `calls` and `text`, answers are written to `answers`; `wake_callback` is called
    /// when more answers are there.
    #[napi(
        catch_unwind,
        ts_args_type = "calls: Float64Array, text: Uint16Array, answers: Float64Array, wake_callback: (count?: number) => void, watches: boolean"
    )]
    pub fn open(
        &mut self,
        env: Env,
        calls: Float64Array,
        text: Uint16Array,
        answers: Float64Array,
        wake_callback: Function<'_, i32, ()>,
        watches: bool,
    ) -> napi::Result<Either<NativeLimiter, Failure>> {
        let reader = wake_callback.create_ref()?;
        let wake_callback =
            wake_callback.build_threadsafe_function::<()>().weak::<true>().build_callback(|_| Ok(()))?;
        Ok(match std::mem::take(&mut self.builder).build_async() {
            Ok(limiter) => {
                let native_limiter =
                    NativeLimiter::new(limiter, NodeCompletions::new(wake_callback), calls, text, answers);
                if watches {
                    native_limiter.watch(&env, reader);
                }
                Either::A(native_limiter)
            }
            Err(error) => Either::B(error.into()),
        })
    }
}
