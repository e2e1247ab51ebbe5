//! `limits: [{name, config: [{limit, period}]}]`, the shape of policies in older files. Periods are in seconds.

use super::file_policy::{FilePolicy, limit_list, policy_names};
use super::limit;
use super::option_value::unknown_name;
use super::scalar::plain_scalar;
use super::tree::{FileError, Key, Node, Position, Value};
use crate::policy::options::Options;

const ENTRY_NAMES: [&str; 2] = ["name", "config"];
const LIMIT_NAMES: [&str; 2] = ["limit", "period"];

pub(super) fn policies(node: &Node) -> Result<Vec<FilePolicy>, FileError> {
    let Value::List(nodes) = &node.value else {
        return Err(node.is_not("`limits` must be a list of {name, config}", "; or write `policies`"));
    };
    nodes.iter().map(policy).collect()
}

fn policy(node: &Node) -> Result<FilePolicy, FileError> {
    let Value::Map(entries) = &node.value else {
        return Err(node.is_not("an entry of `limits` must be a map with `name` and `config`", ""));
    };
    let (mut name, mut limits) = (None, None);
    for (key, node) in entries {
        match key.name.as_str() {
            "name" => name = Some(name_in(node)?),
            "config" => limits = Some(config(node)?),
            _ => {
                let hint = "; write policies with options under `policies`";
                let hint = if policy_names().contains(&&*key.name) { hint } else { "" };
                return Err(unknown_name(key, &ENTRY_NAMES, "an entry of `limits` has", hint));
            }
        }
    }
    let missing = |what: &str| FileError::new(node.position, format!("this entry of `limits` has no {what}"));
    let name = name.ok_or_else(|| missing("`name`"))?;
    FilePolicy::new(name, limits.ok_or_else(|| missing("`config`"))?, Options::default(), true)
}

fn name_in(node: &Node) -> Result<Key, FileError> {
    match &node.value {
        Value::Text(text) => Ok(Key { name: text.text.clone(), position: node.position }),
        _ => Err(node.is_not("`name` must be a text", "")),
    }
}

fn config(node: &Node) -> Result<Vec<limit::LocatedLimit>, FileError> {
    let Value::List(nodes) = &node.value else {
        return Err(node.is_not("`config` must be a list of {limit, period}", ""));
    };
    limit_list(nodes, node.position, |node| match &node.value {
        Value::Map(entries) => limits(entries, node.position),
        _ => Err(node.is_not("an entry of `config` must be a map with `limit` and `period`", "")),
    })
}

fn limits(entries: &[(Key, Node)], position: Position) -> Result<Vec<limit::LocatedLimit>, FileError> {
    if let Some((key, _)) = entries.iter().find(|(key, _)| !LIMIT_NAMES.contains(&&*key.name)) {
        let known = limit::LIMIT_NAMES.contains(&&*key.name);
        let hint = if known { "; write limits with other numbers under `policies`" } else { "" };
        return Err(unknown_name(key, &LIMIT_NAMES, "an entry of `config` has", hint));
    }
    if !entries.iter().any(|(key, _)| key.name == "limit") {
        return Err(FileError::new(position, "the limit has no `limit`: add one, as in `limit: 20`"));
    }
    let entries = entries.iter().map(|(key, node)| (key.clone(), with_seconds(key, node))).collect();
    limit::limits(&Node { value: Value::Map(entries), position })
}

/// A period may be a text that holds a number of seconds.
fn with_seconds(key: &Key, node: &Node) -> Node {
    let number = match &node.value {
        Value::Text(text) if key.name == "period" => plain_scalar(text.text.trim()),
        _ => None,
    };
    match number {
        Some(value @ (Value::Integer(_) | Value::Float(_))) => Node { value, position: node.position },
        _ => node.clone(),
    }
}
