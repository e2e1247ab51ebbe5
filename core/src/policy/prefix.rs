//! The beginning of every key in Redis: the default, and the allowed prefixes.

use super::notation::quoted;

/// The default prefix.
pub const DEFAULT_PREFIX: &str = "tg";
/// The longest prefix, in bytes.
const MAX_PREFIX: usize = 128;

/// The reason why a text cannot be a prefix, if it cannot.
pub(crate) fn why_no_prefix(text: &str) -> Option<String> {
    let fits = !text.is_empty() && text.len() <= MAX_PREFIX && !text.contains(['{', '}']);
    (!fits).then(|| {
        format!("the prefix {} cannot be used: it must have from 1 to {MAX_PREFIX} bytes and no braces", quoted(text))
    })
}
