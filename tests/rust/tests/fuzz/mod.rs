//! Any bytes for everything that reads bytes of others: notation, policy files, store URLs, replies, stored values, forwarded
//! addresses, responses of other services, calls of models. A target also checks the promises of its parser for every input.
//!
//! `tests/rust/corpus/` keeps inputs, a folder for each target, and `make test` replays them. `make fuzz` mutates them
//! for a while (`engine.rs`). An input that breaks a promise is made small and kept in the corpus, so that the next
//! `make test` replays it.
//!
//! It is written by hand. bolero 0.13 and cargo-fuzz guide their engines by the coverage of instrumented builds, which
//! need a nightly toolchain or `RUSTC_BOOTSTRAP`. On stable, bolero is a random generator without guidance. proptest
//! makes inputs from a strategy, keeps their seeds but no inputs, and does not mutate. Here an input gets more
//! mutations if its outcome is of a new kind: a new shape of an error, or of the value that was read.

mod corpus;
mod engine;
mod failure;
mod mutation;
mod outcome;
mod targets;

use std::time::Duration;

use engine::Bound;
use targets::{TARGETS, Target};
use tidegate_tests::budget::is_full;

fn target(name: &str) -> &'static Target {
    TARGETS.iter().find(|target| target.name == name).unwrap_or_else(|| panic!("no target is called {name}"))
}

fn replay(name: &str) {
    let target = target(name);
    let inputs = corpus::inputs(target);
    assert!(inputs.len() >= 10, "{name} has {} inputs", inputs.len());
    for (path, input) in inputs {
        if let Err(message) = failure::run(target, &input) {
            panic!("{}: {message}", path.display());
        }
    }
}

#[test]
fn kept_notations_hold() {
    replay("notation");
}

#[test]
fn kept_policy_files_hold() {
    replay("policy_file");
}

#[test]
fn kept_store_urls_hold() {
    replay("store_url");
}

#[test]
fn kept_replies_hold() {
    replay("replies");
}

#[test]
fn kept_stored_values_hold() {
    replay("stored_value");
}

#[test]
fn kept_forwarded_addresses_hold() {
    replay("forwarded");
}

#[test]
fn kept_responses_hold() {
    replay("responses");
}

#[test]
fn kept_calls_of_models_hold() {
    replay("llm");
}

/// The same mutated inputs each time, as many as there is time for.
fn mutated(name: &str, executions: u64) {
    let target = target(name);
    let seeds = corpus::inputs(target).into_iter().map(|(_, input)| input).collect();
    let bound = if is_full() { Bound::Executions(executions) } else { Bound::Time(Duration::from_secs(4)) };
    match engine::fuzz(target, seeds, bound, 30) {
        Ok(report) => println!("seed 30: {report}"),
        Err(found) => panic!("{}\nwith {:?}", found.message, String::from_utf8_lossy(&found.input)),
    }
}

/// Services may answer anything. With `TIDEGATE_FULL=1` half a million answers run.
#[test]
fn mutated_responses_hold() {
    mutated("responses", 500_000);
}

#[test]
fn mutated_calls_of_models_hold() {
    mutated("llm", 100_000);
}

#[test]
fn the_corpus_is_small() {
    let mut total = 0;
    for (path, input) in TARGETS.iter().flat_map(corpus::inputs) {
        assert!(input.len() <= corpus::LONGEST, "{}: {} bytes", path.display(), input.len());
        total += input.len();
    }
    assert!(total <= 200 * 1_024, "{total} bytes");
    let folders = corpus::folders();
    assert_eq!(folders.len(), TARGETS.len(), "a folder for each target: {folders:?}");
}

/// Breaks for inputs with `<`, later `!`, and a digit between them.
fn breaks(input: &[u8]) -> String {
    let text = String::from_utf8_lossy(input);
    let (_, rest) = text.split_once('<').unwrap_or_default();
    let between = rest.split_once('!').map_or("", |(between, _)| between);
    assert!(!between.contains(|c: char| c.is_ascii_digit()), "a digit between < and !");
    format!("{} {}", text.contains('<'), rest.contains('!'))
}

#[test]
fn a_failure_is_found_made_small_and_kept() {
    let broken = Target { name: "broken", run: breaks, words: &["<", "!"] };
    let seeds = vec![b"a sentence with a 5 in it".to_vec()];
    let found = engine::fuzz(&broken, seeds, Bound::Executions(1_000_000), 1).expect_err("it is found");
    let small = failure::smallest(&broken, &found.input);
    assert_eq!(small, b"<0!", "{}", String::from_utf8_lossy(&small));
    let folder = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("fuzz-kept");
    let message = failure::kept(&broken, &folder, &small, &found.message);
    let path = folder.join(corpus::name_of(&small));
    assert_eq!(std::fs::read(&path).expect("the input"), small);
    for words in ["broken", "a digit between < and !", "cargo test -p tidegate-tests --test suite kept", "<0!"] {
        assert!(message.contains(words), "{message}");
    }
    std::fs::remove_dir_all(&folder).expect("a folder");
}

#[test]
fn an_input_that_takes_long_is_a_failure() {
    fn slow(input: &[u8]) -> String {
        let began = failure::processor_time();
        while input.first() == Some(&b's') && failure::processor_time() - began <= failure::LONGEST {}
        String::new()
    }
    let slow = Target { name: "slow", run: slow, words: &[] };
    assert!(failure::run(&slow, b"quick").is_ok());
    let message = failure::run(&slow, b"slow").expect_err("it takes long");
    assert!(message.contains("of processor time"), "{message}");
}

fn setting(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok().filter(|text| !text.is_empty())?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name}={text:?} is not a whole number")))
}

/// `make fuzz`.
#[test]
#[ignore = "takes as long as it is given"]
fn a_while_of_mutations() {
    let seconds = setting("TIDEGATE_FUZZ_SECONDS").unwrap_or(60);
    let seed = setting("TIDEGATE_FUZZ_SEED").unwrap_or_else(|| u64::from(std::process::id()) ^ engine::of_the_clock());
    let only = std::env::var("TIDEGATE_FUZZ_TARGET").unwrap_or_default();
    let chosen: Vec<&Target> = TARGETS.iter().filter(|target| only.is_empty() || target.name == only).collect();
    let names = TARGETS.map(|target| target.name).join(", ");
    assert!(!chosen.is_empty(), "TIDEGATE_FUZZ_TARGET={only:?}: the targets are {names}");
    println!("fuzz: seed {seed}, {seconds} s for {} targets", chosen.len());
    let each = Duration::from_secs(seconds) / chosen.len() as u32;
    let mut broken = Vec::new();
    for target in chosen {
        let seeds = corpus::inputs(target).into_iter().map(|(_, input)| input).collect();
        match engine::fuzz(target, seeds, Bound::Time(each), seed) {
            Ok(report) => println!("  {:<13}{report}", target.name),
            Err(found) => {
                let small = failure::smallest(target, &found.input);
                let message = failure::kept(target, &corpus::folder(target), &small, &found.message);
                println!(
                    "  {:<13}FAILED after {:.1} s and {} executions",
                    target.name, found.seconds, found.executions
                );
                broken.push(message);
            }
        }
    }
    assert!(broken.is_empty(), "\n{}\nthe seed was {seed}", broken.join("\n\n"));
}
