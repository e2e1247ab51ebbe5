//! YAML 1.2 (core schema), with positions.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

use saphyr_parser::{Event, Marker, Parser, ScalarStyle, Tag};

use super::line_index::LineIndex;
use super::scalar::plain_scalar;
use super::tree::{FileError, Key, MapEntries, Node, Position, Text, Value};

/// Policy files do not nest deeper than this. The bound lets readers of the tree recurse.
const MAX_DEPTH: usize = 64;
/// The most values of a file with its aliases expanded. A few lines of aliases can stand for billions of values.
const MAX_VALUES: usize = 200_000;

/// The tree of a YAML text.
pub(super) fn tree(lines: &LineIndex<'_>) -> Result<Node, FileError> {
    // The parser contains assertions. None is known to fail, but a file that someone is editing must not end the
    // service that reloads it.
    catch_unwind(AssertUnwindSafe(|| TreeBuilder::new(lines).run()))
        .unwrap_or_else(|_| Err(FileError::new(lines.position(0), "this YAML cannot be read")))
}

/// A value that an alias may repeat, with its size.
struct Anchored {
    node: Node,
    values: usize,
    depth: usize,
}

enum OpenCollection {
    List(Vec<Node>),
    Map(MapEntries, Option<Key>),
}

struct Frame {
    open: OpenCollection,
    position: Position,
    anchor: usize,
    values_before: usize,
    depth: usize,
}

struct TreeBuilder<'r, 'a> {
    lines: &'r LineIndex<'a>,
    frames: Vec<Frame>,
    anchors: HashMap<usize, Anchored>,
    root: Option<Node>,
    values: usize,
}

impl<'r, 'a> TreeBuilder<'r, 'a> {
    fn new(lines: &'r LineIndex<'a>) -> Self {
        Self { lines, frames: Vec::new(), anchors: HashMap::new(), root: None, values: 0 }
    }

    fn run(mut self) -> Result<Node, FileError> {
        for event in Parser::new_from_str(self.lines.text()) {
            let (event, span) = event.map_err(|error| {
                FileError::new(position(*error.marker()), format!("this is not YAML: {}", error.info()))
            })?;
            self.event(event, span.start)?;
        }
        self.root.ok_or_else(|| FileError::new(self.lines.position(0), "the file is empty"))
    }

    fn event(&mut self, event: Event<'_>, mark: Marker) -> Result<(), FileError> {
        let here = position(mark);
        match event {
            Event::DocumentStart(_) if self.root.is_some() => Err(FileError::new(
                here,
                "a second YAML document begins here: remove it, because a policy file has one",
            )),
            Event::Scalar(text, style, anchor, tag) => self.scalar(&text, style, anchor, tag.as_deref(), mark),
            Event::SequenceStart(anchor, tag) => {
                expect_tag(tag.as_deref(), "seq", here)?;
                self.open(OpenCollection::List(Vec::new()), here, anchor)
            }
            Event::MappingStart(anchor, tag) => {
                expect_tag(tag.as_deref(), "map", here)?;
                self.open(OpenCollection::Map(MapEntries::default(), None), here, anchor)
            }
            Event::SequenceEnd | Event::MappingEnd => self.close(),
            Event::Alias(anchor) => self.alias(anchor, here),
            Event::Nothing | Event::StreamStart | Event::StreamEnd | Event::DocumentStart(_) | Event::DocumentEnd => {
                Ok(())
            }
        }
    }

    fn scalar(
        &mut self,
        text: &str,
        style: ScalarStyle,
        anchor: usize,
        tag: Option<&Tag>,
        mark: Marker,
    ) -> Result<(), FileError> {
        let here = position(mark);
        let is_key = matches!(self.frames.last(), Some(Frame { open: OpenCollection::Map(_, None), .. }));
        if is_key && anchor == 0 && tag.is_none() && !(text.is_empty() && style == ScalarStyle::Plain) {
            // A key is always a text, even if it looks like a number. A policy may have the name `404`.
            return self.key(Key { name: text.to_owned(), position: here });
        }
        let value = if style == ScalarStyle::Plain && tag.is_none() { plain_scalar(text) } else { None };
        let value = value.map_or_else(|| self.tagged(text, tag, mark), Ok)?;
        self.count_values(1, here)?;
        self.insert(Node { value, position: here }, anchor, 1, 1)
    }

    fn tagged(&self, text: &str, tag: Option<&Tag>, mark: Marker) -> Result<Value, FileError> {
        let here = position(mark);
        let as_text = || {
            let offset = self.lines.offset_of_char(mark.index());
            Value::Text(Text {
                verbatim: self.lines.verbatim(offset, text),
                text: text.to_owned(),
                from_environment: false,
            })
        };
        let Some(tag) = tag else { return Ok(as_text()) };
        let core = tag.is_yaml_core_schema().then_some(tag.suffix.as_str());
        match (core, plain_scalar(text)) {
            (Some("str"), _) => Ok(as_text()),
            (Some("null"), Some(value @ Value::Null))
            | (Some("bool"), Some(value @ Value::Bool(_)))
            | (Some("int"), Some(value @ Value::Integer(_)))
            | (Some("float"), Some(value @ (Value::Float(_) | Value::Integer(_)))) => Ok(value),
            (Some(kind @ ("null" | "bool" | "int" | "float")), _) => {
                Err(FileError::new(here, format!("the tag !!{kind} does not fit its value: leave it out")))
            }
            _ => Err(unknown_tag(here)),
        }
    }

    fn open(&mut self, open: OpenCollection, position: Position, anchor: usize) -> Result<(), FileError> {
        if self.frames.len() >= MAX_DEPTH {
            return Err(too_deep(position));
        }
        let values_before = self.values;
        self.count_values(1, position)?;
        self.frames.push(Frame { open, position, anchor, values_before, depth: 1 });
        Ok(())
    }

    fn close(&mut self) -> Result<(), FileError> {
        let Some(frame) = self.frames.pop() else { return Ok(()) };
        let value = match frame.open {
            OpenCollection::List(nodes) => Value::List(nodes),
            OpenCollection::Map(entries, _) => entries.into_value(),
        };
        let values = self.values - frame.values_before;
        self.insert(Node { value, position: frame.position }, frame.anchor, values, frame.depth)
    }

    fn alias(&mut self, anchor: usize, here: Position) -> Result<(), FileError> {
        let Some(anchored) = self.anchors.get(&anchor) else {
            return Err(FileError::new(here, "this alias stands inside its own value: write the value out"));
        };
        let (values, depth) = (anchored.values, anchored.depth);
        // Counts before it copies.
        self.count_values(values, here)?;
        if self.frames.len() + depth > MAX_DEPTH {
            return Err(too_deep(here));
        }
        let node = self.anchors.get(&anchor).map(|anchored| anchored.node.clone());
        node.map_or(Ok(()), |node| self.insert(node, 0, values, depth))
    }

    /// Puts a complete value into the collection that is open, or makes it the root.
    fn insert(&mut self, node: Node, anchor: usize, values: usize, depth: usize) -> Result<(), FileError> {
        if anchor > 0 {
            // The copy counts too, because anchors within anchors make many copies.
            self.count_values(values, node.position)?;
            self.anchors.insert(anchor, Anchored { node: node.clone(), values, depth });
        }
        let Some(frame) = self.frames.last_mut() else {
            self.root = Some(node);
            return Ok(());
        };
        frame.depth = frame.depth.max(depth + 1);
        match &mut frame.open {
            OpenCollection::List(nodes) => nodes.push(node),
            OpenCollection::Map(entries, key) => match (key.take(), node.value) {
                (Some(key), value) => entries.push(key, Node { value, position: node.position }),
                (None, Value::Text(text)) => return self.key(Key { name: text.text, position: node.position }),
                (None, _) => return Err(FileError::new(node.position, "a name must be a text")),
            },
        }
        Ok(())
    }

    fn key(&mut self, key: Key) -> Result<(), FileError> {
        if let Some(Frame { open: OpenCollection::Map(entries, pending), .. }) = self.frames.last_mut() {
            entries.reserve(&key)?;
            *pending = Some(key);
        }
        Ok(())
    }

    fn count_values(&mut self, values: usize, here: Position) -> Result<(), FileError> {
        self.values = self.values.saturating_add(values);
        if self.values > MAX_VALUES {
            return Err(FileError::new(
                here,
                format!("the file holds more than {MAX_VALUES} values, with aliases written out"),
            ));
        }
        Ok(())
    }
}

fn position(mark: Marker) -> Position {
    Position { line: mark.line().max(1), column: mark.col() + 1 }
}

fn too_deep(position: Position) -> FileError {
    FileError::new(position, format!("this is nested deeper than {MAX_DEPTH} levels"))
}

fn unknown_tag(position: Position) -> FileError {
    FileError::new(position, "unknown tag: a policy file needs none, leave it out")
}

fn expect_tag(tag: Option<&Tag>, core: &str, position: Position) -> Result<(), FileError> {
    match tag {
        Some(tag) if !(tag.is_yaml_core_schema() && tag.suffix == core) => Err(unknown_tag(position)),
        _ => Ok(()),
    }
}
