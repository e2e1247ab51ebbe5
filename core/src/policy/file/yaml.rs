//! YAML 1.2 (core schema), with places.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

use saphyr_parser::{Event, Marker, Parser, ScalarStyle, Tag};

use super::ruler::Ruler;
use super::tree::{Entries, Fault, Key, Node, Spot, Text, Value};

/// No policy file nests deeper than this, and what reads the tree may recurse.
const DEEPEST: usize = 64;
/// The most values a file may hold once its aliases are written out: a few lines of aliases can stand for billions.
const MOST: usize = 200_000;

/// The tree of a YAML text.
pub(super) fn tree(ruler: &Ruler<'_>) -> Result<Node, Fault> {
    // The parser holds assertions of its own. None is known to fire, but a file that is being edited must not take
    // down the service that reloads it.
    catch_unwind(AssertUnwindSafe(|| Builder::new(ruler).run()))
        .unwrap_or_else(|_| Err(Fault::new(ruler.spot(0), "this is no YAML that could be read")))
}

/// A value that an alias may repeat, with its size.
struct Anchored {
    node: Node,
    values: usize,
    depth: usize,
}

enum Open {
    List(Vec<Node>),
    Map(Entries, Option<Key>),
}

struct Frame {
    open: Open,
    spot: Spot,
    anchor: usize,
    values_before: usize,
    depth: usize,
}

struct Builder<'r, 'a> {
    ruler: &'r Ruler<'a>,
    frames: Vec<Frame>,
    anchors: HashMap<usize, Anchored>,
    root: Option<Node>,
    values: usize,
}

impl<'r, 'a> Builder<'r, 'a> {
    fn new(ruler: &'r Ruler<'a>) -> Self {
        Self { ruler, frames: Vec::new(), anchors: HashMap::new(), root: None, values: 0 }
    }

    fn run(mut self) -> Result<Node, Fault> {
        for event in Parser::new_from_str(self.ruler.text()) {
            let (event, span) = event
                .map_err(|error| Fault::new(spot(*error.marker()), format!("this is no YAML: {}", error.info())))?;
            self.event(event, span.start)?;
        }
        self.root.ok_or_else(|| Fault::new(self.ruler.spot(0), "the file is empty"))
    }

    fn event(&mut self, event: Event<'_>, mark: Marker) -> Result<(), Fault> {
        let here = spot(mark);
        match event {
            Event::DocumentStart(_) if self.root.is_some() => {
                Err(Fault::new(here, "a second YAML document begins here: a policy file has one"))
            }
            Event::Scalar(text, style, anchor, tag) => self.scalar(&text, style, anchor, tag.as_deref(), mark),
            Event::SequenceStart(anchor, tag) => {
                accept(tag.as_deref(), "seq", here)?;
                self.open(Open::List(Vec::new()), here, anchor)
            }
            Event::MappingStart(anchor, tag) => {
                accept(tag.as_deref(), "map", here)?;
                self.open(Open::Map(Entries::default(), None), here, anchor)
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
    ) -> Result<(), Fault> {
        let here = spot(mark);
        let is_key = matches!(self.frames.last(), Some(Frame { open: Open::Map(_, None), .. }));
        if is_key && anchor == 0 && tag.is_none() && !(text.is_empty() && style == ScalarStyle::Plain) {
            // A key is its text, whatever it looks like: a policy may be called `404`.
            return self.key(Key { name: text.to_owned(), spot: here });
        }
        let value = if style == ScalarStyle::Plain && tag.is_none() { plain(text) } else { None };
        let value = value.map_or_else(|| self.tagged(text, tag, mark), Ok)?;
        self.count(1, here)?;
        self.done(Node { value, spot: here }, anchor, 1, 1)
    }

    fn tagged(&self, text: &str, tag: Option<&Tag>, mark: Marker) -> Result<Value, Fault> {
        let here = spot(mark);
        let as_text = || {
            let offset = self.ruler.offset_of_char(mark.index());
            Value::Text(Text { body: self.ruler.body(offset, text), text: text.to_owned(), from_environment: false })
        };
        let Some(tag) = tag else { return Ok(as_text()) };
        let core = tag.is_yaml_core_schema().then_some(tag.suffix.as_str());
        match (core, plain(text)) {
            (Some("str"), _) => Ok(as_text()),
            (Some("null"), Some(value @ Value::Null))
            | (Some("bool"), Some(value @ Value::Bool(_)))
            | (Some("int"), Some(value @ Value::Integer(_)))
            | (Some("float"), Some(value @ (Value::Float(_) | Value::Integer(_)))) => Ok(value),
            (Some(kind @ ("null" | "bool" | "int" | "float")), _) => {
                Err(Fault::new(here, format!("the tag !!{kind} does not fit its value: leave it out")))
            }
            _ => Err(unknown_tag(here)),
        }
    }

    fn open(&mut self, open: Open, spot: Spot, anchor: usize) -> Result<(), Fault> {
        if self.frames.len() >= DEEPEST {
            return Err(too_deep(spot));
        }
        let values_before = self.values;
        self.count(1, spot)?;
        self.frames.push(Frame { open, spot, anchor, values_before, depth: 1 });
        Ok(())
    }

    fn close(&mut self) -> Result<(), Fault> {
        let Some(frame) = self.frames.pop() else { return Ok(()) };
        let value = match frame.open {
            Open::List(nodes) => Value::List(nodes),
            Open::Map(entries, _) => entries.into_value(),
        };
        let values = self.values - frame.values_before;
        self.done(Node { value, spot: frame.spot }, frame.anchor, values, frame.depth)
    }

    fn alias(&mut self, anchor: usize, here: Spot) -> Result<(), Fault> {
        let Some(anchored) = self.anchors.get(&anchor) else {
            return Err(Fault::new(here, "this alias stands inside of what it repeats"));
        };
        let (values, depth) = (anchored.values, anchored.depth);
        // Counted before it is copied.
        self.count(values, here)?;
        if self.frames.len() + depth > DEEPEST {
            return Err(too_deep(here));
        }
        let node = self.anchors.get(&anchor).map(|anchored| anchored.node.clone());
        node.map_or(Ok(()), |node| self.done(node, 0, values, depth))
    }

    /// Puts a whole value where it belongs.
    fn done(&mut self, node: Node, anchor: usize, values: usize, depth: usize) -> Result<(), Fault> {
        if anchor > 0 {
            // The copy counts too: anchors within anchors are many copies.
            self.count(values, node.spot)?;
            self.anchors.insert(anchor, Anchored { node: node.clone(), values, depth });
        }
        let Some(frame) = self.frames.last_mut() else {
            self.root = Some(node);
            return Ok(());
        };
        frame.depth = frame.depth.max(depth + 1);
        match &mut frame.open {
            Open::List(nodes) => nodes.push(node),
            Open::Map(entries, key) => match (key.take(), node.value) {
                (Some(key), value) => entries.push(key, Node { value, spot: node.spot }),
                (None, Value::Text(text)) => return self.key(Key { name: text.text, spot: node.spot }),
                (None, _) => return Err(Fault::new(node.spot, "a name must be a text")),
            },
        }
        Ok(())
    }

    fn key(&mut self, key: Key) -> Result<(), Fault> {
        if let Some(Frame { open: Open::Map(entries, pending), .. }) = self.frames.last_mut() {
            entries.claim(&key)?;
            *pending = Some(key);
        }
        Ok(())
    }

    fn count(&mut self, values: usize, here: Spot) -> Result<(), Fault> {
        self.values = self.values.saturating_add(values);
        if self.values > MOST {
            return Err(Fault::new(here, format!("the file holds more than {MOST} values, with aliases written out")));
        }
        Ok(())
    }
}

fn spot(mark: Marker) -> Spot {
    Spot { line: mark.line().max(1), column: mark.col() + 1 }
}

fn too_deep(spot: Spot) -> Fault {
    Fault::new(spot, format!("this is nested deeper than {DEEPEST} levels"))
}

fn unknown_tag(spot: Spot) -> Fault {
    Fault::new(spot, "unknown tag: a policy file needs none, leave it out")
}

fn accept(tag: Option<&Tag>, core: &str, spot: Spot) -> Result<(), Fault> {
    match tag {
        Some(tag) if !(tag.is_yaml_core_schema() && tag.suffix == core) => Err(unknown_tag(spot)),
        _ => Ok(()),
    }
}

/// What an unquoted scalar means by the core schema of YAML 1.2; nothing when it is a text.
pub(super) fn plain(text: &str) -> Option<Value> {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Some(Value::Null),
        "true" | "True" | "TRUE" => return Some(Value::Bool(true)),
        "false" | "False" | "FALSE" => return Some(Value::Bool(false)),
        _ => {}
    }
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    match unsigned {
        ".inf" | ".Inf" | ".INF" if text.starts_with('-') => return Some(Value::Float(f64::NEG_INFINITY)),
        ".inf" | ".Inf" | ".INF" => return Some(Value::Float(f64::INFINITY)),
        ".nan" | ".NaN" | ".NAN" if unsigned.len() == text.len() => return Some(Value::Float(f64::NAN)),
        _ => {}
    }
    for (prefix, radix) in [("0x", 16), ("0o", 8)] {
        if let Some(digits) = text.strip_prefix(prefix) {
            let plausible = digits.starts_with(|c: char| c.is_digit(radix));
            return plausible.then(|| i128::from_str_radix(digits, radix).ok().map(Value::Integer)).flatten();
        }
    }
    let digits = |c: char| c.is_ascii_digit();
    if !unsigned.starts_with(|c: char| digits(c) || c == '.') || !unsigned.contains(digits) {
        return None;
    }
    // What is left over are the forms that Rust reads as the core schema does: 1, 1.5, .5, 1., 1e3, 1.5E-3.
    text.parse().map(Value::Integer).or_else(|_| text.parse().map(Value::Float)).ok()
}
