//! Makes the names of keys from policies and the keys of callers: see docs/adr/0003.

use std::fmt;
use std::sync::Arc;

use crate::error::{Error, Result, named};

/// The shortest secret, in bytes: a shorter one can be guessed.
const MIN_SECRET: usize = 16;

/// The prefix of all names, and the secret of their digests.
#[derive(Clone)]
pub struct KeyNames {
    pub(crate) prefix: Arc<str>,
    pub(super) secret: Option<[u8; blake3::KEY_LEN]>,
}

impl KeyNames {
    /// Uses that prefix, and that secret if there is one.
    ///
    /// # Errors
    /// `config_invalid` for a short secret.
    pub fn new(prefix: &str, secret: Option<&[u8]>) -> Result<Self> {
        if let Some(secret) = secret.filter(|secret| secret.len() < MIN_SECRET) {
            return Err(Error::config(format!(
                "the {} has {} bytes: it must have at least {MIN_SECRET}, from a random generator such as `openssl rand -hex \
                 32`",
                named("key_secret"),
                secret.len()
            )));
        }
        let secret = secret.map(|secret| blake3::derive_key("tidegate 2026 names of keys", secret));
        Ok(Self { prefix: prefix.into(), secret })
    }

    pub(crate) fn hasher(&self) -> blake3::Hasher {
        self.secret.as_ref().map_or_else(blake3::Hasher::new, blake3::Hasher::new_keyed)
    }
}

/// Without a secret.
impl From<&str> for KeyNames {
    fn from(prefix: &str) -> Self {
        Self { prefix: prefix.into(), secret: None }
    }
}

/// Without the secret.
impl fmt::Debug for KeyNames {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyNames").field("prefix", &self.prefix).finish_non_exhaustive()
    }
}
