//! JSON, with positions.

use super::line_index::LineIndex;
use super::tree::{FileError, Key, MapEntries, Node, Text, Value};

/// The tree of a JSON text.
pub(super) fn tree(lines: &LineIndex<'_>) -> Result<Node, FileError> {
    // serde_json has good errors and bounds the nesting, but does not give the positions of values. So the code below
    // reads the text again, once it is known to be JSON.
    if let Err(error) = serde_json::from_str::<serde_json::Value>(lines.text()) {
        return Err(syntax(lines, &error));
    }
    let mut reader = Reader { lines, at: 0 };
    reader.value()
}

fn syntax(lines: &LineIndex<'_>, error: &serde_json::Error) -> FileError {
    let text = lines.text();
    // serde_json counts columns in bytes from 1. Column 0 is the line break before the line.
    let start = match error.line() {
        0 | 1 => 0,
        line => text.match_indices('\n').nth(line - 2).map_or(text.len(), |(at, _)| at + 1),
    };
    let message = error.to_string();
    let message = message.rsplit_once(" at line ").map_or(message.as_str(), |(message, _)| message);
    FileError::new(lines.position(start + error.column().saturating_sub(1)), format!("this is not JSON: {message}"))
}

struct Reader<'r, 'a> {
    lines: &'r LineIndex<'a>,
    at: usize,
}

impl Reader<'_, '_> {
    fn value(&mut self) -> Result<Node, FileError> {
        self.blanks();
        let position = self.lines.position(self.at);
        let value = match self.peek() {
            Some(b'{') => self.map()?,
            Some(b'[') => self.list()?,
            Some(b'"') => {
                let start = self.at;
                let text = self.string()?;
                Value::Text(Text { verbatim: self.lines.verbatim(start, &text), text, from_environment: false })
            }
            _ => self.word()?,
        };
        Ok(Node { value, position })
    }

    fn map(&mut self) -> Result<Value, FileError> {
        let mut entries = MapEntries::default();
        self.open(b'{')?;
        while !self.close(b'}') {
            let key = Key { position: self.lines.position(self.at), name: self.string()? };
            entries.reserve(&key)?;
            self.open(b':')?;
            let node = self.value()?;
            entries.push(key, node);
            self.close(b',');
        }
        Ok(entries.into_value())
    }

    fn list(&mut self) -> Result<Value, FileError> {
        let mut nodes = Vec::new();
        self.open(b'[')?;
        while !self.close(b']') {
            nodes.push(self.value()?);
            self.close(b',');
        }
        Ok(Value::List(nodes))
    }

    fn string(&mut self) -> Result<String, FileError> {
        let start = self.at;
        self.open(b'"')?;
        self.at = start + 1;
        while let Some(byte) = self.peek() {
            self.at += if byte == b'\\' { 2 } else { 1 };
            if byte == b'"' {
                break;
            }
        }
        let written = self.lines.text().get(start..self.at).unwrap_or_default();
        serde_json::from_str(written).map_err(|_| self.broken())
    }

    fn word(&mut self) -> Result<Value, FileError> {
        let rest = self.lines.text().get(self.at..).unwrap_or_default();
        let end = rest.find([',', ']', '}', ' ', '\n', '\r', '\t']).unwrap_or(rest.len());
        let word = &rest[..end];
        let value = match word {
            "null" => Value::Null,
            "true" => Value::Bool(true),
            "false" => Value::Bool(false),
            _ => match (word.parse(), word.parse()) {
                (Ok(number), _) => Value::Integer(number),
                (Err(_), Ok(number)) => Value::Float(number),
                (Err(_), Err(_)) => return Err(self.broken()),
            },
        };
        self.at += end;
        Ok(value)
    }

    fn open(&mut self, byte: u8) -> Result<(), FileError> {
        if self.close(byte) { Ok(()) } else { Err(self.broken()) }
    }

    /// Skips the byte and the blanks around it, if it comes next.
    fn close(&mut self, byte: u8) -> bool {
        self.blanks();
        let found = self.peek() == Some(byte);
        if found {
            self.at += 1;
            self.blanks();
        }
        found
    }

    fn blanks(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\n' | b'\r' | b'\t')) {
            self.at += 1;
        }
    }

    fn peek(&self) -> Option<u8> {
        self.lines.text().as_bytes().get(self.at).copied()
    }

    fn broken(&self) -> FileError {
        FileError::new(self.lines.position(self.at), "this is not JSON")
    }
}
