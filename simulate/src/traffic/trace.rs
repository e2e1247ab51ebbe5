//! Traffic from a file: its lines, its format, and the errors in its lines.

use std::borrow::Cow;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use serde_json::json;
use tidegate::{Error, Result};

use super::trace_line::{LineParser, TraceFormat, TraceOptions};
use super::{Event, Keys, Summary, moment, value_name};
use crate::errors::invalid;
use crate::text::{argument_text, may_be_url, path_text};

/// The longest line of a trace: a guard against files that are no traces.
const MAX_LINE: u64 = 1 << 20;
/// The most calls that can be sorted in memory. Each takes 32 bytes, and more if it has named units or a class.
const MAX_SORTED: usize = 40_000_000;

/// A trace that is being read.
pub(crate) struct Trace {
    path: PathBuf,
    options: TraceOptions,
    reader: BufReader<Box<dyn Read>>,
    size: Option<u64>,
    /// The bytes of the lines that were read.
    read: u64,
    parser: Option<LineParser>,
    line: Vec<u8>,
    line_number: u64,
    events: u64,
    /// All calls in the order of their times, if they were sorted.
    sorted: Option<std::vec::IntoIter<Event>>,
    /// The number of skipped lines, and the error of the first one.
    skipped: (u64, String),
    /// Calls without a caller in their line.
    pooled: u64,
}

impl Trace {
    pub(crate) fn open(path: &Path, options: TraceOptions, keys: &mut Keys) -> Result<Self> {
        let (inner, size): (Box<dyn Read>, _) = if is_standard_input(path) {
            (Box::new(io::stdin()), None)
        } else {
            let failed = |error: io::Error| {
                invalid(format!(
                    "the trace {} cannot be read: {error}. Name a file, or - for standard input",
                    path_text(path)
                ))
            };
            let file = File::open(path).map_err(failed)?;
            let metadata = file.metadata().map_err(failed)?;
            if metadata.is_dir() {
                return Err(failed(io::ErrorKind::IsADirectory.into()));
            }
            (Box::new(file), metadata.is_file().then_some(metadata.len()))
        };
        let mut trace = Self {
            path: path.to_owned(),
            options,
            reader: BufReader::with_capacity(1 << 16, inner),
            size,
            read: 0,
            parser: None,
            line: Vec::new(),
            line_number: 0,
            events: 0,
            sorted: None,
            skipped: (0, String::new()),
            pooled: 0,
        };
        if trace.options.sort {
            trace.sorted = Some(trace.read_all(keys)?.into_iter());
        }
        Ok(trace)
    }

    /// The next call, or `None` at the end.
    pub(crate) fn next(&mut self, keys: &mut Keys) -> Result<Option<Event>> {
        if let Some(sorted) = &mut self.sorted {
            return Ok(sorted.next());
        }
        while self.read_line()? {
            let bytes = std::mem::take(&mut self.line);
            let text = String::from_utf8_lossy(&bytes);
            let line = text.trim_start_matches('\u{feff}').trim();
            let is_comment = line.is_empty() || line.starts_with('#');
            let event = if is_comment { None } else { self.event(line, keys)? };
            self.line = bytes;
            if event.is_some() {
                self.events += 1;
                return Ok(event);
            }
        }
        Ok(None)
    }

    /// All calls, sorted by time. Calls at the same time stay in the order of their lines.
    fn read_all(&mut self, keys: &mut Keys) -> Result<Vec<Event>> {
        let mut events = Vec::new();
        while let Some(event) = self.next(keys)? {
            if events.len() == MAX_SORTED {
                return Err(invalid(format!(
                    "{} has more than {MAX_SORTED} calls, too many for --sort, which keeps all of them in memory: sort the \
                     file by time and leave out --sort",
                    self.name()
                )));
            }
            events.push(event);
        }
        events.sort_by_key(|event| event.at);
        Ok(events)
    }

    fn read_line(&mut self) -> Result<bool> {
        self.line.clear();
        let count = (&mut self.reader).take(MAX_LINE).read_until(b'\n', &mut self.line);
        let count = count.map_err(|error| invalid(format!("{} cannot be read: {error}", self.name())))?;
        self.read += count as u64;
        self.line_number += u64::from(count > 0);
        if count as u64 == MAX_LINE {
            return Err(invalid(format!(
                "{}:{}: the line is longer than {} KiB, so this is not a trace: expected a text file with a call on each line",
                self.name(),
                self.line_number,
                MAX_LINE >> 10
            )));
        }
        if self.line_number == 1 && self.line.starts_with(&[0x1f, 0x8b]) {
            return Err(invalid(format!(
                "{} is compressed: unpack it first, as in gzip -dc FILE | tidegate simulate … --trace -",
                self.name()
            )));
        }
        Ok(count > 0)
    }

    /// The call of a line. `None` for a header, and for a bad line that is skipped.
    fn event(&mut self, line: &str, keys: &mut Keys) -> Result<Option<Event>> {
        let place = || format!("{}:{}", name_of(&self.path), self.line_number);
        let parser = match &mut self.parser {
            Some(parser) => parser,
            first => {
                let (parser, is_header) = LineParser::of(line, &self.options, &place()).map_err(invalid)?;
                let parser = first.insert(parser);
                if is_header {
                    return Ok(None);
                }
                parser
            }
        };
        let parsed = parser.parse(line).and_then(|(at, key, cost)| match key.len() {
            ..=tidegate::MAX_KEY => Ok((at, key, cost)),
            bytes => Err(format!("the key has {bytes} bytes: expected at most {}", tidegate::MAX_KEY)),
        });
        let asked = parsed.and_then(|call| Ok((call, parser.asked(line)?)));
        match asked {
            Ok(((at, key, cost), asked)) => {
                // A log has one of these if it does not know the caller.
                self.pooled += u64::from(matches!(&*key, "" | "-"));
                Ok(Some(Event { at, key: keys.add(&key)?, cost, asked }))
            }
            Err(message) if self.options.skip_bad_lines => {
                if self.skipped.0 == 0 {
                    self.skipped.1 = format!("{}: {message}", place());
                }
                self.skipped.0 += 1;
                Ok(None)
            }
            Err(message) => {
                let message = format!("{}: {message}. Use --skip-bad-lines to count such lines and go on", place());
                Err(invalid(message))
            }
        }
    }

    pub(crate) fn out_of_order(&self, at: u64, before: u64) -> Error {
        invalid(format!(
            "{}:{}: this call is {} earlier than the one before: sort the file by time, or give --sort, which keeps all \
             calls in memory",
            self.name(),
            self.line_number,
            moment::words(before - at)
        ))
    }

    fn name(&self) -> Cow<'_, str> {
        name_of(&self.path)
    }

    pub(crate) fn progress(&self) -> Option<f64> {
        let left = |calls: &std::vec::IntoIter<Event>| 1.0 - calls.len() as f64 / (self.events as f64).max(1.0);
        let read = || self.size.map(|size| self.read as f64 / size.max(1) as f64);
        self.sorted.as_ref().map(left).or_else(read)
    }

    /// The notes on skipped lines, on callers that the trace does not distinguish, and on missing units.
    pub(crate) fn notes(&self) -> Vec<String> {
        let (lines, first) = &self.skipped;
        let skipped = (*lines > 0).then(|| format!("{lines} lines were skipped; the first: {first}"));
        let has_no_key = matches!(&self.parser, Some(LineParser::Timestamps(columns, _)) if columns.key.is_none());
        let pooled = match self.pooled {
            _ if has_no_key => Some("no column is a key: all calls are those of one caller".to_owned()),
            0 => None,
            calls => Some(format!("{calls} calls name no caller (\"-\" or nothing): all of these are one caller")),
        };
        let unsaid = self.parser.as_ref().map_or_else(Vec::new, |parser| parser.unsaid(&self.options.units));
        let unsaid = (!unsaid.is_empty()).then(|| {
            format!(
                "the trace has no column or field {}: calls take their cost of it, and one of requests",
                unsaid.join(", ")
            )
        });
        skipped.into_iter().chain(pooled).chain(unsaid).collect()
    }

    /// The message if there is nothing to replay.
    pub(crate) fn no_events(&self) -> String {
        match &self.skipped {
            (0, _) => format!("{}: there are no calls in it: expected one on each line", self.name()),
            (lines, first) => {
                format!("{}: no line is a call; {lines} lines were skipped, the first: {first}", self.name())
            }
        }
    }

    pub(crate) fn summary(&self) -> Summary {
        let (format, key) = self.parser.as_ref().map_or((TraceFormat::Timestamps, None), |parser| parser.description());
        let file = self.path.file_name().filter(|_| !is_standard_input(&self.path));
        let title = file.map_or_else(|| self.name(), OsStr::to_string_lossy);
        let details = key.iter().map(|key| format!("key: {key}")).collect();
        let json = json!({
            "source": "trace",
            "file": self.name(),
            "format": value_name(&format),
            "key_field": key,
            "lines": self.line_number,
            "skipped_lines": self.skipped.0,
        });
        Summary { title: title.into_owned(), details, json, is_recorded: true }
    }
}

fn is_standard_input(path: &Path) -> bool {
    path == Path::new("-")
}

fn name_of(path: &Path) -> Cow<'_, str> {
    let name = path.to_string_lossy();
    match name.as_ref() {
        _ if is_standard_input(path) => "standard input".into(),
        url if may_be_url(url) => argument_text(url).into(),
        _ => name,
    }
}
