//! `tidegate simulate`: traffic through several policies side by side.

mod arguments;
mod figures;
mod plot;
mod progress;
mod replay;
mod report;
mod table;
mod timeline;
mod traffic;
mod waiting_callers;

use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::Path;

use tidegate::Policy;

pub(crate) use arguments::Arguments;
use progress::Progress;
use replay::{DECISION_COLUMNS, Replay};
use report::Report;
use traffic::Traffic;

use crate::temporary_keys::temporary_prefix;
use crate::terminal::path_text;
use crate::{Outcome, Output, Result, invalid, unwritable};

/// Calls that are read before each policy answers them. With so many, the threads cost next to nothing.
const CHUNK: usize = 1 << 16;
/// Calls that are replayed at a time on a shared store, where fewer calls take as long.
const CHUNK_OF_SHARED_STORE: usize = 1 << 11;
/// The most admitted calls that all policies together may remember at the same time, 16 bytes each.
const MAX_REMEMBERED: usize = 64 << 20;

/// Replays the traffic, and shows the figures of each policy.
pub(crate) fn run(arguments: &Arguments, output: &mut Output) -> Result<Outcome> {
    let policies = arguments.policies()?;
    plot::check(&arguments.out)?;
    let mut traffic = arguments.traffic(&policies)?;
    let mut report = replay(arguments, &policies, &mut traffic, output)?;
    report.command = arguments.as_command();
    for path in &arguments.out {
        plot::write(path, &report, arguments.theme)?;
        report.files.push(path_text(path));
    }
    if output.is_json() {
        output.json(&report.json());
    } else {
        output.line(table::text(&report));
    }
    Ok(Outcome::Done)
}

/// Replays the traffic through every policy.
fn replay(arguments: &Arguments, policies: &[Policy], traffic: &mut Traffic, output: &mut Output) -> Result<Report> {
    let chunk = if arguments.store.is_some() { CHUNK_OF_SHARED_STORE } else { CHUNK };
    let mut events = Vec::with_capacity(chunk);
    traffic.fill(&mut events, chunk)?;
    let Some(first) = events.first() else {
        return Err(invalid(traffic.no_events()));
    };
    let start = traffic.span(first.at).0;
    let mut replays = Vec::new();
    let prefix = temporary_prefix("simulate");
    for (number, policy) in policies.iter().enumerate() {
        let prefix = format!("{prefix}{number}:");
        replays.push(Replay::new(policy, arguments.store.as_deref(), &prefix, start, arguments.retries())?);
    }
    let mut decisions = arguments.decisions.as_deref().map(DecisionFile::create).transpose()?;
    if decisions.is_some() {
        replays.iter_mut().for_each(Replay::keep_decisions);
    }
    let mut progress = Progress::new(policies.len());
    while !events.is_empty() {
        all(&mut replays, |replay| replay.run(&events, &traffic.keys))?;
        keep_within_memory(&replays)?;
        decisions.iter_mut().try_for_each(|file| file.write(&mut replays))?;
        progress.show(events.len(), traffic.progress(), output);
        traffic.fill(&mut events, chunk)?;
    }
    let end = traffic.span(start).1;
    all(&mut replays, |replay| replay.retry_until(end, &traffic.keys))?;
    decisions.iter_mut().try_for_each(|file| file.write(&mut replays).and_then(|()| file.flush()))?;
    replays.iter_mut().try_for_each(Replay::clear)?;
    Ok(Report::new(replays, traffic, (start, end)))
}

/// Does the work for every policy, each in its own thread if the platform has threads.
fn all(replays: &mut [Replay], work: impl Fn(&mut Replay) -> Result<()> + Sync) -> Result<()> {
    if cfg!(target_family = "wasm") {
        return replays.iter_mut().try_for_each(work);
    }
    std::thread::scope(|scope| {
        let threads: Vec<_> = replays.iter_mut().map(|replay| scope.spawn(|| work(replay))).collect();
        threads
            .into_iter()
            .try_for_each(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    })
}

fn keep_within_memory(replays: &[Replay]) -> Result<()> {
    let remembered: usize = replays.iter().map(|replay| replay.figures.remembered).sum();
    if remembered <= MAX_REMEMBERED {
        return Ok(());
    }
    Err(invalid(format!(
        "the policies admit more than {MAX_REMEMBERED} calls within their periods, and the worst count in any window needs all \
         of them in memory: simulate a shorter part of the traffic, fewer policies, or shorter periods"
    )))
}

/// The file of --decisions.
struct DecisionFile<'a> {
    file: BufWriter<File>,
    path: &'a Path,
}

impl<'a> DecisionFile<'a> {
    fn create(path: &'a Path) -> Result<Self> {
        let file = File::create(path).map_err(|error| unwritable(path_text(path), &error))?;
        let mut created = Self { file: BufWriter::new(file), path };
        created.append(DECISION_COLUMNS)?;
        Ok(created)
    }

    /// Writes the decisions since the last call.
    fn write(&mut self, replays: &mut [Replay]) -> Result<()> {
        replays.iter_mut().try_for_each(|replay| self.append(&replay.take_decisions()))
    }

    fn append(&mut self, text: &str) -> Result<()> {
        self.file.write_all(text.as_bytes()).map_err(|error| unwritable(path_text(self.path), &error))
    }

    fn flush(&mut self) -> Result<()> {
        self.file.flush().map_err(|error| unwritable(path_text(self.path), &error))
    }
}
