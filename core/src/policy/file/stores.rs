//! `store`: a URL, the URLs of shards, or a rollout. No error shows a value, because a URL may hold a password.

use super::option_value::{number, unknown_name};
use super::tree::{FileError, Key, Node, Value};

const STORE_NAMES: [&str; 2] = ["shards", "rollout"];
const ROLLOUT_NAMES: [&str; 3] = ["from", "to", "percent"];

/// The stores that a file names.
#[derive(Clone, Default, PartialEq)]
pub(super) struct FileStore {
    /// The URL, or the URLs of the shards. For a rollout the old URL.
    pub(super) urls: Vec<String>,
    /// The new URL of a rollout, and its share of the keys.
    pub(super) rollout: Option<(String, f64)>,
}

pub(super) fn read(node: &Node) -> Result<FileStore, FileError> {
    let wanted = "`store` must be a URL, as in memory:// or redis://host:6379/0, a list of URLs, or a rollout, as in \
                  {rollout: {from: URL, to: URL, percent: 5}}";
    match &node.value {
        Value::List(nodes) if !nodes.is_empty() => urls(nodes, wanted),
        Value::Map(entries) if !entries.is_empty() => described(entries),
        _ => url(node, wanted).map(|url| FileStore { urls: vec![url], rollout: None }),
    }
}

fn described(entries: &[(Key, Node)]) -> Result<FileStore, FileError> {
    let mut found = None;
    for (key, node) in entries {
        let store = match (key.name.as_str(), &node.value) {
            ("rollout", Value::Map(entries)) => rollout(key, entries)?,
            ("rollout", _) => {
                return Err(FileError::new(node.position, "`rollout` must be a map with from, to, percent"));
            }
            ("shards", Value::List(nodes)) if !nodes.is_empty() => {
                urls(nodes, "a shard must be a URL, as in redis://host:6379/0")?
            }
            ("shards", _) => return Err(FileError::new(node.position, "`shards` must be a list of URLs")),
            _ => return Err(unknown_name(key, &STORE_NAMES, "a store that is a map has", "")),
        };
        if found.replace(store).is_some() {
            return Err(FileError::new(key.position, "a store has one of `shards` and `rollout`: remove the other"));
        }
    }
    Ok(found.unwrap_or_default())
}

fn rollout(key: &Key, entries: &[(Key, Node)]) -> Result<FileStore, FileError> {
    let (mut from, mut to, mut percent) = (None, None, None);
    for (key, node) in entries {
        let wanted = || format!("`{}` must be a URL, as in redis://host:6379/0", key.name);
        match key.name.as_str() {
            "from" => from = Some(url(node, &wanted())?),
            "to" => to = Some(url(node, &wanted())?),
            "percent" => percent = Some(number(key, node, 0.0, 100.0)?),
            _ => return Err(unknown_name(key, &ROLLOUT_NAMES, "a rollout has", "")),
        }
    }
    let missing = |name: &str| {
        let example = "write it as in {from: URL, to: URL, percent: 5}";
        FileError::new(key.position, format!("the rollout has no `{name}`: {example}"))
    };
    Ok(FileStore {
        urls: vec![from.ok_or_else(|| missing("from"))?],
        rollout: Some((to.ok_or_else(|| missing("to"))?, percent.ok_or_else(|| missing("percent"))?)),
    })
}

fn urls(nodes: &[Node], wanted: &str) -> Result<FileStore, FileError> {
    let urls = nodes.iter().map(|node| url(node, wanted)).collect::<Result<_, _>>()?;
    Ok(FileStore { urls, rollout: None })
}

fn url(node: &Node, wanted: &str) -> Result<String, FileError> {
    match &node.value {
        Value::Text(text) if !text.text.trim().is_empty() => Ok(text.text.trim().to_owned()),
        _ => Err(FileError::new(node.position, wanted)),
    }
}
