//! A policy of a file, in either shape.

use super::super::options::{Options, POLICY_OPTIONS};
use super::super::{MAX_LIMITS, Policy};
use super::limit::LocatedLimit;
use super::tree::{FileError, Key, Node, Position};

/// The names in a policy that is a map.
pub(super) fn policy_names() -> Vec<&'static str> {
    ["limits"].into_iter().chain(POLICY_OPTIONS.iter().map(|option| option.name)).collect()
}

/// A policy with the positions of its name and its limits.
pub(super) struct FilePolicy {
    pub(super) policy: Policy,
    pub(super) position: Position,
    pub(super) limits: Vec<Position>,
    /// True if it has the shape of older files.
    pub(super) older: bool,
}

impl FilePolicy {
    pub(super) fn new(key: Key, limits: Vec<LocatedLimit>, options: Options, older: bool) -> Result<Self, FileError> {
        let position = key.position;
        let (limits, positions) = limits.into_iter().map(|placed| (placed.limit, placed.position)).unzip();
        let policy = Policy::new(limits, options)
            .and_then(|policy| policy.named(key.name))
            .map_err(|error| FileError::new(position, error.message()))?;
        Ok(Self { policy, position, limits: positions, older })
    }
}

/// All limits of a list. Each entry of the list has some.
pub(super) fn limit_list(
    nodes: &[Node],
    position: Position,
    limits_in: impl Fn(&Node) -> Result<Vec<LocatedLimit>, FileError>,
) -> Result<Vec<LocatedLimit>, FileError> {
    if nodes.is_empty() {
        return Err(FileError::new(
            position,
            format!("a policy must have from 1 to {MAX_LIMITS} limits, and the list is empty"),
        ));
    }
    let mut limits = Vec::new();
    for node in nodes {
        limits.extend(limits_in(node)?);
        if limits.len() > MAX_LIMITS {
            return Err(FileError::new(
                node.position,
                format!("a policy must have from 1 to {MAX_LIMITS} limits, and this is one more"),
            ));
        }
    }
    Ok(limits)
}
