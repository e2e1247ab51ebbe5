//! What YAML, TOML and JSON have in common: values that know where they stand.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use super::super::notation::clip;
use crate::error::{Error, SourceLocation};

/// A line and a column in the file, both from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Spot {
    pub(super) line: usize,
    pub(super) column: usize,
}

impl Spot {
    pub(super) fn place(self, file: Option<&str>) -> SourceLocation {
        SourceLocation { file: file.map(str::to_owned), line: self.line, column: self.column }
    }
}

/// What is wrong with a file, and where.
#[derive(Debug)]
pub(super) struct Fault {
    pub(super) spot: Spot,
    pub(super) message: String,
}

impl Fault {
    pub(super) fn new(spot: Spot, message: impl Into<String>) -> Self {
        Self { spot, message: message.into() }
    }

    pub(super) fn error(self, file: Option<&str>) -> Error {
        Error::policy(self.message).at(self.spot.place(file))
    }
}

/// A value and where it begins.
#[derive(Debug, Clone)]
pub(super) struct Node {
    pub(super) value: Value,
    pub(super) spot: Spot,
}

/// The values that every format has.
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
    pub(super) spot: Spot,
}

/// A text and what is known about how it was written.
#[derive(Debug, Clone)]
pub(super) struct Text {
    pub(super) text: String,
    /// Where its first character stands, when the file holds it letter by letter in one line.
    pub(super) body: Option<Spot>,
    /// Whether a part came from the environment, where everything is text: numbers and booleans too.
    pub(super) from_environment: bool,
}

impl Node {
    /// What it is, in words for an error. Never the text of a URL: it may hold a password.
    pub(super) fn describe(&self) -> String {
        match &self.value {
            Value::Null => "nothing".to_owned(),
            Value::Bool(value) => format!("`{value}`"),
            Value::Integer(number) => format!("the number {number}"),
            Value::Float(number) => format!("the number {number}"),
            Value::Text(text) if text.from_environment || text.text.contains("://") => "a text".to_owned(),
            Value::Text(text) => format!("the text `{}`", clip(&text.text)),
            Value::List(_) => "a list".to_owned(),
            Value::Map(_) => "a map".to_owned(),
        }
    }
}

/// A map under construction, which refuses a second entry of one name.
#[derive(Debug, Default)]
pub(super) struct Entries {
    list: Vec<(Key, Node)>,
    seen: HashMap<String, Spot>,
}

impl Entries {
    /// Claims a name, before its value is known: the error then comes in the order of the file.
    pub(super) fn claim(&mut self, key: &Key) -> Result<(), Fault> {
        match self.seen.entry(key.name.clone()) {
            Entry::Vacant(entry) => {
                entry.insert(key.spot);
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

/// The error for a name that stands twice in one map.
pub(super) fn duplicate(key: &Key, first: Spot) -> Fault {
    Fault::new(
        key.spot,
        format!("`{}` is here twice: it stands in line {} already; remove one", clip(&key.name), first.line),
    )
}
