//! A builder that collects the options of a limiter.

use napi::Env;
use napi::bindgen_prelude::{Either, Either4, Float64Array, Function, Uint8Array, Uint16Array};
use napi_derive::napi;
use tidegate::host::{ArgumentKind, LIMITER_OPTIONS, SettingValue};
use tidegate::{Builder, ErrorKind, Limiter, Result};

use crate::batch_codec::{BatchCodec, NodeCompletions};
use crate::clock::Clock;
use crate::error_value::{ErrorValue, crossing, node_name};
use crate::native_limiter::NativeLimiter;
use crate::number::{self, milliseconds};
use crate::own_store::OwnStore;
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

    /// The store. If there are several, each has a share of the keys.
    #[napi(catch_unwind)]
    pub fn store(&mut self, urls: Vec<String>) -> Option<ErrorValue> {
        self.step(|builder| Ok(builder.stores(urls)))
    }

    /// A store of the application.
    #[napi(catch_unwind)]
    pub fn own_store(&mut self, store: &OwnStore) {
        if let Some(host) = store.take() {
            self.builder = std::mem::take(&mut self.builder).key_value_store(host);
        }
    }

    /// A move from an old store to a new one.
    #[napi(catch_unwind)]
    pub fn rollout(&mut self, old_url: String, new_url: String, percent: f64) -> Option<ErrorValue> {
        self.step(|builder| Ok(builder.rollout(old_url, new_url, percent)))
    }

    /// True if usage lives in this process, so that every answer is immediate.
    #[napi(catch_unwind)]
    pub fn is_local(&self) -> bool {
        self.builder.is_local()
    }

    /// A policy under a name.
    #[napi(catch_unwind)]
    pub fn policy(&mut self, name: String, policy: &Policy) -> Option<ErrorValue> {
        self.step(|builder| builder.named(policy.policy.clone().named(name)?))
    }

    /// Sets an option by its name. TypeScript has checked the type of its value.
    #[napi(catch_unwind)]
    pub fn set(&mut self, name: String, value: Either4<f64, String, Uint8Array, bool>) -> Option<ErrorValue> {
        self.step(|builder| {
            let Some(option) = LIMITER_OPTIONS.iter().find(|option| node_name(option.declaration.name) == name) else {
                return Ok(builder);
            };
            let value = match (option.declaration.kind, value) {
                (ArgumentKind::OnStoreError, Either4::B(word)) => {
                    SettingValue::OnStoreError(on_store_error(&word, ErrorKind::ConfigInvalid)?)
                }
                (ArgumentKind::Duration, Either4::A(length)) => SettingValue::Duration(milliseconds(&name, length)?),
                (_, Either4::A(callers)) => SettingValue::Count(number::callers(&name, callers)?),
                (_, Either4::B(text)) => SettingValue::Text(text),
                (_, Either4::C(secret)) => SettingValue::Secret(secret.to_vec()),
                (_, Either4::D(on)) => SettingValue::Flag(on),
            };
            Ok(match option.set {
                Some(set) => set(builder, value),
                None => builder,
            })
        })
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

    /// Opens the limiter. `array_layout.rs` describes the arrays. `onAnswers` is called when answers were delivered: with
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
        Ok(crossing(std::mem::take(&mut self.builder).build_async().map(|limiter| {
            let completions = NodeCompletions::new(wake_callback);
            let native = NativeLimiter::new(BatchCodec::new(limiter, completions, calls, key_text, answers));
            if reads_on_loop {
                native.read_on_loop(&env, loop_callback);
            }
            native
        })))
    }
}
