//! `${NAME}` and `${NAME:-default}` in the texts of a file.

use super::super::notation::may_be_url;
use super::tree::{FileError, Node, Position, Text, Value};

/// Looks up an environment variable. Tests pass another function.
pub(super) type EnvironmentLookup<'a> = &'a dyn Fn(&str) -> Option<String>;

/// Replaces every reference in every text below a node. Names of entries stay as they are.
pub(super) fn expand(node: &mut Node, lookup: EnvironmentLookup<'_>) -> Result<(), FileError> {
    match &mut node.value {
        Value::Text(text) if text.text.contains("${") => {
            let expanded = replace(text, node.position, lookup)?;
            *text = expanded;
        }
        Value::List(nodes) => {
            for node in nodes {
                expand(node, lookup)?;
            }
        }
        Value::Map(entries) => {
            for (_, node) in entries {
                expand(node, lookup)?;
            }
        }
        Value::Null | Value::Bool(_) | Value::Integer(_) | Value::Float(_) | Value::Text(_) => {}
    }
    Ok(())
}

fn replace(text: &Text, position: Position, lookup: EnvironmentLookup<'_>) -> Result<Text, FileError> {
    let source = text.text.as_str();
    let mut result = String::with_capacity(source.len());
    let mut from_environment = false;
    let mut column = 0;
    let mut rest = source;
    while let Some(at) = rest.find("${") {
        let (before, reference) = rest.split_at(at);
        column += before.chars().count();
        // `$${` is a way to write `${` itself.
        if let Some(before) = before.strip_suffix('$') {
            result.push_str(before);
            result.push_str("${");
            column += 2;
            rest = &reference[2..];
            continue;
        }
        result.push_str(before);
        let here = text.position(column, position);
        let inside = reference[2..].split_once('}').map(|(inside, _)| inside).ok_or_else(|| {
            FileError::new(
                here,
                "`${` has no `}`: write ${NAME}, ${NAME:-default}, or $${ for the characters themselves",
            )
        })?;
        // A text in a URL that looks like a reference may be a part of a password.
        let shown = !may_be_url(source);
        result.push_str(&value(inside, shown, here, lookup)?);
        from_environment = true;
        let taken = &reference[..inside.len() + 3];
        column += taken.chars().count();
        rest = &reference[taken.len()..];
    }
    result.push_str(rest);
    Ok(Text { text: result, verbatim: None, from_environment })
}

fn value(inside: &str, shown: bool, position: Position, lookup: EnvironmentLookup<'_>) -> Result<String, FileError> {
    let (name, default) = match inside.split_once(":-") {
        Some((name, default)) => (name, Some(default)),
        None => (inside, None),
    };
    let is_name = name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
        && !name.starts_with(|c: char| c.is_ascii_digit())
        && !name.is_empty();
    if !is_name {
        return Err(FileError::new(
            position,
            "`${` must hold the name of an environment variable: write ${NAME} or ${NAME:-default}",
        ));
    }
    match (lookup(name), default) {
        // As in a shell, an empty variable counts as missing when there is a default.
        (Some(value), Some(default)) if value.is_empty() => Ok(default.to_owned()),
        (Some(value), _) => Ok(value),
        (None, Some(default)) => Ok(default.to_owned()),
        (None, None) if !shown => Err(FileError::new(
            position,
            "an environment variable of this URL is not set: set it, or write $${ for the characters themselves",
        )),
        (None, None) => Err(FileError::new(
            position,
            format!(
                "the environment variable {name} is not set: set it, or write a default, as in ${{{name}:-default}}"
            ),
        )),
    }
}
