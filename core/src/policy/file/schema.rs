//! The meaning of the entries of a policy file, in every format.

use std::collections::HashMap;

use super::super::options::{Options, PolicyOption};
use super::super::overrides::KeyOverride;
use super::super::prefix::why_no_prefix;
use super::super::suggestion::did_you_mean;
use super::Format;
use super::file_policy::{FilePolicy, limit_list, policy_names};
use super::limit::{self, LocatedLimit};
use super::older_shape;
use super::option_value::{self, unknown_name, wrong_value};
use super::stores::{self, FileStore};
use super::tree::{FileError, Key, Node, Value, duplicate};

const FILE_NAMES: [&str; 4] = ["policies", "limits", "store", "prefix"];

/// The contents of a file.
pub(super) struct Contents {
    pub(super) store: Option<FileStore>,
    pub(super) prefix: Option<String>,
    pub(super) policies: Vec<FilePolicy>,
}

/// Reads the entries of a whole file.
pub(super) fn policy_file(root: &Node, format: Format) -> Result<Contents, FileError> {
    let entries = match &root.value {
        Value::Map(entries) => entries,
        // A file may be empty for a moment during a write. To read it as "no policies" would lift every limit.
        Value::Null => return Err(FileError::new(root.position, "the file is empty: it must have `policies`")),
        _ => {
            // A text may be a store URL that was passed in place of a file, or one that a character cut short.
            let found = if matches!(root.value, Value::Text(_)) { "a text".to_owned() } else { root.describe() };
            return Err(FileError::new(
                root.position,
                format!("a policy file is a map with `policies` and perhaps `store`, not {found}"),
            ));
        }
    };
    let (mut store, mut prefix) = (None, None);
    let mut policies: Option<Vec<FilePolicy>> = None;
    for (key, node) in entries {
        let found = match key.name.as_str() {
            "store" => {
                store = Some(stores::read(node)?);
                continue;
            }
            "prefix" => {
                prefix = Some(prefix_of(key, node)?);
                continue;
            }
            "policies" => policy_map(node, format)?,
            "limits" => older_shape::policies(node)?,
            _ => return Err(unknown_name(key, &FILE_NAMES, "a policy file has", "")),
        };
        policies.get_or_insert_default().extend(found);
    }
    let policies = policies.ok_or_else(|| {
        FileError::new(
            root.position,
            "the file has no `policies`: add a map from names to policies, as in `policies: {login: 20/minute}`",
        )
    })?;
    refuse_duplicates(&policies)?;
    Ok(Contents { store, prefix, policies })
}

fn prefix_of(key: &Key, node: &Node) -> Result<String, FileError> {
    let Value::Text(text) = &node.value else {
        return Err(wrong_value(key, node, "a text"));
    };
    match why_no_prefix(&text.text) {
        Some(why) => Err(FileError::new(node.position, why)),
        None => Ok(text.text.clone()),
    }
}

/// A map has no name twice, but the two shapes together, or a list, may. And the limits of policies have names.
fn refuse_duplicates(policies: &[FilePolicy]) -> Result<(), FileError> {
    let mut seen = HashMap::new();
    for found in policies {
        if let Some(first) = seen.insert(found.policy.name(), found) {
            let key = Key { name: found.policy.name().to_owned(), position: found.position };
            return Err(duplicate(&key, first.position));
        }
    }
    for found in policies {
        let owner = found.policy.as_limit_name().and_then(|(owner, _)| seen.get(owner));
        if let Some(clash) = owner.and_then(|owner| found.policy.clash(&owner.policy)) {
            return Err(FileError::new(found.position, format!("{clash}: give one of them another name")));
        }
    }
    Ok(())
}

fn policy_map(node: &Node, format: Format) -> Result<Vec<FilePolicy>, FileError> {
    let Value::Map(entries) = &node.value else {
        return Err(node.is_not("`policies` must be a map from names to policies", "; write {} for none"));
    };
    entries.iter().map(|(key, node)| policy(key, node, format)).collect()
}

fn policy(key: &Key, node: &Node, format: Format) -> Result<FilePolicy, FileError> {
    let (limits, options) = match &node.value {
        Value::Text(_) | Value::List(_) => (limits(node)?, Options::default()),
        Value::Map(entries) => policy_options(key, entries, format)?,
        _ => {
            let name = key.shown();
            let must = format!("the policy {name} must be notation, a list of limits or a map with `limits`");
            return Err(node.is_not(&must, ""));
        }
    };
    FilePolicy::new(key.clone(), limits, options, false)
}

fn policy_options(
    key: &Key,
    entries: &[(Key, Node)],
    format: Format,
) -> Result<(Vec<LocatedLimit>, Options), FileError> {
    let mut found = None;
    let mut options = Options::default();
    for (key, node) in entries {
        match (key.name.as_str(), PolicyOption::named(&key.name)) {
            ("limits", _) => found = Some(limits(node)?),
            (_, Some(option)) => {
                option.set(&mut options, option_value::policy_option(option.kind, key, node, key_override)?);
            }
            (name, None) => return Err(unknown_name(key, &policy_names(), "a policy has", hint(name, format))),
        }
    }
    let found = found.ok_or_else(|| {
        let shown = key.shown();
        FileError::new(
            key.position,
            format!("the policy {shown} has no `limits`: add a list, as in `limits: [20/minute]`"),
        )
    })?;
    Ok((found, options))
}

/// Advice for names that have another meaning here than elsewhere.
fn hint(name: &str, format: Format) -> &'static str {
    if limit::LIMIT_NAMES.contains(&name) {
        "; write the numbers of a limit in the list under `limits`"
    } else if name == "<<" {
        "; YAML 1.2 has no merge key: repeat the options"
    } else if format == Format::Toml && did_you_mean(name, policy_names()).is_empty() {
        "; write a name with a dot in quotes, as in \"auth.login\" = \"5/minute\""
    } else {
        ""
    }
}

/// The limits of one key, or `none`.
fn key_override(node: &Node) -> Result<KeyOverride, FileError> {
    match &node.value {
        Value::Text(text) if text.text.trim().eq_ignore_ascii_case("none") => Ok(KeyOverride::unlimited()),
        _ => Ok(KeyOverride::of(limits(node)?.into_iter().map(|located| located.limit).collect())),
    }
}

/// The limits of a notation, of one map, or of a list of both.
fn limits(node: &Node) -> Result<Vec<LocatedLimit>, FileError> {
    match &node.value {
        Value::List(nodes) => limit_list(nodes, node.position, limit::limits),
        _ => limit::limits(node),
    }
}
