//! A store that is a JavaScript object. Its methods are called on the event loop, and `lib/stores.ts` brings their answers back.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use napi::bindgen_prelude::{Function, Uint8Array};
use napi::threadsafe_function::ThreadsafeFunctionCallMode;
use napi_derive::napi;
use parking_lot::Mutex;
use tidegate::host::{Asked, HostStore, InheritedMutex, Question, Reply, begin_verify};
use tidegate::store::{BoxError, Change, StoreFailure, Swapped, Value};

use crate::error_value::{ErrorValue, StoreCause};

/// A value in a store. The version is encoded.
#[napi(object)]
pub struct StoredValue {
    /// Its version.
    pub version: Uint8Array,
    /// Its bytes.
    pub data: Uint8Array,
}

/// A change of a key.
#[napi(object)]
pub struct StoredChange {
    /// The key.
    pub key: Uint8Array,
    /// The version that it replaces.
    pub version: Option<Uint8Array>,
    /// The new value.
    pub data: Option<Uint8Array>,
    /// When it may be dropped, in milliseconds since 1970.
    pub expires_at: f64,
}

/// A call of a method. It has the keys of `read`, the changes of `compareAndSwap`, or the prefix of `scan`.
#[napi(object)]
pub struct StoreQuestion {
    /// Its number.
    pub id: u32,
    /// Its keys.
    pub keys: Option<Vec<Uint8Array>>,
    /// Its changes.
    pub changes: Option<Vec<StoredChange>>,
    /// Its prefix.
    pub prefix: Option<Uint8Array>,
    /// The milliseconds that are left.
    pub timeout_ms: f64,
}

impl StoreQuestion {
    fn new(id: u32, question: &Question) -> Self {
        let timeout_ms = question.left().as_secs_f64() * 1_000.0;
        let mut asked = Self { id, keys: None, changes: None, prefix: None, timeout_ms };
        match &question.asked {
            Asked::Read(keys) => asked.keys = Some(keys.iter().map(copied).collect()),
            Asked::Swap(changes) => asked.changes = Some(changes.iter().map(StoredChange::from).collect()),
            Asked::Scan(prefix) => asked.prefix = Some(copied(prefix)),
            Asked::Epoch => {}
        }
        asked
    }
}

fn copied(bytes: impl AsRef<[u8]>) -> Uint8Array {
    Uint8Array::new(bytes.as_ref().to_vec())
}

impl From<&Change> for StoredChange {
    fn from(change: &Change) -> Self {
        let since = change.expires_at.duration_since(UNIX_EPOCH).unwrap_or_default();
        Self {
            key: copied(&change.key),
            version: change.version.as_ref().map(copied),
            data: change.data.as_ref().map(copied),
            expires_at: since.as_secs_f64() * 1_000.0,
        }
    }
}

impl From<StoredValue> for Value {
    fn from(value: StoredValue) -> Self {
        Self { version: value.version.to_vec(), data: value.data.to_vec() }
    }
}

/// The calls that are under way, by number.
#[derive(Default)]
struct Questions {
    last: u32,
    open: HashMap<u32, Question>,
}

/// A store of the application.
#[napi]
pub struct OwnStore {
    questions: Arc<InheritedMutex<Questions>>,
    /// The store until a limiter takes it.
    host: Mutex<Option<HostStore>>,
}

impl OwnStore {
    pub(crate) fn take(&self) -> Option<HostStore> {
        self.host.lock().take()
    }

    fn answer(&self, id: u32, answer: Result<Reply, StoreFailure>) {
        let question = self.questions.lock().open.remove(&id);
        if let Some(question) = question {
            question.answer(answer);
        }
    }
}

/// A clock in milliseconds since 1970. `lib/stores.ts` has checked it.
fn clock(now: Option<f64>) -> Option<SystemTime> {
    now.map(|now| UNIX_EPOCH + Duration::try_from_secs_f64(now / 1_000.0).unwrap_or_default())
}

#[napi]
impl OwnStore {
    /// A store whose calls `ask` begins.
    #[napi(
        factory,
        catch_unwind,
        ts_args_type = "name: string, scans: boolean, hasEpoch: boolean, allOrNone: boolean, maxValue: number, ask: (question: StoreQuestion) => void"
    )]
    pub fn create(
        name: String,
        scans: bool,
        has_epoch: bool,
        all_or_none: bool,
        max_value: f64,
        ask: Function<'_, StoreQuestion, ()>,
    ) -> napi::Result<Self> {
        let callback = ask.build_threadsafe_function().weak::<true>().build()?;
        let questions = Arc::new(InheritedMutex::<Questions>::default());
        let shared = Arc::clone(&questions);
        let post = move |question: Question| {
            let mut questions = shared.lock();
            questions.open.retain(|_, question| question.is_open());
            questions.last = questions.last.wrapping_add(1);
            let id = questions.last;
            let asked = StoreQuestion::new(id, &question);
            questions.open.insert(id, question);
            drop(questions);
            // The call fails when the event loop is being torn down. Then no call is left to answer.
            let _ = callback.call(asked, ThreadsafeFunctionCallMode::NonBlocking);
        };
        let host = HostStore {
            name,
            scans,
            has_epoch,
            all_or_none,
            max_value: max_value as usize,
            post: Box::new(post),
            callers: None,
            data: None,
        };
        Ok(Self { questions, host: Mutex::new(Some(host)) })
    }

    /// Answers a call of `read`.
    #[napi(catch_unwind)]
    pub fn answer_values(&self, id: u32, now: Option<f64>, values: Vec<Option<StoredValue>>) {
        let values = values.into_iter().map(|value| value.map(Value::from));
        self.answer(id, Ok(Reply::Values(clock(now), values.collect())));
    }

    /// Answers a call of `compareAndSwap`. `done` says which changes were done, and `standing` has the values of the others.
    #[napi(catch_unwind)]
    pub fn answer_swaps(&self, id: u32, now: Option<f64>, done: Vec<bool>, standing: Vec<Option<StoredValue>>) {
        let lost = |standing: Option<StoredValue>| Swapped::Lost(standing.map(Value::from));
        let results = done.into_iter().zip(standing);
        let results = results.map(|(done, standing)| if done { Swapped::Done } else { lost(standing) });
        self.answer(id, Ok(Reply::Swapped(clock(now), results.collect())));
    }

    /// Answers a call of `scan`.
    #[napi(catch_unwind)]
    pub fn answer_keys(&self, id: u32, keys: Vec<Uint8Array>) {
        self.answer(id, Ok(Reply::Keys(keys.iter().map(|key| key.to_vec()).collect())));
    }

    /// Answers a call of `epoch`.
    #[napi(catch_unwind)]
    pub fn answer_epoch(&self, id: u32, epoch: Uint8Array) {
        self.answer(id, Ok(Reply::Epoch(epoch.to_vec())));
    }

    /// Answers a call that failed, with the number of its error, or with a sentence about a wrong answer.
    #[napi(catch_unwind)]
    pub fn fail(&self, id: u32, message: String, number: Option<u32>, not_applied: bool) {
        let failure = match number {
            None => StoreFailure::WrongAnswer(message),
            Some(number) => {
                let cause = BoxError::from(StoreCause { message, number });
                if not_applied { StoreFailure::NotApplied(cause) } else { StoreFailure::Failed(cause) }
            }
        };
        self.answer(id, Err(failure));
    }

    /// Tests the store. `done` gets the defect, if there is one.
    #[napi(catch_unwind, ts_args_type = "done: (defect: ErrorValue | null) => void")]
    pub fn verify(&self, done: Function<'_, Option<ErrorValue>, ()>) -> napi::Result<Option<ErrorValue>> {
        let callback = done.build_threadsafe_function().weak::<true>().build()?;
        let Some(host) = self.take() else { return Ok(None) };
        let verified = begin_verify(host, move |result| {
            let _ = callback.call(result.err().map(ErrorValue::from), ThreadsafeFunctionCallMode::NonBlocking);
        });
        Ok(verified.err().map(ErrorValue::from))
    }
}
