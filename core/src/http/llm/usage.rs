//! The usage that a response reports.

use serde_json::{Map, Value};

use super::MOST;
use super::usage_scanner::{UsagePlace, UsageScanner};

/// The tokens that a call used, according to its response.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct TokenUsage {
    /// The tokens that the model read, also from a cache. `None` if the response does not report them.
    pub input: Option<u64>,
    /// The part of `input` that came from a cache.
    pub cached: u64,
    /// The tokens of the answer, with its reasoning. `None` if the response does not report them, or not at its end.
    pub output: Option<u64>,
}

/// Reads a response that comes in chunks, as JSON or as server-sent events. It keeps a few numbers and no text, however long the
/// response is.
///
/// ```
/// use tidegate::http::UsageReader;
///
/// let mut reader = UsageReader::default();
/// reader.feed(b"data: {\"choices\": [{\"delta\": {\"content\": \"Hi\"}}], \"usage\": null}\n\n");
/// reader.feed(b"data: {\"choices\": [], \"usage\": {\"prompt_tokens\": 9, \"completion_");
/// reader.feed(b"tokens\": 2}}\n\ndata: [DONE]\n\n");
/// let usage = reader.usage().expect("it was said");
/// assert_eq!((usage.input, usage.output), (Some(9), Some(2)));
/// ```
#[derive(Debug, Clone, Default)]
pub struct UsageReader {
    form: BodyForm,
    scanner: UsageScanner,
    said: Option<SaidUsage>,
}

/// The form of a body, which its first byte shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum BodyForm {
    #[default]
    Unknown,
    Json,
    Events(EventLine),
}

/// The place of the next byte in a line of events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum EventLine {
    /// In the name of the field, after so many bytes of it.
    Name(usize),
    /// After a carriage return. A line feed would belong to it.
    Return,
    Data,
    /// In a field that is not read.
    Other,
}

/// The name of the field with the data of an event.
const DATA: &[u8] = b"data:";

impl UsageReader {
    /// Reads the next chunk.
    pub fn feed(&mut self, chunk: &[u8]) {
        for &byte in chunk {
            self.push(byte);
        }
    }

    /// The usage that was reported until now. The last usage of a stream counts.
    #[must_use]
    pub fn usage(&self) -> Option<TokenUsage> {
        self.said.map(|said| said.usage()).filter(|usage| usage.input.is_some() || usage.output.is_some())
    }

    fn push(&mut self, byte: u8) {
        match self.form {
            // Skips blanks and a byte order mark.
            BodyForm::Unknown if byte.is_ascii_whitespace() || matches!(byte, 0xef | 0xbb | 0xbf) => {}
            BodyForm::Unknown if matches!(byte, b'{' | b'[') => {
                self.form = BodyForm::Json;
                self.scan(byte);
            }
            BodyForm::Unknown => self.push_event(EventLine::Name(0), byte),
            BodyForm::Json => self.scan(byte),
            BodyForm::Events(line) => self.push_event(line, byte),
        }
    }

    fn push_event(&mut self, line: EventLine, byte: u8) {
        let line = match (line, byte) {
            (EventLine::Return, b'\n') => EventLine::Name(0),
            (EventLine::Return, _) => return self.push_event(EventLine::Name(0), byte),
            (_, b'\n' | b'\r') => {
                match line {
                    // An empty line ends the event.
                    EventLine::Name(0) => self.scanner.restart(),
                    EventLine::Data => self.scan(b'\n'),
                    _ => {}
                }
                if byte == b'\r' { EventLine::Return } else { EventLine::Name(0) }
            }
            (EventLine::Name(read), _) if DATA[read] != byte => EventLine::Other,
            (EventLine::Name(read), _) if read + 1 == DATA.len() => EventLine::Data,
            (EventLine::Name(read), _) => EventLine::Name(read + 1),
            (EventLine::Data, _) => {
                self.scan(byte);
                EventLine::Data
            }
            (EventLine::Other, _) => EventLine::Other,
        };
        self.form = BodyForm::Events(line);
    }

    fn scan(&mut self, byte: u8) {
        if let Some((place, usage)) = self.scanner.push(byte)
            && let Ok(Value::Object(fields)) = serde_json::from_slice(&usage)
        {
            self.said.get_or_insert_default().add(place, &fields);
        }
    }
}

/// The numbers that were reported. The last one of each counts.
#[derive(Debug, Clone, Copy, Default)]
struct SaidUsage {
    input: Option<u64>,
    output: Option<u64>,
    /// The part of `input` that was read from a cache.
    cached_part: Option<u64>,
    /// Tokens that were read from a cache and are not in `input`.
    cache_read: Option<u64>,
    /// Tokens that were written to a cache and are not in `input`.
    cache_write: Option<u64>,
}

impl SaidUsage {
    fn add(&mut self, place: UsagePlace, fields: &Map<String, Value>) {
        let number = |names: [&str; 2]| names.iter().find_map(|name| fields.get(*name)?.as_u64()).map(|n| n.min(MOST));
        let details = ["prompt_tokens_details", "input_tokens_details"];
        let cached = details.iter().find_map(|name| fields.get(*name)?.get("cached_tokens")?.as_u64());
        let set = |known: &mut Option<u64>, said: Option<u64>| *known = said.or(*known);
        set(&mut self.input, number(["prompt_tokens", "input_tokens"]));
        // An event that begins a message reports only the tokens that were made until then.
        if place != UsagePlace::Message {
            set(&mut self.output, number(["completion_tokens", "output_tokens"]));
        }
        set(&mut self.cached_part, cached);
        set(&mut self.cache_read, number(["cache_read_input_tokens"; 2]));
        set(&mut self.cache_write, number(["cache_creation_input_tokens"; 2]));
    }

    fn usage(self) -> TokenUsage {
        let read = self.cache_read.unwrap_or(0);
        let beside = read.saturating_add(self.cache_write.unwrap_or(0));
        let input = self.input.map(|input| input.saturating_add(beside).min(MOST));
        let cached = self.cached_part.unwrap_or(0).max(read).min(input.unwrap_or(0));
        TokenUsage { input, cached, output: self.output }
    }
}
