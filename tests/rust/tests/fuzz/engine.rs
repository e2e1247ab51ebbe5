//! Mutates inputs for a while. An input with a new kind of outcome joins the inputs that are mutated.

use std::collections::HashSet;
use std::collections::hash_map::DefaultHasher;
use std::fmt;
use std::fs::File;
use std::hash::{Hash, Hasher};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tidegate_tests::random::Random;

use crate::fuzz::failure;
use crate::fuzz::mutation::mutated;
use crate::fuzz::targets::Target;

/// The most inputs that are mutated.
const MOST: usize = 4_096;
/// The most kinds of outcome that are told apart.
const MOST_KINDS: usize = 1_000_000;

/// The end of a run.
#[derive(Clone, Copy)]
pub(crate) enum Bound {
    Time(Duration),
    Executions(u64),
}

/// The work that was done without a failure.
#[derive(Debug)]
pub(crate) struct Report {
    executions: u64,
    seconds: f64,
    kinds: usize,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let each_second = self.executions as f64 / self.seconds;
        write!(f, "{:>9} executions, {each_second:>7.0}/s, {:>5} kinds of outcome", self.executions, self.kinds)
    }
}

/// The first failure.
pub(crate) struct Found {
    pub(crate) input: Vec<u8>,
    pub(crate) message: String,
    pub(crate) executions: u64,
    pub(crate) seconds: f64,
}

/// A number that differs from run to run.
pub(crate) fn of_the_clock() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_micros() as u64)
}

/// The input that runs now, in a file. The file stays if the input ends the process.
struct Running {
    path: PathBuf,
    file: File,
}

impl Running {
    fn new(target: &Target) -> Self {
        let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("fuzz-{}.running", target.name));
        if let Ok(input) = std::fs::read(&path) {
            println!("the last run of {} ended within {}; it runs first", target.name, path.display());
            if failure::run(target, &input).is_ok() {
                println!("and it holds: that run was ended from outside");
            }
        }
        let file = File::create(&path).expect("a file for the input");
        Self { path, file }
    }

    fn begins(&self, input: &[u8]) {
        self.file.set_len(input.len() as u64).and_then(|()| self.file.write_all_at(input, 0)).expect("it is written");
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Runs mutations of these inputs.
pub(crate) fn fuzz(target: &Target, seeds: Vec<Vec<u8>>, bound: Bound, seed: u64) -> Result<Report, Box<Found>> {
    let mut random = Random::new(seed);
    let (mut kinds, mut inputs) = (HashSet::new(), Vec::new());
    let (began, mut executions, running) = (Instant::now(), 0_u64, Running::new(target));
    let mut kept = seeds.into_iter();
    loop {
        let input = match kept.next() {
            Some(input) => input,
            None => {
                let ends = match bound {
                    Bound::Time(time) => executions % 16 == 0 && began.elapsed() >= time,
                    Bound::Executions(most) => executions >= most,
                };
                if ends {
                    break;
                }
                let (input, other) = (chosen(&mut random, &inputs), chosen(&mut random, &inputs));
                mutated(&mut random, input, other, target.words)
            }
        };
        executions += 1;
        running.begins(&input);
        match failure::run(target, &input) {
            Ok(kind) => {
                let mut hasher = DefaultHasher::new();
                kind.hash(&mut hasher);
                if kinds.len() == MOST_KINDS || !kinds.insert(hasher.finish()) {
                    continue;
                }
                if inputs.len() < MOST {
                    inputs.push(input);
                } else {
                    inputs[random.below(MOST as u64) as usize] = input;
                }
            }
            Err(message) => {
                let seconds = began.elapsed().as_secs_f64();
                return Err(Box::new(Found { input, message, executions, seconds }));
            }
        }
    }
    Ok(Report { executions, seconds: began.elapsed().as_secs_f64(), kinds: kinds.len() })
}

/// One of the inputs, and every second time one of the newest.
fn chosen<'a>(random: &mut Random, inputs: &'a [Vec<u8>]) -> &'a [u8] {
    let newest = if random.one_in(2) { inputs.len().min(32) } else { inputs.len() };
    match newest {
        0 => &[],
        newest => &inputs[inputs.len() - 1 - random.below(newest as u64) as usize],
    }
}
