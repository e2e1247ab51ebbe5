//! What the entries of a policy file mean, in every format.

use super::super::options::{MAX_JOURNAL, OnStoreError, Options};
use super::super::suggestion::did_you_mean;
use super::super::{MAX_LIMITS, Policy};
use super::limit::{self, LocatedLimit};
use super::option_value::{boolean, choice, duration, unknown_name, whole_number};
use super::tree::{FileError, Key, Node, Position, Value};
use super::{Format, PolicyFile, PolicyLocations};

const FILE_NAMES: [&str; 2] = ["policies", "store"];
const POLICY_NAMES: [&str; 6] = ["limits", "on_store_error", "shadow", "block_for", "count_denied", "journal"];

/// What a file says, with positions that do not name the file yet.
pub(super) struct ParsedFile {
    store: Option<Vec<String>>,
    policies: Vec<(Policy, Position, Vec<Position>)>,
}

impl ParsedFile {
    pub(super) fn into_policy_file(self, file: Option<&str>) -> PolicyFile {
        let (policies, locations) = self
            .policies
            .into_iter()
            .map(|(policy, position, limits)| {
                let limits = limits.into_iter().map(|position| position.in_file(file)).collect();
                (policy, PolicyLocations { policy: position.in_file(file), limits })
            })
            .unzip();
        PolicyFile { store: self.store, policies, locations }
    }
}

pub(super) fn policy_file(root: &Node, format: Format) -> Result<ParsedFile, FileError> {
    let entries = match &root.value {
        Value::Map(entries) => entries,
        // A file that is being written may be empty for a moment: to read it as "no policies" would lift every limit.
        Value::Null => return Err(FileError::new(root.position, "the file is empty: it must have `policies`")),
        _ => {
            // A text may be a store URL that was given in place of a file, or that a character cut short.
            let found = if matches!(root.value, Value::Text(_)) { "a text".to_owned() } else { root.describe() };
            return Err(FileError::new(
                root.position,
                format!("a policy file is a map with `policies` and perhaps `store`, not {found}"),
            ));
        }
    };
    let mut store = None;
    let mut policies = None;
    for (key, node) in entries {
        match key.name.as_str() {
            "store" => store = Some(stores(node)?),
            "policies" => policies = Some(policy_map(node, format)?),
            _ => return Err(unknown_name(key, &FILE_NAMES, "a policy file has", "")),
        }
    }
    let policies = policies.ok_or_else(|| FileError::new(root.position, "the file has no `policies`"))?;
    Ok(ParsedFile { store, policies })
}

/// Its errors do not show the value: a URL may hold a password.
fn stores(node: &Node) -> Result<Vec<String>, FileError> {
    let url = |node: &Node| match &node.value {
        Value::Text(text) if !text.text.trim().is_empty() => Ok(text.text.trim().to_owned()),
        _ => Err(FileError::new(
            node.position,
            "`store` must be a URL, as in memory:// or redis://host:6379/0, or a list of URLs",
        )),
    };
    match &node.value {
        Value::List(nodes) if !nodes.is_empty() => nodes.iter().map(url).collect(),
        _ => url(node).map(|url| vec![url]),
    }
}

fn policy_map(node: &Node, format: Format) -> Result<Vec<(Policy, Position, Vec<Position>)>, FileError> {
    let Value::Map(entries) = &node.value else {
        return Err(FileError::new(
            node.position,
            format!("`policies` must be a map from names to policies, not {}; write {{}} for none", node.describe()),
        ));
    };
    entries.iter().map(|(key, node)| policy(key, node, format)).collect()
}

fn policy(key: &Key, node: &Node, format: Format) -> Result<(Policy, Position, Vec<Position>), FileError> {
    let (limits, options) = match &node.value {
        Value::Text(_) | Value::List(_) => (limits(node)?, Options::default()),
        Value::Map(entries) => policy_options(key, entries, format)?,
        _ => {
            return Err(FileError::new(
                node.position,
                format!(
                    "the policy {} must be notation, a list of limits or a map with `limits`, not {}",
                    key.shown(),
                    node.describe()
                ),
            ));
        }
    };
    let (limits, positions) = limits.into_iter().map(|placed| (placed.limit, placed.position)).unzip();
    let policy = Policy::new(limits, options)
        .and_then(|policy| policy.named(key.name.as_str()))
        .map_err(|error| FileError::new(key.position, error.message()))?;
    Ok((policy, key.position, positions))
}

fn policy_options(
    key: &Key,
    entries: &[(Key, Node)],
    format: Format,
) -> Result<(Vec<LocatedLimit>, Options), FileError> {
    let mut found = None;
    let mut options = Options::default();
    for (key, node) in entries {
        match key.name.as_str() {
            "limits" => found = Some(limits(node)?),
            "on_store_error" => {
                let names = OnStoreError::ALL.map(OnStoreError::name);
                options.on_store_error = Some(choice(key, node, OnStoreError::from_name, &names)?);
            }
            "shadow" => options.shadow = boolean(key, node)?,
            "block_for" => options.block_for = Some(duration(key, node)?),
            "count_denied" => options.count_denied = boolean(key, node)?,
            "journal" => {
                let attempts = whole_number(key, node, u64::from(MAX_JOURNAL))?;
                options.journal = u32::try_from(attempts).unwrap_or(MAX_JOURNAL);
            }
            "lease" => {
                return Err(FileError::new(key.position, "leases are not available yet: remove `lease`"));
            }
            name => return Err(unknown_name(key, &POLICY_NAMES, "a policy has", hint(name, format))),
        }
    }
    let found =
        found.ok_or_else(|| FileError::new(key.position, format!("the policy {} has no `limits`", key.shown())))?;
    Ok((found, options))
}

/// Advice for names that mean something else here than where people know them from.
fn hint(name: &str, format: Format) -> &'static str {
    if limit::LIMIT_NAMES.contains(&name) {
        "; the numbers of a limit stand in the list under `limits`"
    } else if name == "<<" {
        "; YAML 1.2 has no merge key: repeat the options"
    } else if format == Format::Toml && did_you_mean(name, POLICY_NAMES).is_empty() {
        "; a name with a dot stands in quotes, as in \"auth.login\" = \"5/minute\""
    } else {
        ""
    }
}

/// The limits of a notation, of one map, or of a list of both.
fn limits(node: &Node) -> Result<Vec<LocatedLimit>, FileError> {
    let Value::List(nodes) = &node.value else { return limit::limits(node) };
    if nodes.is_empty() {
        return Err(FileError::new(
            node.position,
            format!("a policy must have from 1 to {MAX_LIMITS} limits, and the list is empty"),
        ));
    }
    let mut limits = Vec::new();
    for node in nodes {
        limits.extend(limit::limits(node)?);
        if limits.len() > MAX_LIMITS {
            return Err(FileError::new(
                node.position,
                format!("a policy must have from 1 to {MAX_LIMITS} limits, and this is one more"),
            ));
        }
    }
    Ok(limits)
}
