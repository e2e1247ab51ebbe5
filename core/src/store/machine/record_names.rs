//! The names of records, which stand for a policy and a key in a file.

use siphasher::sip128::SipHasher13;

use super::record::RecordName;
use crate::plan::Plan;
use crate::store::key_names::KeyNames;

/// The most bytes of a policy and a key that are hashed in one step.
const SHORT: usize = 128;
/// Bytes of the identity of a policy.
const POLICY: usize = size_of::<u128>();
/// The bits of a name that show its prefix.
const PREFIX: u64 = u64::MAX << 32;

/// Makes the names of one prefix. They depend on the seed of their file, so that nothing is known of them elsewhere.
pub(super) struct RecordNames {
    hasher: SipHasher13,
    prefix: u64,
}

impl RecordNames {
    pub(super) fn new(names: &KeyNames, seed: u64) -> Self {
        let digest = names.hasher().update(&seed.to_le_bytes()).update(names.prefix.as_bytes()).finalize();
        let number =
            |at: usize| u64::from_le_bytes([0, 1, 2, 3, 4, 5, 6, 7].map(|byte| digest.as_bytes()[8 * at + byte]));
        Self { hasher: SipHasher13::new_with_keys(number(0), number(1)), prefix: number(2) & PREFIX }
    }

    #[inline]
    pub(super) fn of(&self, plan: &Plan, key: &str) -> RecordName {
        let (policy, length) = (plan.identity.to_le_bytes(), POLICY + key.len());
        let digest = if length <= SHORT {
            let mut short = [0; SHORT];
            short[..POLICY].copy_from_slice(&policy);
            short[POLICY..length].copy_from_slice(key.as_bytes());
            self.hasher.hash(&short[..length])
        } else {
            self.hasher.hash(&[&policy, key.as_bytes()].concat())
        };
        [self.prefix | digest.h1 & !PREFIX, digest.h2]
    }

    /// True if a record has this prefix.
    pub(super) const fn has(&self, name: RecordName) -> bool {
        name[0] & PREFIX == self.prefix
    }
}
