//! The tree of values that YAML, TOML and JSON share, with the position of each value.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use super::super::notation::may_be_url;
use super::super::notation::syntax_error::clip;
use crate::error::{Error, SourceLocation};

/// A line and a column in the file, both from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Position {
    pub(super) line: usize,
    pub(super) column: usize,
}

impl Position {
    pub(super) fn in_file(self, file: Option<&str>) -> SourceLocation {
        SourceLocation { file: file.map(str::to_owned), line: self.line, column: self.column }
    }
}

/// An error in a file, and its position.
#[derive(Debug)]
pub(super) struct FileError {
    pub(super) position: Position,
    pub(super) message: String,
}

impl FileError {
    pub(super) fn new(position: Position, message: impl Into<String>) -> Self {
        Self { position, message: message.into() }
    }

    pub(super) fn into_error(self, file: Option<&str>) -> Error {
        Error::policy(self.message).at(self.position.in_file(file))
    }
}

/// A value and its position.
#[derive(Debug, Clone)]
pub(super) struct Node {
    pub(super) value: Value,
    pub(super) position: Position,
}

#[derive(Debug, Clone)]
pub(super) enum Value {
    Null,
    Bool(bool),
    Integer(i128),
    Float(f64),
    Text(Text),
    List(Vec<Node>),
    Map(Vec<(Key, Node)>),
}

/// The name of an entry of a map.
#[derive(Debug, Clone)]
pub(super) struct Key {
    pub(super) name: String,
    pub(super) position: Position,
}

/// A text and its source.
#[derive(Debug, Clone)]
pub(super) struct Text {
    pub(super) text: String,
    /// The position of its first character, if the file holds the text verbatim in one line.
    pub(super) verbatim: Option<Position>,
    /// True if a part of it came from the environment, where numbers and booleans are texts too.
    pub(super) from_environment: bool,
}

impl Text {
    /// The position of the character in that column, from 0. If the file does not hold the text verbatim, the position of the value.
    pub(super) fn position(&self, column: usize, of_value: Position) -> Position {
        self.verbatim.map_or(of_value, |start| Position { column: start.column + column, ..start })
    }
}

impl Key {
    /// The name, for an error. One with a colon is never shown: YAML may have cut it from a URL with a password.
    pub(super) fn shown(&self) -> String {
        match self.name.contains(':') {
            true => "`…:…` (not shown: it may be a part of a URL)".to_owned(),
            false => format!("`{}`", clip(&self.name)),
        }
    }
}

impl Node {
    /// The error for a value that is not what it `must` be.
    pub(super) fn is_not(&self, must: &str, advice: &str) -> FileError {
        FileError::new(self.position, format!("{must}, not {}{advice}", self.describe()))
    }

    /// A description for an error. The text of a URL is never shown, because it may hold a password.
    pub(super) fn describe(&self) -> String {
        match &self.value {
            Value::Null => "nothing".to_owned(),
            Value::Bool(value) => format!("`{value}`"),
            Value::Integer(number) => format!("the number {number}"),
            Value::Float(number) => format!("the number {number}"),
            Value::Text(text) if text.from_environment || may_be_url(&text.text) => "a text".to_owned(),
            Value::Text(text) => format!("the text `{}`", clip(&text.text)),
            Value::List(_) => "a list".to_owned(),
            Value::Map(_) => "a map".to_owned(),
        }
    }
}

/// A map under construction. It refuses a second entry of one name.
#[derive(Debug, Default)]
pub(super) struct MapEntries {
    list: Vec<(Key, Node)>,
    seen: HashMap<String, Position>,
}

impl MapEntries {
    /// Reserves a name before its value is read, so that errors come in the order of the file.
    pub(super) fn reserve(&mut self, key: &Key) -> Result<(), FileError> {
        match self.seen.entry(key.name.clone()) {
            Entry::Vacant(entry) => {
                entry.insert(key.position);
                Ok(())
            }
            Entry::Occupied(entry) => Err(duplicate(key, *entry.get())),
        }
    }

    pub(super) fn push(&mut self, key: Key, node: Node) {
        self.list.push((key, node));
    }

    pub(super) fn into_value(self) -> Value {
        Value::Map(self.list)
    }
}

/// The error for a name that one map has twice.
pub(super) fn duplicate(key: &Key, first: Position) -> FileError {
    FileError::new(
        key.position,
        format!("{} is here twice: it stands in line {} already; remove one", key.shown(), first.line),
    )
}
