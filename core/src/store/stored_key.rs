//! The name of a policy and key in a store that several processes share: see docs/adr/0003.

use smallvec::SmallVec;

use super::key_names::KeyNames;

/// The most bytes of policy and key that are hashed in one step.
const SHORT_NAME: usize = 192;

/// The parts in a row, if they fit.
#[inline]
fn joined<'a>(parts: [&[u8]; 3], out: &'a mut [u8; SHORT_NAME]) -> Option<&'a [u8]> {
    let mut length = 0;
    for part in parts {
        out.get_mut(length..length + part.len())?.copy_from_slice(part);
        length += part.len();
    }
    Some(&out[..length])
}

/// The name of a policy and key in a shared store: the prefix and a digest. See docs/adr/0003.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct StoredKey(SmallVec<[u8; 24]>);

impl StoredKey {
    /// Bytes of the digest that follows the prefix.
    pub(crate) const DIGEST: usize = 12;

    pub(crate) fn new(names: &KeyNames, policy: &str, key: &str) -> Self {
        // The length keeps ("a", "bc") and ("ab", "c") apart.
        let parts = [&(policy.len() as u32).to_le_bytes()[..], policy.as_bytes(), key.as_bytes()];
        let mut short = [0; SHORT_NAME];
        let digest = match joined(parts, &mut short) {
            // Nearly every name is short. A hasher of parts takes twice as long.
            Some(name) => match &names.secret {
                Some(secret) => blake3::keyed_hash(secret, name),
                None => blake3::hash(name),
            },
            None => parts.into_iter().fold(&mut names.hasher(), blake3::Hasher::update).finalize(),
        };
        let mut name = SmallVec::from_slice(names.prefix.as_bytes());
        let first = &digest.as_bytes()[..Self::DIGEST];
        // Braces would change the hash slot, so bytes that are braces are left out.
        if first.iter().any(|byte| b"{}".contains(byte)) {
            name.extend(digest.as_bytes().iter().filter(|byte| !b"{}".contains(byte)).take(Self::DIGEST).copied());
        } else {
            name.extend_from_slice(first);
        }
        Self(name)
    }

    /// A name that was made elsewhere.
    pub(crate) fn of_bytes(bytes: &[u8]) -> Self {
        Self(bytes.into())
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}
