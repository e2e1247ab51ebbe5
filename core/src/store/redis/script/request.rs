//! One entry under its Redis key.

use std::sync::Arc;

use crate::plan::MAX_OVERRIDDEN_KEYS;
use crate::plan::{Amount, Plan};
use crate::policy::MAX_OVERRIDE_TEXT;
use crate::store::key_names::KeyNames;
use crate::store::request::{Answer, Entry, MAX_OVERRIDDEN_KEY, Operation};
use crate::store::stored_key::StoredKey;

/// The bytes of an entry of a list in a reply, beside its texts.
const LIST_FRAME: usize = 64;

/// A second key in the slot of that name.
pub(super) fn companion(slot_name: &[u8], prefix: &str, kind: u8) -> Vec<u8> {
    [prefix.as_bytes(), &[b':', kind, b':', b'{'], slot_name, b"}"].concat()
}

/// The key of the list of a policy's overrides.
fn key_of_overrides(names: &KeyNames, policy: &str) -> StoredKey {
    StoredKey::of_bytes(&companion(StoredKey::new(names, policy, "").as_bytes(), &names.prefix, b'o'))
}

/// One entry, ready to be encoded.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    pub(crate) plan: Arc<Plan>,
    pub(crate) redis_key: StoredKey,
    pub(crate) operation: Operation,
}

impl Request {
    pub(crate) fn new(names: &KeyNames, entry: &Entry<'_>) -> Self {
        let policy = entry.plan.policy.name();
        let redis_key = match entry.operation {
            Operation::NoteOverride(_) | Operation::ListOverrides => key_of_overrides(names, policy),
            _ => StoredKey::new(names, policy, entry.key),
        };
        Self { plan: Arc::clone(entry.plan), redis_key, operation: entry.operation.clone() }
    }

    /// The bytes that decide its slot in a cluster: its name, or the part in braces of the name of a list.
    pub(crate) fn slot_name(&self) -> &[u8] {
        let name = self.redis_key.as_bytes();
        let tag = || name.strip_suffix(b"}")?.rsplit(|byte| *byte == b'{').next();
        match self.operation {
            Operation::NoteOverride(_) | Operation::ListOverrides => tag().unwrap_or(name),
            _ => name,
        }
    }

    /// The request that undoes this admitted check.
    pub(crate) fn undo(&self, answer: &Answer) -> Self {
        Self { operation: answer.undo(&self.plan, &self.operation), ..self.clone() }
    }

    /// The units of a check that names the one limit of its policy. The script need not know the name.
    pub(super) fn only_units(&self) -> Option<u64> {
        match (self.operation.amounts()?, &self.operation) {
            (&[Amount { units: units @ 1.., reserve: 0 }], Operation::Check { hold: 0, .. })
                if !self.plan.stored.has_companions =>
            {
                Some(units)
            }
            _ => None,
        }
    }

    /// The most bytes of the item of this request in a reply.
    pub(super) fn max_item(&self) -> usize {
        match self.operation {
            Operation::Journal => self.plan.stored.max_journal,
            Operation::ListOverrides => MAX_OVERRIDDEN_KEYS * (MAX_OVERRIDDEN_KEY + MAX_OVERRIDE_TEXT + LIST_FRAME),
            _ => self.plan.stored.max_value,
        }
    }

    /// True if a refusal changes the stored state, or is written to a journal.
    pub(crate) fn remembers_refusals(&self) -> bool {
        self.plan.denial_writes || self.plan.policy.options().journal > 0
    }
}
