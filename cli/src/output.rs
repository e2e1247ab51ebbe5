//! The output of a verb: results go to standard output, errors, notes and progress to standard error.

use std::borrow::Cow;
use std::ffi::OsString;
use std::io::{self, IsTerminal, Write};

use anstream::ColorChoice;
use serde_json::{Value, json};
use tidegate::{Error, host};
use tidegate_simulate::text::{escaped, may_be_url};

use crate::terminal::{BAD, DIM, WARN, escaped_lines, paint};
use crate::{invalid, unwritable};

pub(crate) struct Output {
    json: bool,
    closed: bool,
    /// The error, if standard output could not be written.
    unwritten: Option<io::Error>,
    shows_progress: bool,
    progress_is_shown: bool,
}

impl Output {
    pub(crate) fn new(json: bool) -> Self {
        let shows_progress = io::stderr().is_terminal();
        Self { json, closed: false, unwritten: None, shows_progress, progress_is_shown: false }
    }

    /// True if the user asked for JSON.
    pub(crate) fn is_json(&self) -> bool {
        self.json
    }

    /// True if nothing more can be written. A verb that only writes may end then.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed
    }

    /// Writes a line for people.
    pub(crate) fn line(&mut self, line: impl AsRef<str>) {
        self.text(&format!("{}\n", line.as_ref()));
    }

    /// Writes a text as it is.
    pub(crate) fn text(&mut self, text: &str) {
        self.end_progress();
        self.note_written(anstream::stdout().write_all(text.as_bytes()));
    }

    /// Clears the screen, also of a terminal without colours.
    pub(crate) fn clear_screen(&mut self) {
        self.note_written(io::stdout().write_all(b"\x1b[H\x1b[2J"));
    }

    fn note_written(&mut self, written: io::Result<()>) {
        let Err(error) = written else { return };
        self.closed = true;
        // A reader that has enough closes the pipe, which is no error.
        if error.kind() != io::ErrorKind::BrokenPipe {
            self.unwritten.get_or_insert(error);
        }
    }

    /// Writes the result as JSON.
    pub(crate) fn json(&mut self, value: &Value) {
        self.line(coded(&format!("{value:#}")));
    }

    /// Writes JSON as one line.
    pub(crate) fn json_line(&mut self, value: &Value) {
        self.line(coded(&value.to_string()));
    }

    /// Writes a note to standard error: the user has to know it, but it is no result.
    pub(crate) fn note(&mut self, text: &str) {
        self.end_progress();
        let _ = writeln!(anstream::stderr(), "{} {}", paint(WARN, "note:"), escaped(text));
    }

    /// Replaces the line of progress on standard error, if that is a terminal.
    pub(crate) fn progress(&mut self, text: &str) {
        if self.shows_progress {
            self.progress_is_shown = true;
            let mut error = anstream::stderr();
            let _ = write!(error, "\r\x1b[2K{DIM}{}{DIM:#}", host::visible(text)).and_then(|()| error.flush());
        }
    }

    fn end_progress(&mut self) {
        if std::mem::take(&mut self.progress_is_shown) {
            let _ = write!(io::stderr(), "\r\x1b[2K");
        }
    }

    /// Writes the failure of a verb to standard error.
    pub(crate) fn failure(&mut self, error: &Error) {
        self.end_progress();
        let _ = if self.json {
            let error = json!({"error": {"code": error.code(), "message": error.message()}});
            writeln!(io::stderr(), "{}", coded(&error.to_string()))
        } else {
            let message = escaped_lines(error.message());
            writeln!(anstream::stderr(), "{} {message} [{}]", paint(BAD, "tidegate:"), error.code())
        };
    }

    /// Writes an error in the arguments to standard error.
    pub(crate) fn usage(&mut self, text: &str, colours: ColorChoice) {
        if self.json {
            let message = anstream::adapter::strip_str(text).to_string();
            return self.failure(&invalid(message.trim().trim_start_matches("error: ")));
        }
        let _ = write!(anstream::AutoStream::new(io::stderr(), colours), "{text}");
    }

    /// Returns the text without the user, password and options of the store URLs among the arguments.
    pub(crate) fn without_secrets(text: &str, arguments: &[OsString]) -> String {
        let mut text = text.to_owned();
        for argument in arguments.iter().filter_map(|argument| argument.to_str()).filter(|text| may_be_url(text)) {
            let is_scheme = |c: char| c.is_ascii_alphanumeric() || "+-.".contains(c);
            let at = argument.find(':').unwrap_or_default();
            let begins = argument[..at].rfind(|c| !is_scheme(c)).map_or(0, |before| before + 1);
            let url = &argument[begins..];
            text = text.replace(url, &host::without_secrets(url));
        }
        text
    }

    /// Flushes standard output and returns the exit code: the verb's code, or 2 if its result could not be written.
    pub(crate) fn end(mut self, code: u8) -> u8 {
        self.end_progress();
        self.note_written(io::stdout().flush());
        let Some(error) = self.unwritten.take() else { return code };
        self.failure(&unwritable("standard output", &error));
        2
    }
}

/// Replaces each character that a terminal would obey by its JSON escape, so that programs still read the same text.
fn coded(json: &str) -> String {
    let mut last = ' ';
    let of = |c: char| {
        let is_seen = c == '\n' || matches!(host::visible(c.encode_utf8(&mut [0; 4])), Cow::Borrowed(_));
        let is_mark = (std::mem::replace(&mut last, c), c) == ('#', '#');
        if is_seen && !is_mark { c.to_string() } else { format!("\\u{:04x}", u32::from(c)) }
    };
    json.chars().map(of).collect()
}
