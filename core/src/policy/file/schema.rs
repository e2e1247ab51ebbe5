//! What the entries of a policy file mean, whatever its format.

use super::super::nearest::did_you_mean;
use super::super::notation::clip;
use super::super::options::{MAX_JOURNAL, OnStoreError, Options};
use super::super::{MAX_LIMITS, Policy};
use super::limit::{self, Placed, choice, duration, flag, whole};
use super::tree::{Fault, Key, Node, Spot, Value};
use super::{Format, PolicyFile, PolicyPlaces};

const TOP: [&str; 2] = ["policies", "store"];
const OPTIONS: [&str; 6] = ["limits", "on_store_error", "shadow", "block_for", "count_denied", "journal"];

/// What was read, before it is known what the file is called.
pub(super) struct Reading {
    store: Option<Vec<String>>,
    policies: Vec<(Policy, Spot, Vec<Spot>)>,
}

impl Reading {
    pub(super) fn placed(self, file: Option<&str>) -> PolicyFile {
        let (policies, places) = self
            .policies
            .into_iter()
            .map(|(policy, spot, limits)| {
                let limits = limits.into_iter().map(|spot| spot.place(file)).collect();
                (policy, PolicyPlaces { policy: spot.place(file), limits })
            })
            .unzip();
        PolicyFile { store: self.store, policies, places }
    }
}

pub(super) fn policy_file(root: &Node, format: Format) -> Result<Reading, Fault> {
    let entries = match &root.value {
        Value::Map(entries) => entries,
        // A file that is being written may be empty for a moment; taking it for "no policies" would lift every limit.
        Value::Null => return Err(Fault::new(root.spot, "the file is empty: it must have `policies`")),
        _ => {
            return Err(Fault::new(
                root.spot,
                format!("a policy file is a map with `policies` and perhaps `store`, not {}", root.describe()),
            ));
        }
    };
    let mut store = None;
    let mut policies = None;
    for (key, node) in entries {
        match key.name.as_str() {
            "store" => store = Some(stores(node)?),
            "policies" => policies = Some(policy_map(node, format)?),
            _ => return Err(unknown(key, &TOP, "a policy file has", "")),
        }
    }
    let policies = policies.ok_or_else(|| Fault::new(root.spot, "the file has no `policies`"))?;
    Ok(Reading { store, policies })
}

/// Says nothing of what it found: a URL may hold a password.
fn stores(node: &Node) -> Result<Vec<String>, Fault> {
    let url = |node: &Node| match &node.value {
        Value::Text(text) if !text.text.trim().is_empty() => Ok(text.text.trim().to_owned()),
        _ => Err(Fault::new(
            node.spot,
            "`store` must be a URL, as in memory:// or redis://host:6379/0, or a list of URLs",
        )),
    };
    match &node.value {
        Value::List(nodes) if !nodes.is_empty() => nodes.iter().map(url).collect(),
        _ => url(node).map(|url| vec![url]),
    }
}

fn policy_map(node: &Node, format: Format) -> Result<Vec<(Policy, Spot, Vec<Spot>)>, Fault> {
    let Value::Map(entries) = &node.value else {
        return Err(Fault::new(
            node.spot,
            format!("`policies` must be a map from names to policies, not {}; write {{}} for none", node.describe()),
        ));
    };
    entries.iter().map(|(key, node)| policy(key, node, format)).collect()
}

fn policy(key: &Key, node: &Node, format: Format) -> Result<(Policy, Spot, Vec<Spot>), Fault> {
    let (limits, options) = match &node.value {
        Value::Text(_) | Value::List(_) => (limits(node)?, Options::default()),
        Value::Map(entries) => policy_options(key, entries, format)?,
        _ => {
            return Err(Fault::new(
                node.spot,
                format!(
                    "the policy `{}` must be notation, a list of limits or a map with `limits`, not {}",
                    clip(&key.name),
                    node.describe()
                ),
            ));
        }
    };
    let (limits, spots) = limits.into_iter().map(|placed| (placed.limit, placed.spot)).unzip();
    let policy = Policy::new(limits, options)
        .and_then(|policy| policy.named(key.name.as_str()))
        .map_err(|error| Fault::new(key.spot, error.message()))?;
    Ok((policy, key.spot, spots))
}

fn policy_options(key: &Key, entries: &[(Key, Node)], format: Format) -> Result<(Vec<Placed>, Options), Fault> {
    let mut found = None;
    let mut options = Options::default();
    for (key, node) in entries {
        match key.name.as_str() {
            "limits" => found = Some(limits(node)?),
            "on_store_error" => {
                let names = OnStoreError::ALL.map(OnStoreError::name);
                options.on_store_error = Some(choice(key, node, OnStoreError::from_name, &names)?);
            }
            "shadow" => options.shadow = flag(key, node)?,
            "block_for" => options.block_for = Some(duration(key, node)?),
            "count_denied" => options.count_denied = flag(key, node)?,
            "journal" => {
                let attempts = whole(key, node, u64::from(MAX_JOURNAL))?;
                options.journal = u32::try_from(attempts).unwrap_or(MAX_JOURNAL);
            }
            "lease" => {
                return Err(Fault::new(key.spot, "leases are not available yet: remove `lease`"));
            }
            name => return Err(unknown(key, &OPTIONS, "a policy has", hint(name, format))),
        }
    }
    let found =
        found.ok_or_else(|| Fault::new(key.spot, format!("the policy `{}` has no `limits`", clip(&key.name))))?;
    Ok((found, options))
}

/// What people write by habit that means something else here.
fn hint(name: &str, format: Format) -> &'static str {
    if limit::KEYS.contains(&name) {
        "; the numbers of a limit stand in the list under `limits`"
    } else if name == "<<" {
        "; YAML 1.2 has no merge key: repeat the options"
    } else if format == Format::Toml && did_you_mean(name, OPTIONS).is_empty() {
        "; a name with a dot stands in quotes, as in \"auth.login\" = \"5/minute\""
    } else {
        ""
    }
}

/// The limits of a notation, of one map, or of a list of both.
fn limits(node: &Node) -> Result<Vec<Placed>, Fault> {
    let Value::List(nodes) = &node.value else { return limit::limits(node) };
    if nodes.is_empty() {
        return Err(Fault::new(
            node.spot,
            format!("a policy must have from 1 to {MAX_LIMITS} limits, and the list is empty"),
        ));
    }
    let mut limits = Vec::new();
    for node in nodes {
        limits.extend(limit::limits(node)?);
        if limits.len() > MAX_LIMITS {
            return Err(Fault::new(
                node.spot,
                format!("a policy must have from 1 to {MAX_LIMITS} limits, and this is one more"),
            ));
        }
    }
    Ok(limits)
}

pub(super) fn unknown(key: &Key, allowed: &[&str], who: &str, hint: &str) -> Fault {
    let near = if hint.is_empty() { &did_you_mean(&key.name, allowed.iter().copied()) } else { hint };
    let name = if key.name.contains("://") { "a URL" } else { &clip(&key.name) };
    Fault::new(key.spot, format!("unknown name `{name}`{near}\n{who} {}", allowed.join(", ")))
}
