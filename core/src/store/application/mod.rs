//! A store of the application below the machine of `swap`: it asks the methods of the store, and judges their answers.

use std::fmt::Display;
use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tokio::runtime::Handle;

use super::completion::{awaited, wake};
use super::key_value_store::{
    CallerQueue, KeyChange as Change, KeyValueStore, StandingValue as Value, StoreFailure, Swapped, WaitingCaller,
};
use super::stored_key::StoredKey;
use super::swap::{
    self, CallId, ChangeSet, Event, FoundValue, IoOutcome, Promises, SwapIo, SwapResult, SwapServer, SwapStore,
    Version, received, waking,
};
use super::{MAX_ENTRIES, OpenStore};
use crate::error::{Error, ErrorKind, Result, visible};
use crate::process::lock::InheritedMutex;

/// A runtime for one thread, for hosts.
pub(crate) fn runtime() -> Result<tokio::runtime::Runtime> {
    swap::runtime()
}

/// The calls of the methods that may be on the way at once.
const MAX_CALLS: usize = 4;
/// The first pause before a swap that did not happen is tried again, and the longest.
const FIRST_PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_millis(50);
/// A value lives so much longer than it has a meaning, as in Redis. The clock that drops it may be another one than that of the store.
const MORE_LIFETIME: Duration = Duration::from_secs(1);
/// The pause behind a swap with an unknown outcome.
const PAUSE_AFTER_FAILURE: Duration = Duration::from_millis(10);
/// The passes of a `clear_all`, and the most keys that it reports as written meanwhile.
const PASSES_OF_CLEAR: usize = 3;
const MAX_LEFT: usize = 10;
/// The most characters of a foreign message that an error shows.
const MAX_SHOWN: usize = 200;

/// A store of the application.
pub(crate) struct ApplicationStore<K> {
    store: Arc<K>,
    name: String,
    /// The runtime of the engine.
    runtime: InheritedMutex<Option<Handle>>,
}

/// A function that opens a store. Each limiter of a builder shares the store.
pub(crate) fn opener<K: KeyValueStore>(store: K) -> OpenStore {
    let store = Arc::new(store);
    Arc::new(move |names, timeout, log| {
        // The first runtime makes globals of the process. A fork while another thread makes them would leave them half made.
        drop(swap::runtime()?);
        let (name, all_or_none) = (store.name(), store.all_or_none());
        let store = ApplicationStore { store: Arc::clone(&store), name, runtime: InheritedMutex::default() };
        Ok((Arc::new(SwapStore::new(store, names, timeout, log)), all_or_none))
    })
}

/// Why a method has no answer.
struct MethodFailure {
    error: Error,
    /// It may be tried again.
    not_applied: bool,
}

impl<K: KeyValueStore> ApplicationStore<K> {
    /// Calls a method. It ends at the deadline.
    async fn call<T, F: Future<Output = Result<T, StoreFailure>>>(
        &self,
        method: &str,
        deadline: Instant,
        call: impl FnOnce(Duration) -> F,
    ) -> Result<T, MethodFailure> {
        let left = deadline.saturating_duration_since(Instant::now());
        let late = || Error::new(ErrorKind::StoreTimeout, format!("{}.{method} did not answer in time", self.name));
        if left.is_zero() {
            return Err(MethodFailure { error: late().of_no_run(), not_applied: false });
        }
        let Ok(answer) = tokio::time::timeout_at(deadline.into(), call(left)).await else {
            return Err(MethodFailure { error: late(), not_applied: false });
        };
        answer.map_err(|failure| {
            let not_applied = matches!(failure, StoreFailure::NotApplied(_));
            let error = match failure {
                StoreFailure::NotApplied(cause) | StoreFailure::Failed(cause) => {
                    let message = format!("{}.{method} failed: {}", self.name, shown(&cause));
                    Error::new(ErrorKind::StoreUnavailable, message).caused_by(cause)
                }
                StoreFailure::WrongAnswer(wrong) => self.wrong_answer(method, wrong),
            };
            MethodFailure { error: if not_applied { error.of_no_run() } else { error }, not_applied }
        })
    }

    fn wrong_answer(&self, method: &str, wrong: impl Display) -> Error {
        Error::new(ErrorKind::StoreRejected, format!("{}.{method} returned {wrong}", self.name))
    }

    /// An error if there is not one answer for each key or change.
    fn counted(&self, method: &str, answers: usize, asked: usize) -> Result<(), MethodFailure> {
        if answers == asked {
            return Ok(());
        }
        let error =
            self.wrong_answer(method, format!("{answers} answers to {asked} questions: it must return one for each"));
        Err(MethodFailure { error, not_applied: false })
    }

    async fn read_values(
        &self,
        keys: &[StoredKey],
        deadline: Instant,
    ) -> Result<(Option<u64>, Vec<Option<FoundValue>>), MethodFailure> {
        let (mut clock, mut values) = (None, Vec::with_capacity(keys.len()));
        for part in keys.chunks(MAX_ENTRIES) {
            let part: Vec<&[u8]> = part.iter().map(StoredKey::as_bytes).collect();
            let (now, found) = self.call("read", deadline, |left| self.store.read(&part, left)).await?;
            self.counted("read", found.len(), part.len())?;
            clock = now.map(micros);
            values.extend(found.into_iter().map(|value| value.map(FoundValue::from)));
        }
        Ok((clock, values))
    }

    /// The epoch of the store as a number. Without one, leases give nothing back.
    async fn epoch(&self, deadline: Instant) -> Option<u64> {
        let epoch = self.call("epoch", deadline, |left| self.store.epoch(left)).await.ok()??;
        let digest = blake3::hash(&epoch);
        digest.as_bytes().first_chunk().map(|bytes| u64::from_le_bytes(*bytes))
    }

    /// Makes changes in one call. A swap that certainly did not happen is tried again.
    async fn swap_together(
        &self,
        changes: &[Change],
        deadline: Instant,
    ) -> Result<(Option<u64>, Vec<SwapResult>), MethodFailure> {
        let mut pause = FIRST_PAUSE;
        loop {
            let swap = |left| self.store.compare_and_swap(changes, left);
            match self.call("compare_and_swap", deadline, swap).await {
                // Enough time is left to say why, if the next swap fails too.
                Err(failure) if failure.not_applied && Instant::now() + 2 * pause < deadline => {
                    tokio::time::sleep(pause).await;
                    pause = (2 * pause).min(LONGEST_PAUSE);
                }
                Err(failure) => return Err(failure),
                Ok((now, results)) => {
                    self.counted("compare_and_swap", results.len(), changes.len())?;
                    return Ok((now.map(micros), results.into_iter().map(SwapResult::from).collect()));
                }
            }
        }
    }

    /// Makes change sets. With `all_or_none`, a lost key refuses every set of its call, so the others are then asked alone.
    async fn swap_sets(
        &self,
        sets: &[ChangeSet],
        deadline: Instant,
    ) -> Result<(Option<u64>, Vec<SwapResult>), MethodFailure> {
        let changes: Vec<Change> = sets.iter().flat_map(|set| &set.changes).map(Change::from).collect();
        let (mut clock, mut results) = (None, Vec::with_capacity(changes.len()));
        for part in changes.chunks(MAX_ENTRIES) {
            match self.swap_together(part, deadline).await {
                Ok((now, swapped)) => {
                    clock = now;
                    results.extend(swapped);
                }
                Err(failure) => return Err(failure.after(!results.is_empty())),
            }
        }
        if !self.store.all_or_none() || sets.len() == 1 {
            return Ok((clock, results));
        }
        let mut from = 0;
        for ChangeSet { changes: of_set, .. } in sets {
            let range = from..from + of_set.len();
            from = range.end;
            let is_free = |(change, result): (&Change, &SwapResult)| match result {
                SwapResult::Done => false,
                SwapResult::Lost(found) => found.as_ref().map(|found| &found.version[..]) == change.version.as_deref(),
            };
            if changes[range.clone()].iter().zip(&results[range.clone()]).all(is_free) {
                match self.swap_together(&changes[range.clone()], deadline).await {
                    Ok((now, swapped)) => {
                        clock = now;
                        drop(results.splice(range, swapped));
                    }
                    // The set is lost, and asked again.
                    Err(failure) if failure.error.did_not_run() => {}
                    Err(failure) => return Err(failure),
                }
            }
        }
        Ok((clock, results))
    }

    /// The keys that begin with these bytes and have that length.
    async fn keys(&self, prefix: &[u8], length: usize, deadline: Instant) -> Result<Vec<StoredKey>> {
        if !self.store.scans() {
            return Err(Error::config(format!(
                "{} has no scan, which clear_all, overrides and top need: give it a method scan(prefix) that lists its keys",
                self.name
            )));
        }
        let found =
            self.call("scan", deadline, |left| self.store.scan(prefix, left)).await.map_err(|failure| failure.error)?;
        let is_asked = |key: &&Vec<u8>| key.len() == length && key.starts_with(prefix);
        Ok(found.iter().filter(is_asked).map(|key| StoredKey::of_bytes(key)).collect())
    }

    async fn delete_part(&self, keys: &[StoredKey], deadline: Instant) -> Result<(), MethodFailure> {
        let (_, values) = self.read_values(keys, deadline).await?;
        let deletion = |(key, found): (&StoredKey, Option<FoundValue>)| {
            let version = Some(found?.version);
            let change = swap::Change { key: key.clone(), version, data: None, expires_at: 0 };
            Some(ChangeSet { changes: vec![change], from: 0, until: u64::MAX })
        };
        let sets: Vec<ChangeSet> = keys.iter().zip(values).filter_map(deletion).collect();
        if !sets.is_empty() {
            self.swap_sets(&sets, deadline).await?;
        }
        Ok(())
    }

    /// Runs a rare question on the runtime of the engine, while its caller waits.
    fn wait_for<T: Send + 'static>(&self, question: impl Future<Output = Result<T>> + Send + 'static) -> Result<T> {
        let closed = || Error::new(ErrorKind::Closed, "the limiter is closed");
        let runtime = self.runtime.lock().clone().ok_or_else(closed)?;
        let caller = self.store.callers();
        let (completion, answer) = awaited();
        let completion = waking(completion, caller.clone());
        let caller = caller.map(WaitingCaller::enter);
        runtime.spawn(async move { wake(completion(question.await)) });
        // The question ends by its own deadlines.
        received(&answer, caller.as_ref(), Instant::now() + Duration::from_secs(3_600)).unwrap_or_else(|| Err(closed()))
    }
}

impl MethodFailure {
    /// The failure of a call that followed others that were made.
    fn after(self, others: bool) -> Self {
        if others && self.error.did_not_run() {
            let error = Error::new(self.error.kind(), self.error.message());
            return Self { error, ..self };
        }
        self
    }
}

/// The message of a foreign error, unless it may hold a secret.
fn shown(cause: &dyn Display) -> String {
    let text = cause.to_string();
    let lower = text.to_ascii_lowercase();
    if text.contains('@') || ["://", "password", "secret", "token"].iter().any(|word| lower.contains(word)) {
        return "its message is left out, because it may hold a secret".to_owned();
    }
    let line: String = text.lines().next().unwrap_or_default().chars().take(MAX_SHOWN).collect();
    visible(&line).into_owned()
}

/// Microseconds since 1970.
fn micros(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).unwrap_or_default().as_micros() as u64
}

impl From<Value> for FoundValue {
    fn from(Value { version, data }: Value) -> Self {
        Self { version: Version::from_vec(version), data }
    }
}

impl From<Swapped> for SwapResult {
    fn from(swapped: Swapped) -> Self {
        match swapped {
            Swapped::Done => Self::Done,
            Swapped::Lost(found) => Self::Lost(found.map(FoundValue::from)),
        }
    }
}

impl From<&swap::Change> for Change {
    fn from(change: &swap::Change) -> Self {
        Self {
            key: change.key.as_bytes().to_vec(),
            version: change.version.as_deref().map(<[u8]>::to_vec),
            data: change.data.clone(),
            expires_at: UNIX_EPOCH + Duration::from_micros(change.expires_at) + MORE_LIFETIME,
        }
    }
}

impl<K: KeyValueStore> SwapIo for ApplicationStore<K> {
    fn promises(&self) -> Promises {
        Promises { marks_are_versions: false, locks: false, max_value: self.store.max_value() }
    }

    fn max_calls(&self) -> usize {
        MAX_CALLS
    }

    fn begin(&self, runtime: &Handle) {
        *self.runtime.lock() = Some(runtime.clone());
    }

    fn read(
        self: Arc<Self>,
        keys: Vec<StoredKey>,
        _: Option<CallId>,
        needs_epoch: bool,
        deadline: Instant,
    ) -> IoOutcome {
        Box::pin(async move {
            match self.read_values(&keys, deadline).await {
                Ok((clock, values)) => {
                    let epoch = if needs_epoch { self.epoch(deadline).await } else { None };
                    Event::Read { clock, epoch, values }
                }
                Err(failure) => Event::NotRun(failure.error),
            }
        })
    }

    fn swap(self: Arc<Self>, sets: Vec<ChangeSet>, _: Option<CallId>, deadline: Instant) -> IoOutcome {
        Box::pin(async move {
            match self.swap_sets(&sets, deadline).await {
                Ok((clock, results)) => Event::Swapped { clock, results },
                Err(MethodFailure { error, .. }) if error.did_not_run() => Event::NotRun(error),
                Err(failure) => {
                    // It is tried again if it was not done, so a store that refuses at once must not be asked in a loop.
                    tokio::time::sleep_until((Instant::now() + PAUSE_AFTER_FAILURE).min(deadline).into()).await;
                    Event::Unknown(failure.error)
                }
            }
        })
    }
}

impl<K: KeyValueStore> SwapServer for ApplicationStore<K> {
    fn callers(&self) -> Option<Arc<dyn CallerQueue>> {
        self.store.callers()
    }

    fn scans(&self) -> bool {
        self.store.scans()
    }

    fn ping(self: Arc<Self>, deadline: Instant) -> Result<()> {
        let store = Arc::clone(&self);
        self.wait_for(async move {
            let read = store.read_values(&[StoredKey::of_bytes(b"ping")], deadline).await;
            read.map(drop).map_err(|failure| failure.error)
        })
    }

    fn scan(self: Arc<Self>, prefix: &[u8], length: usize, deadline: Instant) -> Result<(u64, Vec<Vec<u8>>)> {
        let (store, prefix) = (Arc::clone(&self), prefix.to_vec());
        self.wait_for(async move {
            let keys = store.keys(&prefix, length, deadline).await?;
            let (clock, values) = store.read_values(&keys, deadline).await.map_err(|failure| failure.error)?;
            let values = values.into_iter().flatten().map(|value| value.data);
            Ok((clock.unwrap_or_else(|| micros(SystemTime::now())), values.collect()))
        })
    }

    /// Deletes in parts. It ends after a few passes, although others write keys meanwhile.
    fn delete(self: Arc<Self>, prefix: &[u8], length: usize, timeout: Duration) -> Result<Vec<Vec<u8>>> {
        let (store, prefix) = (Arc::clone(&self), prefix.to_vec());
        self.wait_for(async move {
            let mut passes = 0;
            loop {
                let keys = store.keys(&prefix, length, Instant::now() + timeout).await?;
                if keys.is_empty() || passes == PASSES_OF_CLEAR {
                    return Ok(keys.iter().take(MAX_LEFT).map(|key| key.as_bytes().to_vec()).collect());
                }
                passes += 1;
                for part in keys.chunks(MAX_ENTRIES) {
                    store.delete_part(part, Instant::now() + timeout).await.map_err(|failure| failure.error)?;
                }
            }
        })
    }

    fn close(&self) {
        *self.runtime.lock() = None;
    }
}
