//! SCAN over the keys of a prefix: its patterns, and the reply to a step.

use crate::store::stored_key::StoredKey;
use redis::Value;

/// The pattern of the keys with usage under a prefix. The logs and journals beside them have longer names.
#[must_use]
pub fn pattern_of_keys(prefix: &str) -> Vec<u8> {
    let mut pattern = escaped(prefix.as_bytes());
    pattern.extend([b'?'; StoredKey::DIGEST]);
    pattern
}

/// The pattern of the prefix, and anything after it.
pub(super) fn pattern_of_all(prefix: &[u8]) -> Vec<u8> {
    let mut pattern = escaped(prefix);
    pattern.push(b'*');
    pattern
}

/// Escapes a text, so that it matches only itself in a pattern.
fn escaped(text: &[u8]) -> Vec<u8> {
    let mut escaped = Vec::with_capacity(text.len() + StoredKey::DIGEST);
    for byte in text {
        if b"*?[]\\^-".contains(byte) {
            escaped.push(b'\\');
        }
        escaped.push(*byte);
    }
    escaped
}

/// The next cursor and the keys of a reply to SCAN, or `None` for any other reply.
#[must_use]
pub fn scanned_keys(reply: Value) -> Option<(Vec<u8>, Vec<Vec<u8>>)> {
    let Value::Array(items) = reply else { return None };
    let [Value::BulkString(cursor), Value::Array(keys)] = <[Value; 2]>::try_from(items).ok()? else { return None };
    let key = |key| match key {
        Value::BulkString(key) => Some(key),
        _ => None,
    };
    Some((cursor, keys.into_iter().map(key).collect::<Option<_>>()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_is_of_its_prefix_alone() {
        assert_eq!(pattern_of_all(b"a*[b]\\"), b"a\\*\\[b\\]\\\\*");
        assert_eq!(pattern_of_keys("tg"), b"tg????????????");
        assert_eq!(pattern_of_keys("a*b"), b"a\\*b????????????");
    }
}
