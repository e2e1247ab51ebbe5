//! What a check is about: policies by small numbers, and keys as JavaScript has them.

use tidegate::{Algorithm, AsPolicy, Error, ErrorKind, Policy, PolicyRef, Result};

/// A policy that calls name by its place in a list, so that no text crosses with each of them.
#[derive(Clone)]
pub(crate) enum OwnedPolicyRef {
    /// A name or a notation; looked up by each call, so that a reload shows at once.
    Text(String),
    /// A policy of the caller's.
    Policy(Policy),
}

impl AsPolicy for OwnedPolicyRef {
    fn as_policy(&self) -> PolicyRef<'_> {
        match self {
            Self::Text(text) => PolicyRef::Text(text),
            Self::Policy(policy) => PolicyRef::Policy(policy),
        }
    }
}

/// Whether some units of a policy are held and given back.
pub(crate) fn holds(policy: &Policy) -> bool {
    policy.limits().iter().any(|limit| limit.algorithm() == Algorithm::Concurrency)
}

/// Reads a key that came as UTF-16 units. The text is reused, so that a key costs no allocation here.
pub(crate) fn read_key(units: &[u16], key: &mut String) -> Result<()> {
    key.clear();
    if units.iter().all(|unit| *unit < 128) {
        key.extend(units.iter().map(|unit| char::from(*unit as u8)));
        return Ok(());
    }
    for read in char::decode_utf16(units.iter().copied()) {
        key.push(read.map_err(|_| {
            Error::new(ErrorKind::KeyInvalid, "a key holds half a surrogate pair: it must be well-formed text")
        })?);
    }
    Ok(())
}
