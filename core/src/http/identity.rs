//! Keys for what must not be stored as it is, and for those who have no name.

/// A digest to use as a key instead of a secret, an API key say: 128 bits of BLAKE3 as 32 hexadecimal digits.
#[must_use]
pub fn hashed(secret: &str) -> String {
    let hex = blake3::hash(secret.as_bytes()).to_hex();
    hex[..32].to_owned()
}

/// The key of somebody who did not say who they are, by their address. It is no plain address, so that nobody who may choose
/// a name chooses somebody else's address.
#[must_use]
pub fn anonymous(client: &str) -> String {
    format!("anonymous:{client}")
}
