//! The keys that clients use at each time. All processes work on the same keys without talking to each other, and no
//! key has a long history.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use tidegate::{KeyOverride, Limit, Policy, PolicyFile};

use super::record::{Call, Operation};
use crate::random::Random;

/// The policy file that all clients read.
pub(super) fn file() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../histories/policies.json"))
}

/// The policies of that file, in order.
///
/// # Panics
/// When the file is wrong.
#[must_use]
pub fn policies() -> Vec<Policy> {
    PolicyFile::read(file()).expect("a policy file").policies().to_vec()
}

/// A policy with the numbers of its overrides: twice as many units. Buckets have none, because the units that a bucket
/// has drained depend on the moment of the override, and no answer gives that moment.
///
/// # Panics
/// When there can be no such policy.
#[must_use]
pub fn overridden(policy: &Policy) -> Option<Policy> {
    if policy.limits().iter().any(|limit| limit.algorithm().has_burst()) {
        return None;
    }
    let double =
        |limit: &Limit| Limit::new(limit.algorithm(), 2 * limit.count(), limit.period()).expect("a larger count");
    let limits = policy.limits().iter().map(double).collect();
    Some(Policy::new(limits, policy.options().clone()).and_then(|own| own.named(policy.name())).expect("a policy"))
}

/// The limits that overrides give single keys of the policies, by their names.
#[must_use]
pub fn own_limits() -> BTreeMap<String, String> {
    let text = |own: &Policy| KeyOverride::of(own.limits().to_vec()).to_string();
    policies().iter().filter_map(|policy| Some((policy.name().to_owned(), text(&overridden(policy)?)))).collect()
}

/// The time is cut into slices. Each slice has its groups, and each group its key and two policies.
#[derive(Debug, Clone)]
pub struct Schedule {
    /// Part of the names of keys.
    pub run: String,
    /// How long a key is in use.
    pub slice: Duration,
    /// How many keys are in use at a time.
    pub groups: u64,
    /// True if one call may use two policies. Their keys may lie in different slots.
    pub across_policies: bool,
    /// The names of the policies, in the order of the file.
    pub policies: Vec<String>,
    /// The limits that overrides give single keys of a policy, by its name.
    pub own: BTreeMap<String, String>,
}

/// A group at a time.
#[derive(Debug, Clone)]
pub struct Group {
    /// Its name, which is also its key.
    pub name: String,
    policy: String,
    other: String,
}

impl Schedule {
    /// One of the groups of a moment.
    pub fn group(&self, now: u64, random: &mut Random) -> Group {
        let slice = now / self.slice.as_nanos() as u64;
        let number = random.below(self.groups);
        let policy = |at: u64| self.policies[(at % self.policies.len() as u64) as usize].clone();
        let at = slice * self.groups + number;
        Group { name: format!("{}-{slice}-{number}", self.run), policy: policy(at), other: policy(at + 5) }
    }

    /// A call on a group.
    pub fn call(&self, group: &Group, random: &mut Random) -> Call {
        let entry = |policy: &String, cost: u64| (policy.clone(), group.name.clone(), cost);
        let one = |operation: Operation, cost: u64, length: u64| Call {
            operation,
            entries: vec![entry(&group.policy, cost)],
            length,
        };
        match random.below(100) {
            0..72 => one(Operation::Check, random.pick(&[1, 1, 1, 1, 2, 3]), 0),
            72..80 => one(Operation::Peek, 1, 0),
            80..83 => one(Operation::Charge, 1, 0),
            83..88 => one(Operation::Refund, 1, 0),
            88..90 => one(Operation::Clear, 1, 0),
            90..93 => one(Operation::Block, 1, random.pick(&[0, 60_000, 120_000])),
            93 if self.own.contains_key(&group.policy) => one(Operation::Override, 1, random.below(2)),
            _ => {
                let other = if self.across_policies { &group.other } else { &group.policy };
                let entries = vec![entry(&group.policy, 1), entry(other, 1)];
                Call { operation: Operation::CheckAll, entries, length: 0 }
            }
        }
    }
}
