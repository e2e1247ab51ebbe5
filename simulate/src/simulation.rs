//! One run of traffic through several policies.

use std::fs::File;
use std::io::{self, BufWriter, Write as _};
use std::path::Path;

use tidegate::{Policy, Result};

use crate::errors::{invalid, unwritable};
use crate::replay::{DECISION_COLUMNS, Replay, SharedStore};
use crate::report::Report;
use crate::text::path_text;
use crate::traffic::Traffic;
use crate::waiting_callers::Retries;

/// Calls that are read before each policy answers them. With so many, the threads cost next to nothing.
const CHUNK: usize = 1 << 16;
/// Calls that are replayed at a time on a shared store, where fewer calls take as long.
const CHUNK_OF_SHARED_STORE: usize = 1 << 11;
/// The most admitted calls that all policies together may remember at the same time, 16 bytes each.
const MAX_REMEMBERED: usize = 64 << 20;

/// The policies side by side, and what is done with their answers.
pub struct Simulation<'a> {
    /// Each gets a separate limiter.
    pub policies: &'a [Policy],
    /// How refused callers try again.
    pub retries: Retries,
    /// Without it usage is kept in memory.
    pub store: Option<SharedStore<'a>>,
    /// The file for every decision, as CSV.
    pub decisions: Option<&'a Path>,
    /// The command line that repeats this simulation, for the report.
    pub command: String,
}

impl Simulation<'_> {
    /// Replays the traffic through every policy. `progress` gets the number of calls that went through every policy since it was
    /// called last, and the share of the traffic that is done, if that is known.
    ///
    /// # Errors
    /// `config_invalid` for traffic that cannot be replayed and for a file that cannot be written, and the errors of the store.
    pub fn run(mut self, traffic: &mut Traffic, mut progress: impl FnMut(usize, Option<f64>)) -> Result<Report> {
        let chunk = if self.store.is_some() { CHUNK_OF_SHARED_STORE } else { CHUNK };
        let mut events = Vec::with_capacity(chunk);
        traffic.fill(&mut events, chunk)?;
        let Some(first) = events.first() else { return Err(invalid(traffic.no_events())) };
        let start = traffic.span(first.at).0;
        let mut replays = Vec::new();
        for (number, policy) in self.policies.iter().enumerate() {
            replays.push(Replay::new(policy, number, self.store.as_mut(), start, self.retries)?);
        }
        let unwritten = |error: io::Error| unwritable(self.decisions.map_or_else(String::new, path_text), &error);
        let mut decisions = self.decisions.map(File::create).transpose().map_err(unwritten)?.map(BufWriter::new);
        if let Some(file) = &mut decisions {
            file.write_all(DECISION_COLUMNS.as_bytes()).map_err(unwritten)?;
            replays.iter_mut().for_each(|replay| replay.decisions = Some(String::new()));
        }
        while !events.is_empty() {
            all(&mut replays, |replay| replay.run(&events, &traffic.keys))?;
            keep_within_memory(&replays)?;
            decisions.iter_mut().try_for_each(|file| write(file, &mut replays)).map_err(unwritten)?;
            progress(events.len(), traffic.progress());
            traffic.fill(&mut events, chunk)?;
        }
        let end = traffic.span(start).1;
        all(&mut replays, |replay| replay.retry_until(end, &traffic.keys))?;
        let end_of_file = |file: &mut BufWriter<File>| write(file, &mut replays).and_then(|()| file.flush());
        decisions.iter_mut().try_for_each(end_of_file).map_err(unwritten)?;
        Ok(Report::new(replays, traffic, (start, end), self.command))
    }
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

/// Writes the decisions since the last call.
fn write(file: &mut BufWriter<File>, replays: &mut [Replay]) -> io::Result<()> {
    replays.iter_mut().try_for_each(|replay| file.write_all(replay.take_decisions().as_bytes()))
}
