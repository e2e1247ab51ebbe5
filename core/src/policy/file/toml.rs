//! TOML, with places.

use std::borrow::Cow;
use std::panic::{AssertUnwindSafe, catch_unwind};

use toml_span::ErrorKind;
use toml_span::value::ValueInner;

use super::ruler::Ruler;
use super::tree::{Fault, Key, Node, Text, Value, duplicate};

/// The tree of a TOML text.
pub(super) fn tree(ruler: &Ruler<'_>) -> Result<Node, Fault> {
    // The parser holds assertions of its own. None is known to fire, but a file that is being edited must not take
    // down the service that reloads it.
    let parsed = catch_unwind(AssertUnwindSafe(|| toml_span::parse(ruler.text())))
        .map_err(|_| Fault::new(ruler.spot(0), "this is no TOML that could be read"))?;
    match parsed {
        Ok(mut value) => Ok(node(&mut value, ruler)),
        Err(error) => Err(syntax(ruler, &error)),
    }
}

fn syntax(ruler: &Ruler<'_>, error: &toml_span::Error) -> Fault {
    let spot = ruler.spot(error.span.start);
    match &error.kind {
        ErrorKind::DuplicateKey { key, first } | ErrorKind::DuplicateTable { name: key, first } => {
            duplicate(&Key { name: key.clone(), spot }, ruler.spot(first.start))
        }
        ErrorKind::UnquotedString | ErrorKind::Unexpected(_) => {
            Fault::new(spot, "this is no TOML; a text stands in quotes, as in \"20/minute\"")
        }
        _ => Fault::new(spot, format!("this is no TOML: {error}")),
    }
}

fn node(value: &mut toml_span::Value<'_>, ruler: &Ruler<'_>) -> Node {
    let start = value.span.start;
    let inner = match value.take() {
        ValueInner::String(text) => text_value(start, text, ruler),
        ValueInner::Integer(number) => Value::Integer(number.into()),
        ValueInner::Float(number) => Value::Float(number),
        ValueInner::Boolean(value) => Value::Bool(value),
        ValueInner::Array(mut values) => Value::List(values.iter_mut().map(|value| node(value, ruler)).collect()),
        ValueInner::Table(table) => {
            let mut entries: Vec<_> = table.into_iter().collect();
            // The table comes sorted by name; policies keep the order of the file.
            entries.sort_by_key(|(key, _)| key.span.start);
            Value::Map(
                entries
                    .into_iter()
                    .map(|(key, mut value)| {
                        let spot = ruler.spot(key.span.start);
                        (Key { name: key.name.into_owned(), spot }, node(&mut value, ruler))
                    })
                    .collect(),
            )
        }
    };
    Node { value: inner, spot: ruler.spot(start) }
}

fn text_value(start: usize, text: Cow<'_, str>, ruler: &Ruler<'_>) -> Value {
    let text = text.into_owned();
    Value::Text(Text { body: ruler.body(start, &text), text, from_environment: false })
}
