//! Keys for secrets, which must not be stored as they are, and for clients without a name.

/// A digest to use as a key instead of a secret such as an API key: 128 bits of BLAKE3 as 32 hexadecimal digits.
#[must_use]
pub fn hashed(secret: &str) -> String {
    let hex = blake3::hash(secret.as_bytes()).to_hex();
    hex[..32].to_owned()
}

/// The key of a client without a name, by its address. It differs from the address alone, so that a client that may choose its
/// name cannot choose the address of another client.
#[must_use]
pub fn anonymous(client: &str) -> String {
    format!("anonymous:{client}")
}
