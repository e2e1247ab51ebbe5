//! What every key in Redis begins with: the default, and what it may be.

use super::notation::quoted;

/// The prefix where none is given.
pub const DEFAULT_PREFIX: &str = "tg";
/// The longest prefix, in bytes.
const MAX_PREFIX: usize = 128;

/// Why a text cannot be a prefix.
pub(crate) fn why_no_prefix(text: &str) -> Option<String> {
    let fits = !text.is_empty() && text.len() <= MAX_PREFIX && !text.contains(['{', '}']);
    (!fits).then(|| {
        format!("the prefix {} cannot be used: it must have from 1 to {MAX_PREFIX} bytes and no braces", quoted(text))
    })
}
