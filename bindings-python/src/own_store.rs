//! A store that is a Python object. Its methods run on the threads of callers, or as tasks of their event loops. See docs/adr/0049.

use std::any::Any;
use std::collections::VecDeque;
use std::sync::{Arc, Weak};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use pyo3::exceptions::{PyKeyboardInterrupt, PyTypeError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBool, PyBytes, PyFloat, PyInt, PyString};
use tidegate::AsyncLimiter;
use tidegate::host::{Asked, CallerQuestions, HostStore, InheritedMutex, Mutex, Question, Reply, process_generation};
use tidegate::store::{CallerQueue, Change, DEFAULT_MAX_VALUE, StoreFailure, Swapped, Value};

use crate::convert::{in_seconds, shown};
use crate::error::config;
use crate::loop_completions::{AskedLoop, LoopCompletions, LoopWork};
use crate::python_call::PythonCall;

/// A clock beyond this is in other units than seconds.
const MAX_SECONDS: f64 = 9e9;

/// A store of the application.
pub(crate) struct OwnStore {
    object: Py<PyAny>,
    questions: Questions,
}

enum Questions {
    /// The methods block.
    OfCallers(Arc<CallerQuestions>),
    /// The methods are `async def`.
    OfLoops(InheritedMutex<LoopQuestions>),
}

/// The questions that no loop has taken, and the loops that use the store.
#[derive(Default)]
struct LoopQuestions {
    generation: u64,
    questions: VecDeque<Question>,
    loops: Vec<Weak<dyn AskedLoop>>,
}

impl LoopQuestions {
    /// Forgets those of a parent process.
    fn renew(&mut self) {
        if self.generation != process_generation() {
            *self = Self { generation: process_generation(), ..Self::default() };
        }
    }
}

/// True if a store is an object with the methods of a store.
pub(crate) fn is_store(given: &Bound<'_, PyAny>) -> PyResult<bool> {
    given.hasattr("compare_and_swap")
}

/// True if the methods of a store are `async def`. `class` is the limiter that is made of it.
fn is_async(store: &Bound<'_, PyAny>, class: Option<&str>) -> PyResult<bool> {
    let py = store.py();
    let is_async = py.import("inspect")?.getattr("iscoroutinefunction")?;
    let name = name(store)?;
    let of_method = |method: &str| {
        let missing = || config(format!("{name} has no method {method}, which a store needs beside the other one"));
        is_async.call1((store.getattr(method).map_err(|_| missing())?,))?.is_truthy()
    };
    let (reads, swaps) = (of_method("read")?, of_method("compare_and_swap")?);
    if reads != swaps {
        return Err(config(format!(
            "one of {name}.read and {name}.compare_and_swap is an async def: make both async, or none"
        )));
    }
    match class {
        Some(class) if class.starts_with("Async") && !reads => Err(config(format!(
            "AsyncLimiter needs a store whose methods are async def, because a method that blocks would stop the event loop: \
             use Limiter with {name}, or write its methods with async def"
        ))),
        Some(class) if !class.starts_with("Async") && reads => Err(config(format!(
            "Limiter needs a store whose methods block, and those of {name} are async def: use AsyncLimiter, or write them \
             without async"
        ))),
        _ => Ok(reads),
    }
}

fn name(store: &Bound<'_, PyAny>) -> PyResult<String> {
    Ok(store.get_type().name()?.to_string())
}

/// The store in the form that the core needs.
pub(crate) fn host_store(object: &Bound<'_, PyAny>, class: Option<&str>) -> PyResult<HostStore> {
    let (is_async, attribute) = (is_async(object, class)?, |name: &str| object.getattr_opt(name));
    let all_or_none = attribute("all_or_none")?.map_or(Ok(false), |promised| promised.is_truthy())?;
    let max_value = attribute("max_value")?.map_or(Ok(DEFAULT_MAX_VALUE), |most| {
        most.extract().map_err(|_| config(format!("max_value is {}: it must be a whole number of bytes", shown(&most))))
    })?;
    let questions = if is_async {
        Questions::OfLoops(InheritedMutex::default())
    } else {
        let object = object.clone().unbind();
        Questions::OfCallers(Arc::new(CallerQuestions::new(move |question| answer_here(&object, question))))
    };
    let callers = match &questions {
        Questions::OfCallers(callers) => Some(Arc::clone(callers) as Arc<dyn CallerQueue>),
        Questions::OfLoops(_) => None,
    };
    let store = Arc::new(OwnStore { object: object.clone().unbind(), questions });
    Ok(HostStore {
        name: name(object)?,
        scans: object.hasattr("scan")?,
        has_epoch: object.hasattr("epoch")?,
        all_or_none,
        max_value,
        data: Some(Arc::clone(&store) as Arc<dyn Any + Send + Sync>),
        callers,
        post: Box::new(move |question| store.post(question)),
    })
}

impl OwnStore {
    /// The store of a limiter, if it is a Python object.
    pub(crate) fn of(limiter: &AsyncLimiter) -> Option<Arc<Self>> {
        limiter.host_data()?.downcast().ok()
    }

    /// The queue of callers, if the methods block.
    pub(crate) fn callers(&self) -> Option<Arc<CallerQuestions>> {
        match &self.questions {
            Questions::OfCallers(callers) => Some(Arc::clone(callers)),
            Questions::OfLoops(_) => None,
        }
    }

    fn post(self: &Arc<Self>, question: Question) {
        match &self.questions {
            Questions::OfCallers(callers) => callers.post(question),
            Questions::OfLoops(shared) => {
                let mut state = shared.lock();
                state.renew();
                state.questions.retain(Question::is_open);
                state.questions.push_back(question);
                let loops = state.loops.clone();
                drop(state);
                // The first of them that runs takes it.
                loops.iter().filter_map(Weak::upgrade).for_each(|one| one.ask(Arc::clone(self) as Arc<dyn LoopWork>));
            }
        }
    }

    /// Notes that a loop uses the store.
    pub(crate) fn use_from(self: &Arc<Self>, completions: &LoopCompletions) {
        let Questions::OfLoops(shared) = &self.questions else { return };
        let mut state = shared.lock();
        state.renew();
        let list = completions.asked();
        if !state.loops.iter().any(|known| std::ptr::addr_eq(known.as_ptr(), Arc::as_ptr(&list))) {
            state.loops.retain(|known| known.strong_count() > 0);
            state.loops.push(Arc::downgrade(&list));
        }
        let waits = !state.questions.is_empty();
        drop(state);
        if waits {
            list.ask(Arc::clone(self) as Arc<dyn LoopWork>);
        }
    }
}

impl LoopWork for OwnStore {
    /// Makes a task for each question.
    fn begin(&self, event_loop: &Bound<'_, PyAny>) -> PyResult<()> {
        let Questions::OfLoops(shared) = &self.questions else { return Ok(()) };
        let py = event_loop.py();
        let questions = std::mem::take(&mut shared.lock().questions);
        for question in questions.into_iter().filter(Question::is_open) {
            let timeout = in_seconds(question.left());
            let question = Py::new(py, StoreQuestion { question: Mutex::new(Some(question)) })?;
            let serve = py.import("tidegate.stores")?.getattr("_begin")?;
            serve.call1((event_loop, &self.object, question, timeout))?;
        }
        Ok(())
    }
}

/// Makes the call of a question on this thread. There is no answer if the interpreter has ended.
fn answer_here(store: &Py<PyAny>, question: &Question) -> Option<Result<Reply, StoreFailure>> {
    Python::try_attach(|py| {
        if !question.is_open() {
            return None;
        }
        let _call = PythonCall::begin(py);
        let store = store.bind(py);
        let answer = called(store, &question.asked, question.left()).and_then(|answer| match question.asked {
            Asked::Scan(_) => answer.try_iter()?.collect::<PyResult<Vec<_>>>()?.into_pyobject(py),
            _ => Ok(answer),
        });
        Some(match answer {
            Ok(answer) => reply(&question.asked, &answer),
            Err(error) => Err(failure(py, error)),
        })
    })
    .flatten()
}

/// Calls the method of a question.
fn called<'py>(store: &Bound<'py, PyAny>, asked: &Asked, left: Duration) -> PyResult<Bound<'py, PyAny>> {
    static CHANGE: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let (py, left) = (store.py(), in_seconds(left));
    match asked {
        Asked::Read(keys) => {
            let keys: Vec<_> = keys.iter().map(|key| PyBytes::new(py, key)).collect();
            store.call_method1("read", (keys, left))
        }
        Asked::Swap(changes) => {
            let class = CHANGE.import(py, "tidegate.stores", "Change")?;
            let made = changes.iter().map(|Change { key, version, data, expires_at }| {
                let version = version.as_deref().map(|version| version_object(py, version)).transpose()?;
                let data = data.as_deref().map(|data| PyBytes::new(py, data));
                class.call1((PyBytes::new(py, key), version, data, seconds(*expires_at)))
            });
            store.call_method1("compare_and_swap", (made.collect::<PyResult<Vec<_>>>()?, left))
        }
        Asked::Scan(prefix) => store.call_method1("scan", (PyBytes::new(py, prefix),)),
        Asked::Epoch => store.call_method0("epoch"),
    }
}

fn seconds(time: SystemTime) -> f64 {
    time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}

/// An exception of a method.
fn failure(py: Python<'_>, error: PyErr) -> StoreFailure {
    if error.is_instance_of::<PyKeyboardInterrupt>(py) {
        // The caller gets it at its next step.
        drop(py.import("_thread").and_then(|thread| thread.call_method0("interrupt_main")));
    }
    let not_applied = py.import("tidegate.stores").and_then(|stores| stores.getattr("NotApplied"));
    let not_applied = not_applied.is_ok_and(|class| error.is_instance(py, &class));
    if not_applied { StoreFailure::NotApplied(error.into()) } else { StoreFailure::Failed(error.into()) }
}

/// Converts the answer of a method.
fn reply(asked: &Asked, answer: &Bound<'_, PyAny>) -> Result<Reply, StoreFailure> {
    match asked {
        Asked::Read(_) => answers(answer, value).map(|(now, values)| Reply::Values(now, values)),
        Asked::Swap(_) => answers(answer, swapped).map(|(now, results)| Reply::Swapped(now, results)),
        Asked::Scan(_) => {
            let keys = answer.try_iter().and_then(|keys| keys.map(|key| key?.extract()).collect::<PyResult<_>>());
            keys.map(Reply::Keys).map_err(|_| wrong(answer, "an iterator of keys, which are bytes"))
        }
        Asked::Epoch => version(answer).map(Reply::Epoch),
    }
}

fn wrong(given: &Bound<'_, PyAny>, expected: &str) -> StoreFailure {
    StoreFailure::WrongAnswer(format!("{}: it must return {expected}", shown(given)))
}

/// The clock of an answer, and the answers in it.
fn answers<T>(
    answer: &Bound<'_, PyAny>,
    convert: fn(&Bound<'_, PyAny>) -> Result<T, StoreFailure>,
) -> Result<(Option<SystemTime>, Vec<T>), StoreFailure> {
    let expected = "a tuple of its clock (or None) and a list with one answer for each key";
    let Ok((now, list)) = answer.extract::<(Bound<'_, PyAny>, Bound<'_, PyAny>)>() else {
        return Err(wrong(answer, expected));
    };
    let list = list.try_iter().and_then(Iterator::collect::<PyResult<Vec<_>>>).map_err(|_| wrong(&list, expected))?;
    Ok((clock(&now)?, list.iter().map(convert).collect::<Result<_, _>>()?))
}

fn clock(now: &Bound<'_, PyAny>) -> Result<Option<SystemTime>, StoreFailure> {
    if now.is_none() {
        return Ok(None);
    }
    let is_number = now.is_instance_of::<PyFloat>() || now.is_instance_of::<PyInt>();
    let seconds = now.extract::<f64>().ok().filter(|seconds| is_number && (0.0..MAX_SECONDS).contains(seconds));
    let expected = "its clock in unix seconds as a number, or None if it has none";
    seconds.map(|seconds| Some(UNIX_EPOCH + Duration::from_secs_f64(seconds))).ok_or_else(|| wrong(now, expected))
}

fn value(given: &Bound<'_, PyAny>) -> Result<Option<Value>, StoreFailure> {
    if given.is_none() {
        return Ok(None);
    }
    let expected = "Value(version, data) with data as bytes, or None";
    let parts = given.extract::<(Bound<'_, PyAny>, Bound<'_, PyAny>)>();
    let (version, data) = parts.map_err(|_| wrong(given, expected))?;
    let data = match data.cast::<PyBytes>() {
        Ok(data) => data.as_bytes().to_vec(),
        // A bytearray or a memoryview, but no text and no number.
        Err(_) if data.hasattr("nbytes").unwrap_or_default() || data.hasattr("extend").unwrap_or_default() => data
            .py()
            .get_type::<PyBytes>()
            .call1((&data,))
            .and_then(|data| data.extract())
            .map_err(|_| wrong(&data, expected))?,
        Err(_) => return Err(wrong(&data, expected)),
    };
    Ok(Some(Value { version: self::version(&version)?, data }))
}

fn swapped(given: &Bound<'_, PyAny>) -> Result<Swapped, StoreFailure> {
    match given.cast::<PyBool>() {
        Ok(done) if done.is_true() => Ok(Swapped::Done),
        Ok(_) => {
            Err(wrong(given, "True for a change that was done, and otherwise the Value that stands there, or None"))
        }
        Err(_) => value(given).map(Swapped::Lost),
    }
}

/// A version as bytes: a letter for its type, and its text.
fn version(given: &Bound<'_, PyAny>) -> Result<Vec<u8>, StoreFailure> {
    let with = |letter: u8, text: &[u8]| Ok([&[letter][..], text].concat());
    if let Ok(bytes) = given.cast::<PyBytes>() {
        return with(b'b', bytes.as_bytes());
    }
    let is_int = given.is_instance_of::<PyInt>() && !given.is_instance_of::<PyBool>();
    if is_int || given.is_instance_of::<PyString>() {
        let text = given.str().and_then(|text| Ok(text.to_str()?.as_bytes().to_vec()));
        return with(
            if is_int { b'i' } else { b's' },
            &text.map_err(|_| wrong(given, "a version that is well-formed"))?,
        );
    }
    Err(wrong(given, "a version that is an int, a str or bytes"))
}

fn version_object<'py>(py: Python<'py>, version: &[u8]) -> PyResult<Bound<'py, PyAny>> {
    let (letter, text) = match version {
        [letter, text @ ..] if *letter != b'b' => (letter, text),
        bytes => return Ok(PyBytes::new(py, bytes.get(1..).unwrap_or_default()).into_any()),
    };
    let text = PyString::new(py, &String::from_utf8_lossy(text)).into_any();
    if *letter == b'i' { py.get_type::<PyInt>().call1((text,)) } else { Ok(text) }
}

/// A call of an async method, for the task that makes it.
#[pyclass(module = "tidegate", frozen, name = "_StoreQuestion")]
struct StoreQuestion {
    question: Mutex<Option<Question>>,
}

impl StoreQuestion {
    fn take(&self) -> PyResult<Question> {
        self.question.lock().take().ok_or_else(|| PyTypeError::new_err("a question is answered once"))
    }
}

#[pymethods]
impl StoreQuestion {
    /// Calls the method. Returns its awaitable, or its async iterator of `scan`, and if it is one.
    fn call<'py>(&self, store: &Bound<'py, PyAny>) -> PyResult<(Bound<'py, PyAny>, bool)> {
        let question = self.question.lock();
        let Some(question) = &*question else { return Err(PyTypeError::new_err("a question is answered once")) };
        Ok((called(store, &question.asked, question.left())?, matches!(question.asked, Asked::Scan(_))))
    }

    fn answer(&self, answer: &Bound<'_, PyAny>) -> PyResult<()> {
        let question = self.take()?;
        let reply = reply(&question.asked, answer);
        question.answer(reply);
        Ok(())
    }

    fn fail(&self, error: &Bound<'_, PyAny>) -> PyResult<()> {
        self.take()?.answer(Err(failure(error.py(), PyErr::from_value(error.clone()))));
        Ok(())
    }
}
