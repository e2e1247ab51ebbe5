//! The classes of a policy's calls, and the number of units that each of them leaves free.

use serde_json::{Value, json};
use tidegate::{Policy, host};
use tidegate_simulate::text::of_unit;

/// A class of a policy.
pub(crate) struct PolicyClass<'a> {
    pub(crate) name: &'a str,
    /// The part as the policy has it, such as `30%`.
    pub(crate) part: String,
    /// The units of each limit that the class leaves free.
    pub(crate) free: Vec<u64>,
}

/// The classes of a policy, in the order of its text.
pub(crate) fn of_policy(policy: &Policy) -> Vec<PolicyClass<'_>> {
    let classes = policy.options().priorities.iter().flat_map(|classes| classes.iter());
    classes.map(|(name, part)| PolicyClass { name, part, free: host::left_free(policy, name) }).collect()
}

impl PolicyClass<'_> {
    /// The units of each limit that the class can take.
    pub(crate) fn takes(&self, policy: &Policy) -> Vec<u64> {
        policy.limits().iter().zip(&self.free).map(|(limit, free)| limit.capacity() - free).collect()
    }

    pub(crate) fn as_json(&self, policy: &Policy) -> Value {
        json!({"class": self.name, "part": self.part, "free": self.free, "takes": self.takes(policy)})
    }
}

/// Numbers of the limits of a policy, in their order: `150, 30,000 tokens and 3`.
pub(crate) fn numbers(policy: &Policy, numbers: &[u64]) -> String {
    let texts = policy.limits().iter().zip(numbers).map(|(limit, count)| of_unit(*count, limit.unit()));
    let mut texts: Vec<String> = texts.collect();
    match texts.pop() {
        Some(last) if !texts.is_empty() => format!("{} and {last}", texts.join(", ")),
        last => last.unwrap_or_default(),
    }
}
