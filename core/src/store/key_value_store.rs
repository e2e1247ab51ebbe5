//! A store that an application brings: see docs/adr/0049.

use std::any::Any;
use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use super::completion::Wake;

/// The cause of a failure.
pub type StoreCause = Box<dyn std::error::Error + Send + Sync>;

/// A value that stands in the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StandingValue {
    /// The version. It never repeats for a key, not even after the value was deleted.
    pub version: Vec<u8>,
    /// The bytes.
    pub data: Vec<u8>,
}

/// A change of one key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyChange {
    /// The key.
    pub key: Vec<u8>,
    /// The version that it replaces. `None`: there must be no value.
    pub version: Option<Vec<u8>>,
    /// The new value. `None` deletes the key.
    pub data: Option<Vec<u8>>,
    /// From then on the store may drop the value. It must not drop it before.
    pub expires_at: SystemTime,
}

/// The result of one change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Swapped {
    /// It was done.
    Done,
    /// It was not done, because this value stands there. `None`: there is none.
    Lost(Option<StandingValue>),
}

/// Why a method of a store has no answer. Any error becomes `Failed` with `?`.
#[derive(Debug)]
#[non_exhaustive]
pub enum StoreFailure {
    /// A swap certainly did not happen. Tidegate tries it again until the deadline of its call.
    NotApplied(StoreCause),
    /// A read failed, or a swap may have happened.
    Failed(StoreCause),
    /// The answer of the method has not the form that it must have.
    WrongAnswer(String),
}

impl<E: std::error::Error + Send + Sync + 'static> From<E> for StoreFailure {
    fn from(error: E) -> Self {
        Self::Failed(Box::new(error))
    }
}

/// The clock of a store, if it has one, and an answer for each key or change, in their order.
pub type StoreAnswer<T> = Result<(Option<SystemTime>, Vec<T>), StoreFailure>;

/// A store of your own: it reads values with their versions, and replaces a value only if its version is still the same.
///
/// The methods are `async fn`s. They run on a thread of Tidegate with a runtime of tokio. If the client of your database blocks,
/// call it within `tokio::task::spawn_blocking`. [`verify`](super::verify) tests a store.
///
/// ```
/// use std::collections::HashMap;
/// use std::sync::Mutex;
/// use std::time::Duration;
/// use tidegate::Limiter;
/// use tidegate::store::{Change, KeyValueStore, StoreAnswer, Swapped, Value};
///
/// #[derive(Default)]
/// struct Table(Mutex<(u64, HashMap<Vec<u8>, Value>)>);
///
/// impl KeyValueStore for Table {
///     async fn read(&self, keys: &[&[u8]], _: Duration) -> StoreAnswer<Option<Value>> {
///         let (_, values) = &*self.0.lock().expect("no panic");
///         Ok((None, keys.iter().map(|key| values.get(*key).cloned()).collect()))
///     }
///
///     async fn compare_and_swap(&self, changes: &[Change], _: Duration) -> StoreAnswer<Swapped> {
///         let (count, values) = &mut *self.0.lock().expect("no panic");
///         let swap = |change: &Change| {
///             let standing = values.get(&change.key);
///             if standing.map(|value| &value.version) != change.version.as_ref() {
///                 return Swapped::Lost(standing.cloned());
///             }
///             *count += 1;
///             match &change.data {
///                 Some(data) => {
///                     let value = Value { version: count.to_le_bytes().to_vec(), data: data.clone() };
///                     values.insert(change.key.clone(), value)
///                 }
///                 None => values.remove(&change.key),
///             };
///             Swapped::Done
///         };
///         Ok((None, changes.iter().map(swap).collect()))
///     }
/// }
///
/// let limiter = Limiter::builder().key_value_store(Table::default()).policy("login", "20/minute")?.build()?;
/// assert!(limiter.check("login", "alice")?.allowed());
/// # Ok::<(), tidegate::Error>(())
/// ```
pub trait KeyValueStore: Send + Sync + 'static {
    /// Reads at most 256 keys of at most 64 bytes each. `timeout` is the time that is left.
    fn read(
        &self,
        keys: &[&[u8]],
        timeout: Duration,
    ) -> impl Future<Output = StoreAnswer<Option<StandingValue>>> + Send;

    /// Makes at most 256 changes, each only if the key has the version of the change.
    fn compare_and_swap(
        &self,
        changes: &[KeyChange],
        timeout: Duration,
    ) -> impl Future<Output = StoreAnswer<Swapped>> + Send;

    /// All keys that begin with these bytes, if [`scans`](Self::scans) is true.
    fn scan(
        &self,
        _prefix: &[u8],
        _timeout: Duration,
    ) -> impl Future<Output = Result<Vec<Vec<u8>>, StoreFailure>> + Send {
        async { Ok(Vec::new()) }
    }

    /// True if the store can list its keys. Without that, `clear_all`, `overrides` and `top` are an error.
    fn scans(&self) -> bool {
        false
    }

    /// A value that changes when the store restarts, so that leases can give units back. `None` if the store has none.
    fn epoch(&self, _timeout: Duration) -> impl Future<Output = Result<Option<Vec<u8>>, StoreFailure>> + Send {
        async { Ok(None) }
    }

    /// True promises that `compare_and_swap` makes all changes of a call or none, so that `check_all` is atomic.
    fn all_or_none(&self) -> bool {
        false
    }

    /// The most bytes of a value.
    fn max_value(&self) -> usize {
        DEFAULT_MAX_VALUE
    }

    /// The name of the store in messages. It is the same in all processes that share the store.
    fn name(&self) -> String {
        let name = std::any::type_name::<Self>();
        name.split('<').next().unwrap_or(name).rsplit("::").next().unwrap_or(name).to_owned()
    }

    /// The queue whose questions the callers of a host answer themselves while they wait.
    #[doc(hidden)]
    fn callers(&self) -> Option<Arc<dyn CallerQueue>> {
        None
    }

    /// Data that a host finds again in its limiter.
    #[doc(hidden)]
    fn host_data(&self) -> Option<Arc<dyn Any + Send + Sync>> {
        None
    }
}

/// The most bytes of a value, if a store has no other bound.
pub const DEFAULT_MAX_VALUE: usize = 256_000;

/// Lets callers that wait for an answer work for the store meanwhile. It is woken when an answer has arrived.
#[doc(hidden)]
pub trait CallerQueue: Wake {
    /// A caller is about to wait.
    fn enter(&self);

    /// Works until `answered` returns true or that moment has come.
    fn work(&self, answered: &mut dyn FnMut() -> bool, until: Instant);

    /// A caller has stopped waiting.
    fn leave(&self);
}

/// A caller that waits. It leaves when this is dropped.
#[doc(hidden)]
pub struct WaitingCaller(Arc<dyn CallerQueue>);

impl WaitingCaller {
    /// Call it before the question that the caller waits for, so that the caller can answer it itself.
    pub fn enter(queue: Arc<dyn CallerQueue>) -> Self {
        queue.enter();
        Self(queue)
    }

    /// Works until `answered` returns true or that moment has come.
    pub fn work(&self, answered: &mut dyn FnMut() -> bool, until: Instant) {
        self.0.work(answered, until);
    }
}

impl Drop for WaitingCaller {
    fn drop(&mut self) {
        self.0.leave();
    }
}
