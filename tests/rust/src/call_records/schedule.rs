//! Which keys clients use at which time, so that all processes work on the same keys without a word to each other, and no
//! key has a long history.

use std::path::PathBuf;
use std::time::Duration;

use tidegate::{Policy, PolicyFile};

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

/// The time is cut into slices. Each slice has its groups, and each group its key and two policies.
#[derive(Debug, Clone)]
pub struct Schedule {
    /// Part of the names of keys.
    pub run: String,
    /// How long a key is in use.
    pub slice: Duration,
    /// How many keys are in use at a time.
    pub groups: u64,
    /// Whether one call may use two policies, whose keys may lie in different slots.
    pub across_policies: bool,
    /// The names of the policies, in the order of the file.
    pub policies: Vec<String>,
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
            _ => {
                let other = if self.across_policies { &group.other } else { &group.policy };
                let entries = vec![entry(&group.policy, 1), entry(other, 1)];
                Call { operation: Operation::CheckAll, entries, length: 0 }
            }
        }
    }
}
