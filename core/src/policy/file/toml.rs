//! TOML, with positions.

use std::borrow::Cow;
use std::panic::{AssertUnwindSafe, catch_unwind};

use toml_span::ErrorKind;
use toml_span::value::ValueInner;

use super::line_index::LineIndex;
use super::tree::{FileError, Key, Node, Text, Value, duplicate};

/// The tree of a TOML text.
pub(super) fn tree(lines: &LineIndex<'_>) -> Result<Node, FileError> {
    // The parser contains assertions. None is known to fail, but a file that someone is editing must not end the
    // service that reloads it.
    let parsed = catch_unwind(AssertUnwindSafe(|| toml_span::parse(lines.text())))
        .map_err(|_| FileError::new(lines.position(0), "this TOML cannot be read"))?;
    match parsed {
        Ok(mut value) => Ok(node(&mut value, lines)),
        Err(error) => Err(syntax(lines, &error)),
    }
}

fn syntax(lines: &LineIndex<'_>, error: &toml_span::Error) -> FileError {
    let position = lines.position(error.span.start);
    match &error.kind {
        ErrorKind::DuplicateKey { key, first } | ErrorKind::DuplicateTable { name: key, first } => {
            duplicate(&Key { name: key.clone(), position }, lines.position(first.start))
        }
        ErrorKind::UnquotedString | ErrorKind::Unexpected(_) => {
            FileError::new(position, "this is not TOML: write text in quotes, as in \"20/minute\"")
        }
        _ => FileError::new(position, format!("this is not TOML: {error}")),
    }
}

fn node(value: &mut toml_span::Value<'_>, lines: &LineIndex<'_>) -> Node {
    let start = value.span.start;
    let inner = match value.take() {
        ValueInner::String(text) => text_value(start, text, lines),
        ValueInner::Integer(number) => Value::Integer(number.into()),
        ValueInner::Float(number) => Value::Float(number),
        ValueInner::Boolean(value) => Value::Bool(value),
        ValueInner::Array(mut values) => Value::List(values.iter_mut().map(|value| node(value, lines)).collect()),
        ValueInner::Table(table) => {
            let mut entries: Vec<_> = table.into_iter().collect();
            // The table is sorted by name. Policies keep the order of the file.
            entries.sort_by_key(|(key, _)| key.span.start);
            Value::Map(
                entries
                    .into_iter()
                    .map(|(key, mut value)| {
                        let position = lines.position(key.span.start);
                        (Key { name: key.name.into_owned(), position }, node(&mut value, lines))
                    })
                    .collect(),
            )
        }
    };
    Node { value: inner, position: lines.position(start) }
}

fn text_value(start: usize, text: Cow<'_, str>, lines: &LineIndex<'_>) -> Value {
    let text = text.into_owned();
    Value::Text(Text { verbatim: lines.verbatim(start, &text), text, from_environment: false })
}
