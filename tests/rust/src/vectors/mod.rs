//! Runs `tests/vectors`: behaviour as data, as `tests/vectors/README.md` describes it. Every step runs on a limiter and on
//! the model. Both must give the expected answer, so a wrong vector is found as well as a wrong rule.

mod calls;
mod run;
mod unmodelled;
mod waiting_calls;

use std::time::{Duration, Instant};

use serde_json::Value;

use run::Run;

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../vectors");
/// Redis expires keys in real time, at least a quarter of a second after they have lost their meaning by the given clock. A
/// run on Redis that took longer, on a busy machine, proves nothing and is repeated. Other stores only follow the given clock.
const CONCLUSIVE: Duration = Duration::from_millis(200);

/// A store and the limiter that uses it.
#[derive(Clone, Debug)]
pub struct Variant {
    /// The store's URL, or `own` for a store of the application.
    pub store: String,
    /// True if the limiter is an `AsyncLimiter`.
    pub is_async: bool,
}

impl Variant {
    fn is_redis(&self) -> bool {
        self.store.starts_with("redis")
    }
}

/// One case of a vector file.
#[derive(Clone, Debug)]
pub struct Case {
    /// The file and the case.
    pub name: String,
    value: Value,
}

/// The names of all files, in order.
///
/// # Panics
/// When the folder cannot be read.
#[must_use]
pub fn files() -> Vec<String> {
    let files = std::fs::read_dir(FOLDER).expect("tests/vectors is there");
    let names = files.map(|entry| entry.expect("it can be listed").file_name().to_string_lossy().into_owned());
    let names = names.filter(|name| !name.ends_with(".schema.json"));
    let mut names: Vec<String> = names.filter_map(|name| Some(name.strip_suffix(".json")?.to_owned())).collect();
    names.sort();
    names
}

/// The cases of a file.
///
/// # Panics
/// When it cannot be read.
#[must_use]
pub fn cases(name: &str) -> Vec<Case> {
    let text = std::fs::read_to_string(format!("{FOLDER}/{name}.json")).expect("a readable file");
    let file: Value = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{name}.json: {error}"));
    assert!(file["about"].is_string(), "{name}.json states its subject");
    let cases = file["cases"].as_array().unwrap_or_else(|| panic!("{name}.json has cases"));
    cases
        .iter()
        .map(|case| Case { name: format!("{name}: {}", case["name"].as_str().expect("a name")), value: case.clone() })
        .collect()
}

/// An answer that is not the expected one.
pub type Mismatch = String;

impl Case {
    /// Runs all steps.
    ///
    /// # Errors
    /// The first mismatch: the step, the expected answer and the actual one.
    pub fn run(&self, variant: &Variant) -> Result<(), Mismatch> {
        let mut tries = 0;
        loop {
            let began = Instant::now();
            let result = Run::new(self, variant).and_then(|mut run| run.steps(&self.value));
            tries += 1;
            if result.is_ok() || !variant.is_redis() || began.elapsed() < CONCLUSIVE || tries == 10 {
                return result.map_err(|mismatch| format!("{} over {variant:?}: {mismatch}", self.name));
            }
        }
    }
}
