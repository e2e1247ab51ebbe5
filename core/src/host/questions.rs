//! A store whose methods belong to a host: its questions wait until the host answers them, so that no thread of the core touches an
//! object of the host.

use std::any::Any;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use tokio::sync::oneshot;

use crate::error::{Error, Result};
use crate::process::fork::{PerProcess, ProcessValue};
use crate::process::lock::{Condvar, Mutex};
use crate::store::application::runtime;
use crate::store::completion::Wake;
use crate::store::{BoxError, CallerQueue, Change, KeyValueStore, StoreAnswer, StoreFailure, Swapped, Value, verify};

/// A caller looks at least this often if it has its answer.
const LOOK: Duration = Duration::from_millis(100);

/// The method that is called, and its argument.
#[derive(Debug)]
pub enum AskedMethod {
    /// `read`
    Read(Vec<Vec<u8>>),
    /// `compare_and_swap`
    Swap(Vec<Change>),
    /// `scan`
    Scan(Vec<u8>),
    /// `epoch`
    Epoch,
}

/// The answer of a method.
#[derive(Debug)]
pub enum MethodReply {
    /// Of `read`.
    Values(Option<SystemTime>, Vec<Option<Value>>),
    /// Of `compare_and_swap`.
    Swapped(Option<SystemTime>, Vec<Swapped>),
    /// Of `scan`.
    Keys(Vec<Vec<u8>>),
    /// Of `epoch`.
    Epoch(Vec<u8>),
}

/// A call of a method, which the host makes.
pub struct Question {
    /// The method.
    pub asked: AskedMethod,
    deadline: Instant,
    answer: oneshot::Sender<Result<MethodReply, StoreFailure>>,
}

impl Question {
    /// True if an answer is still of use.
    #[must_use]
    pub fn is_open(&self) -> bool {
        !self.answer.is_closed() && Instant::now() < self.deadline
    }

    /// The time that is left.
    #[must_use]
    pub fn left(&self) -> Duration {
        self.deadline.saturating_duration_since(Instant::now())
    }

    /// Answers it.
    pub fn answer(self, answer: Result<MethodReply, StoreFailure>) {
        // The asker may have given up.
        drop(self.answer.send(answer));
    }

    fn end(self, answer: Option<Result<MethodReply, StoreFailure>>) {
        if let Some(answer) = answer {
            self.answer(answer);
        }
    }
}

/// A store of a host.
pub struct HostStore {
    /// The name in messages.
    pub name: String,
    /// If it has `scan`.
    pub scans: bool,
    /// If it has `epoch`.
    pub has_epoch: bool,
    /// If `compare_and_swap` makes all changes or none.
    pub all_or_none: bool,
    /// The most bytes of a value.
    pub max_value: usize,
    /// Takes a question, on any thread.
    pub post: Box<dyn Fn(Question) + Send + Sync>,
    /// The queue whose questions waiting callers answer.
    pub callers: Option<Arc<dyn CallerQueue>>,
    /// Data that the host finds again in its limiter.
    pub data: Option<Arc<dyn Any + Send + Sync>>,
}

impl HostStore {
    async fn ask(&self, asked: AskedMethod, timeout: Duration) -> Result<MethodReply, StoreFailure> {
        let (answer, answered) = oneshot::channel();
        (self.post)(Question { asked, deadline: Instant::now() + timeout, answer });
        answered.await.unwrap_or_else(|_| Err(StoreFailure::Failed(BoxError::from("the call was dropped"))))
    }
}

fn confused<T>() -> Result<T, StoreFailure> {
    Err(StoreFailure::WrongAnswer("the answer of another method".to_owned()))
}

impl KeyValueStore for HostStore {
    async fn read(&self, keys: &[&[u8]], timeout: Duration) -> StoreAnswer<Option<Value>> {
        match self.ask(AskedMethod::Read(keys.iter().map(|key| key.to_vec()).collect()), timeout).await? {
            MethodReply::Values(now, values) => Ok((now, values)),
            _ => confused(),
        }
    }

    async fn compare_and_swap(&self, changes: &[Change], timeout: Duration) -> StoreAnswer<Swapped> {
        match self.ask(AskedMethod::Swap(changes.to_vec()), timeout).await? {
            MethodReply::Swapped(now, results) => Ok((now, results)),
            _ => confused(),
        }
    }

    async fn scan(&self, prefix: &[u8], timeout: Duration) -> Result<Vec<Vec<u8>>, StoreFailure> {
        match self.ask(AskedMethod::Scan(prefix.to_vec()), timeout).await? {
            MethodReply::Keys(keys) => Ok(keys),
            _ => confused(),
        }
    }

    fn scans(&self) -> bool {
        self.scans
    }

    async fn epoch(&self, timeout: Duration) -> Result<Option<Vec<u8>>, StoreFailure> {
        if !self.has_epoch {
            return Ok(None);
        }
        match self.ask(AskedMethod::Epoch, timeout).await? {
            MethodReply::Epoch(epoch) => Ok(Some(epoch)),
            _ => confused(),
        }
    }

    fn all_or_none(&self) -> bool {
        self.all_or_none
    }

    fn max_value(&self) -> usize {
        self.max_value
    }

    fn name(&self) -> String {
        self.name.clone()
    }

    fn callers(&self) -> Option<Arc<dyn CallerQueue>> {
        self.callers.clone()
    }

    fn host_data(&self) -> Option<Arc<dyn Any + Send + Sync>> {
        self.data.clone()
    }
}

/// Runs the test kit on a thread of its own. `done` gets its result there.
///
/// # Errors
/// `store_unavailable` if the system starts no thread.
pub fn begin_verify(store: HostStore, done: impl FnOnce(Result<()>) + Send + 'static) -> Result<()> {
    let runtime = runtime()?;
    let run = move || done(runtime.block_on(verify(&store)));
    let thread = std::thread::Builder::new().name("tidegate-verify".to_owned()).spawn(run);
    thread.map(drop).map_err(|error| Error::no_thread(&error))
}

/// Runs the test kit on a thread of its own, for a task.
///
/// # Errors
/// As [`begin_verify`], and the defect.
pub async fn verify_awaited(store: HostStore) -> Result<()> {
    let (answer, answered) = oneshot::channel();
    begin_verify(store, move |result| drop(answer.send(result)))?;
    answered.await.unwrap_or_else(|_| Err(Error::config("the test kit has ended early")))
}

/// Makes the call of a question. Without an answer the question is dropped.
type MakeCall = dyn Fn(&Question) -> Option<Result<MethodReply, StoreFailure>> + Send + Sync;

/// The questions of a store whose methods block. The callers who wait for an answer make its calls. A thread that lives only as long as
/// there are calls makes those for which no caller is free, such as the renewal of a hold.
pub struct CallerQuestions {
    shared: PerProcess<SharedQuestions>,
    make_call: Arc<MakeCall>,
}

#[derive(Default)]
struct SharedQuestions {
    state: Mutex<WaitingQuestions>,
    changed: Condvar,
}

#[derive(Default)]
struct WaitingQuestions {
    questions: VecDeque<Question>,
    /// The callers who make no call at the moment.
    free: usize,
}

impl CallerQuestions {
    /// `make_call` makes the call of a question on the thread of a caller.
    pub fn new(
        make_call: impl Fn(&Question) -> Option<Result<MethodReply, StoreFailure>> + Send + Sync + 'static,
    ) -> Self {
        Self { shared: PerProcess::new(), make_call: Arc::new(make_call) }
    }

    fn shared(&self) -> Arc<ProcessValue<SharedQuestions>> {
        self.shared.get_or_init(SharedQuestions::default)
    }

    /// Takes a question.
    pub fn post(&self, question: Question) {
        let shared = self.shared();
        let mut state = shared.state.lock();
        state.questions.push_back(question);
        self.hand_on(&shared, &state);
    }

    /// Finds a caller for a question, or starts a thread.
    fn hand_on(&self, shared: &Arc<ProcessValue<SharedQuestions>>, state: &WaitingQuestions) {
        if state.questions.is_empty() {
            return;
        }
        if state.questions.len() <= state.free {
            return shared.changed.notify_one();
        }
        let (shared, make_call) = (Arc::clone(shared), Arc::clone(&self.make_call));
        let make_calls = move || {
            loop {
                let question = shared.state.lock().questions.pop_front();
                let Some(question) = question else { break };
                let answer = make_call(&question);
                question.end(answer);
            }
        };
        // Without the thread the question ends by its deadline, or a caller takes it.
        drop(std::thread::Builder::new().name("tidegate-store".to_owned()).spawn(make_calls));
    }
}

impl Wake for CallerQuestions {
    fn wake(&self) {
        let shared = self.shared();
        // A caller that looks for its answer at this moment has the lock.
        drop(shared.state.lock());
        shared.changed.notify_all();
    }
}

impl CallerQueue for CallerQuestions {
    fn enter(&self) {
        self.shared().state.lock().free += 1;
    }

    fn work(&self, answered: &mut dyn FnMut() -> bool, until: Instant) {
        let shared = self.shared();
        let mut state = shared.state.lock();
        loop {
            let now = Instant::now();
            if answered() || now >= until {
                return;
            }
            if let Some(question) = state.questions.pop_front() {
                state.free -= 1;
                drop(state);
                let answer = (self.make_call)(&question);
                // The next question may come as soon as this one is answered, and finds this caller free.
                shared.state.lock().free += 1;
                question.end(answer);
                state = shared.state.lock();
            } else {
                (state, _) = shared.changed.wait_until(state, until.min(now + LOOK));
            }
        }
    }

    fn leave(&self) {
        let shared = self.shared();
        let mut state = shared.state.lock();
        state.free -= 1;
        self.hand_on(&shared, &state);
    }
}
