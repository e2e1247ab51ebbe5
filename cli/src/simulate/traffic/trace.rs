//! Traffic from a file: its lines, its format, and what is wrong with a line.

use std::borrow::Cow;
use std::cell::Cell;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use clap::ValueEnum;
use serde_json::json;

use super::field::shown;
use super::timestamps::Columns;
use super::{Event, Keys, Summary, access_log, json_lines, json_of, moment, value_name};
use crate::Failure;
use crate::terminal::path_text;

/// The longest line of a trace: a guard against files that are no traces.
const MAX_LINE: u64 = 1 << 20;
/// The most calls that can be sorted in memory: 24 bytes each.
const MAX_SORTED: usize = 40_000_000;

/// How the lines of a trace are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(in crate::simulate) enum TraceFormat {
    /// A time on each line, and, after commas, a key and a cost
    Timestamps,
    /// The common or combined format of web servers
    AccessLog,
    /// An object of JSON on each line
    JsonLines,
}

/// What was said about a trace.
#[derive(Debug, Clone)]
pub(in crate::simulate) struct Options {
    pub(in crate::simulate) path: PathBuf,
    pub(in crate::simulate) format: Option<TraceFormat>,
    pub(in crate::simulate) time_field: Option<String>,
    pub(in crate::simulate) key_field: Option<String>,
    pub(in crate::simulate) cost_field: Option<String>,
    pub(in crate::simulate) skip_bad_lines: bool,
}

/// How a line becomes a call.
enum LineParser {
    Timestamps(Columns),
    AccessLog { key_field: String },
    JsonLines(json_lines::Fields),
}

/// A trace that is being read.
pub(in crate::simulate) struct Trace {
    options: Options,
    reader: BufReader<Box<dyn Read>>,
    size: Option<u64>,
    read: Rc<Cell<u64>>,
    parser: Option<LineParser>,
    line: Vec<u8>,
    line_number: u64,
    events: u64,
    skipped: u64,
    first_skipped: String,
    /// Calls whose line names no caller.
    pooled: u64,
}

/// Counts the bytes that were read.
struct Counted<R> {
    inner: R,
    read: Rc<Cell<u64>>,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buffer)?;
        self.read.set(self.read.get() + count as u64);
        Ok(count)
    }
}

impl Trace {
    pub(in crate::simulate) fn open(options: Options) -> Result<Self, Failure> {
        let read = Rc::new(Cell::new(0));
        let counted = Rc::clone(&read);
        let (inner, size): (Box<dyn Read>, _) = if is_standard_input(&options.path) {
            (Box::new(Counted { inner: io::stdin(), read: counted }), None)
        } else {
            let failed = |error: io::Error| {
                Failure::argument(format!(
                    "the trace {} cannot be read: {error}; name a file, or - for standard input",
                    path_text(&options.path)
                ))
            };
            let file = File::open(&options.path).map_err(failed)?;
            let metadata = file.metadata().map_err(failed)?;
            if metadata.is_dir() {
                return Err(failed(io::ErrorKind::IsADirectory.into()));
            }
            (Box::new(Counted { inner: file, read: counted }), metadata.is_file().then_some(metadata.len()))
        };
        let reader = BufReader::with_capacity(1 << 16, inner);
        let (line, parser) = (Vec::new(), None);
        Ok(Self {
            options,
            reader,
            size,
            read,
            parser,
            line,
            line_number: 0,
            events: 0,
            skipped: 0,
            first_skipped: String::new(),
            pooled: 0,
        })
    }

    /// The next call; `None` at the end.
    pub(super) fn next(&mut self, keys: &mut Keys) -> Result<Option<Event>, Failure> {
        while self.read_line()? {
            let bytes = std::mem::take(&mut self.line);
            let parsed = self.parse(&String::from_utf8_lossy(&bytes), keys);
            self.line = bytes;
            match parsed {
                Ok(Some(event)) => {
                    self.events += 1;
                    return Ok(Some(event));
                }
                Ok(None) => {}
                Err(BadLine::Stop(failure)) => return Err(failure),
                Err(BadLine::Line(message)) => self.bad_line(message)?,
            }
        }
        Ok(None)
    }

    /// All calls, sorted by time; calls at the same time stay in the order of their lines.
    pub(super) fn read_sorted(&mut self, keys: &mut Keys) -> Result<Vec<Event>, Failure> {
        let mut events = Vec::new();
        while let Some(event) = self.next(keys)? {
            if events.len() == MAX_SORTED {
                return Err(Failure::argument(format!(
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

    fn read_line(&mut self) -> Result<bool, Failure> {
        self.line.clear();
        let count = (&mut self.reader).take(MAX_LINE).read_until(b'\n', &mut self.line);
        let count = count.map_err(|error| Failure::argument(format!("{} cannot be read: {error}", self.name())))?;
        self.line_number += u64::from(count > 0);
        if count as u64 == MAX_LINE {
            return Err(Failure::argument(format!(
                "{}:{}: the line is longer than {} KiB, so this is no trace: expected a text file with a call on each line",
                self.name(),
                self.line_number,
                MAX_LINE >> 10
            )));
        }
        if self.line_number == 1 && self.line.starts_with(&[0x1f, 0x8b]) {
            return Err(Failure::argument(format!(
                "{} is compressed: unpack it first, as in gzip -dc FILE | tidegate simulate … --trace -",
                self.name()
            )));
        }
        Ok(count > 0)
    }

    fn parse(&mut self, line: &str, keys: &mut Keys) -> Result<Option<Event>, BadLine> {
        let line = line.trim_start_matches('\u{feff}').trim();
        if line.is_empty() || line.starts_with('#') {
            return Ok(None);
        }
        let parser = match self.parser.take() {
            Some(parser) => parser,
            None => match self.first_line(line)? {
                (parser, true) => {
                    self.parser = Some(parser);
                    return Ok(None);
                }
                (parser, false) => parser,
            },
        };
        let parsed = match &parser {
            LineParser::Timestamps(columns) => columns.parse(line),
            LineParser::AccessLog { key_field } => access_log::parse(line, key_field)
                .map(|(at, key)| (at, Cow::Borrowed(key), 1))
                .ok_or_else(|| format!("{}: expected {}", shown(line), access_log::EXPECTED)),
            LineParser::JsonLines(fields) => fields
                .parse(line)
                .map(|(at, key, cost)| (at, Cow::Owned(key), cost))
                .map_err(|error| format!("{} {error}", shown(line))),
        };
        self.parser = Some(parser);
        let (at, key, cost) = parsed.map_err(BadLine::Line)?;
        if key.len() > tidegate::MAX_KEY {
            return Err(BadLine::Line(format!(
                "the key has {} bytes: expected at most {}",
                key.len(),
                tidegate::MAX_KEY
            )));
        }
        // What a log has where it knows no caller.
        self.pooled += u64::from(matches!(&*key, "" | "-"));
        let key = keys.add(&key).map_err(BadLine::Stop)?;
        Ok(Some(Event { at, key, cost }))
    }

    /// What the first line says about the others, and whether it is only a header.
    fn first_line(&mut self, line: &str) -> Result<(LineParser, bool), BadLine> {
        let stop = |message: String| BadLine::Stop(Failure::argument(message));
        let place = format!("{}:{}", self.name(), self.line_number);
        let options = &self.options;
        let detected = if line.starts_with('{') {
            TraceFormat::JsonLines
        } else if line.contains('[') && line.contains('"') {
            TraceFormat::AccessLog
        } else {
            TraceFormat::Timestamps
        };
        let format = options.format.unwrap_or(detected);
        if format == TraceFormat::AccessLog && (options.time_field.is_some() || options.cost_field.is_some()) {
            return Err(stop(format!(
                "--time-field and --cost-field name fields of JSON lines or columns, and {place} is a line of an access log: leave \
                 them out"
            )));
        }
        match format {
            TraceFormat::JsonLines => {
                let (time, key, cost) = (&options.time_field, &options.key_field, &options.cost_field);
                let fields = json_lines::Fields::of(line, time.as_deref(), key.as_deref(), cost.as_deref());
                Ok((
                    LineParser::JsonLines(fields.map_err(|error| stop(format!("{place}: {} {error}", shown(line))))?),
                    false,
                ))
            }
            TraceFormat::AccessLog => {
                let key_field = options.key_field.as_deref().unwrap_or("address");
                if !access_log::FIELDS.contains(&key_field) {
                    let fields = access_log::FIELDS.join(", ");
                    return Err(stop(format!("--key-field {key_field}: an access log has the fields {fields}")));
                }
                Ok((LineParser::AccessLog { key_field: key_field.to_owned() }, false))
            }
            TraceFormat::Timestamps => {
                let named = [&options.time_field, &options.key_field, &options.cost_field].map(|name| name.as_deref());
                let (columns, is_header) =
                    Columns::of(line, named).map_err(|error| stop(format!("{place}: {error}")))?;
                Ok((LineParser::Timestamps(columns), is_header))
            }
        }
    }

    fn bad_line(&mut self, message: String) -> Result<(), Failure> {
        let message = format!("{}:{}: {message}", self.name(), self.line_number);
        if !self.options.skip_bad_lines {
            return Err(Failure::argument(format!("{message}; --skip-bad-lines counts such lines and goes on")));
        }
        if self.skipped == 0 {
            self.first_skipped = message;
        }
        self.skipped += 1;
        Ok(())
    }

    pub(super) fn out_of_order(&self, at: u64, before: u64) -> Failure {
        Failure::argument(format!(
            "{}:{}: this call is {} earlier than the one before: sort the file by time, or give --sort, which keeps all \
             calls in memory",
            self.name(),
            self.line_number,
            moment::words(before - at)
        ))
    }

    fn name(&self) -> Cow<'_, str> {
        name_of(&self.options.path)
    }

    pub(super) fn events(&self) -> u64 {
        self.events
    }

    pub(super) fn progress(&self) -> Option<f64> {
        self.size.map(|size| self.read.get() as f64 / size.max(1) as f64)
    }

    pub(super) fn skipped(&self) -> Option<(u64, &str)> {
        (self.skipped > 0).then_some((self.skipped, self.first_skipped.as_str()))
    }

    /// Calls of different callers that have one key all the same.
    pub(super) fn pooled(&self) -> Option<String> {
        let has_no_key = matches!(&self.parser, Some(LineParser::Timestamps(columns)) if columns.key.is_none());
        if has_no_key {
            return Some("no column is a key: all calls are those of one caller".to_owned());
        }
        (self.pooled > 0)
            .then(|| format!("{} calls name no caller (\"-\" or nothing): all of these are one caller", self.pooled))
    }

    pub(super) fn summary(&self) -> Summary {
        let format = match &self.parser {
            Some(LineParser::AccessLog { .. }) => TraceFormat::AccessLog,
            Some(LineParser::JsonLines(_)) => TraceFormat::JsonLines,
            Some(LineParser::Timestamps(_)) | None => TraceFormat::Timestamps,
        };
        let key = match &self.parser {
            Some(LineParser::AccessLog { key_field }) => Some(key_field.clone()),
            Some(LineParser::JsonLines(fields)) => Some(fields.key.clone()),
            Some(LineParser::Timestamps(columns)) => columns.key.map(|column| format!("column {}", column + 1)),
            None => None,
        };
        let file = self.options.path.file_name().filter(|_| !is_standard_input(&self.options.path));
        let title = file.map_or_else(|| self.name(), OsStr::to_string_lossy);
        let details = key.iter().map(|key| format!("key: {key}")).collect();
        let json = json!({"file": self.name(), "format": value_name(&format), "key_field": key, "lines": self.line_number,
                          "skipped_lines": self.skipped});
        Summary { title: title.into_owned(), details, json: json_of("trace", json), is_recorded: true }
    }
}

fn is_standard_input(path: &Path) -> bool {
    path == Path::new("-")
}

/// A trace by its name.
pub(in crate::simulate) fn name_of(path: &Path) -> Cow<'_, str> {
    if is_standard_input(path) { "standard input".into() } else { path.to_string_lossy() }
}

/// Why a line is no call.
enum BadLine {
    /// It may be skipped.
    Line(String),
    /// Nothing can go on.
    Stop(Failure),
}
