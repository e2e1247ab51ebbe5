//! A key as tables keep it: its text, or a digest of a long one. A client can make keys of 64 kB, and a table of many
//! entries must not grow with them.

use std::hash::{BuildHasher, Hash, Hasher};

use compact_str::CompactString;
use foldhash::fast::RandomState;

use crate::tables::allocation::allocated;

/// The longest key that is kept as text, in bytes. Names, addresses and common digests are shorter.
const MAX_TEXT: usize = 64;

/// 128 bits of BLAKE3. No one can find two keys that share it.
type KeyDigest = [u8; 16];

/// A digest as two numbers, so that a call copies the key by whole words and not byte by byte.
type KeyDigestWords = [u64; 2];

/// A key of bounded size. A digest never equals a text, whatever bytes the text has.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum TableKey {
    Text(CompactString),
    Digest(KeyDigest),
}

#[cfg(target_pointer_width = "64")]
const _: () = assert!(size_of::<TableKey>() == size_of::<CompactString>(), "the digest has a place of its own");

impl TableKey {
    pub(crate) fn of(key: &str) -> Self {
        TableKeyRef::of(key).into()
    }

    #[inline]
    pub(crate) fn as_ref(&self) -> TableKeyRef<'_> {
        match self {
            Self::Text(text) => TableKeyRef::Text(text),
            Self::Digest(digest) => TableKeyRef::Digest(words(digest)),
        }
    }

    /// The bytes that it has allocated.
    #[inline]
    pub(crate) fn heap_bytes(&self) -> usize {
        match self {
            Self::Text(text) if text.is_heap_allocated() => allocated(text.capacity()),
            Self::Text(_) | Self::Digest(_) => 0,
        }
    }
}

/// A key in the form for a look-up in a table. It is made once for a call, because a digest takes time.
#[derive(Debug, Clone, Copy)]
pub(crate) enum TableKeyRef<'a> {
    Text(&'a str),
    Digest(KeyDigestWords),
}

impl<'a> TableKeyRef<'a> {
    #[inline(always)]
    pub(crate) fn of(key: &'a str) -> Self {
        if key.len() <= MAX_TEXT { Self::Text(key) } else { Self::Digest(digest(key)) }
    }

    /// Its hash in a table of the keys of all policies, for the policy with that identity.
    #[inline(always)]
    pub(crate) fn hash_for(self, identity: u128, hasher: &RandomState) -> u64 {
        // The identity is a digest already. The key comes from a caller, so the hasher is seeded.
        hasher.hash_one(self) ^ identity as u64
    }
}

#[cold]
fn digest(key: &str) -> KeyDigestWords {
    let digest = blake3::hash(key.as_bytes());
    digest.as_bytes().first_chunk().map_or_else(Default::default, words)
}

fn words(bytes: &KeyDigest) -> KeyDigestWords {
    let word = |at: usize| bytes[at..].first_chunk().map_or(0, |word| u64::from_ne_bytes(*word));
    [word(0), word(8)]
}

fn bytes(words: KeyDigestWords) -> KeyDigest {
    let mut bytes = KeyDigest::default();
    bytes[..8].copy_from_slice(&words[0].to_ne_bytes());
    bytes[8..].copy_from_slice(&words[1].to_ne_bytes());
    bytes
}

impl Hash for TableKeyRef<'_> {
    #[inline(always)]
    fn hash<H: Hasher>(&self, state: &mut H) {
        match self {
            // Nothing follows the text, so it needs no mark of its end.
            Self::Text(text) => state.write(text.as_bytes()),
            Self::Digest(digest) => digest.hash(state),
        }
    }
}

impl PartialEq<TableKeyRef<'_>> for TableKey {
    #[inline]
    fn eq(&self, other: &TableKeyRef<'_>) -> bool {
        match (self, other) {
            (Self::Text(text), TableKeyRef::Text(other)) => text == other,
            (Self::Digest(digest), TableKeyRef::Digest(other)) => *digest == bytes(*other),
            _ => false,
        }
    }
}

impl From<TableKeyRef<'_>> for TableKey {
    fn from(key: TableKeyRef<'_>) -> Self {
        match key {
            TableKeyRef::Text(text) => Self::Text(text.into()),
            TableKeyRef::Digest(digest) => Self::Digest(bytes(digest)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_key_is_kept_in_few_bytes_and_equals_only_itself() {
        let longest_text = "k".repeat(MAX_TEXT);
        let long = "k".repeat(MAX_TEXT + 1);
        let kept = TableKey::of(&long);
        assert_eq!((kept.heap_bytes(), TableKey::of("a short key").heap_bytes()), (0, 0));
        assert!(TableKey::of(&longest_text).heap_bytes() >= MAX_TEXT);
        assert!(kept == TableKeyRef::of(&long) && kept != TableKeyRef::of(&longest_text));
        assert!(kept != TableKeyRef::of(&format!("{long}k")));
    }

    #[test]
    fn no_text_is_taken_for_a_digest() {
        // A long key with a digest that is text as well. The key with this text is another one.
        let long = (0..).map(|number| format!("{number:065}"));
        let found = long.take(10_000_000).find_map(|long| {
            let digest = bytes(digest(&long));
            std::str::from_utf8(&digest).ok().map(|text| (long.clone(), text.to_owned()))
        });
        let (long, text) = found.expect("one digest of some thousands is text");
        assert!(TableKey::of(&long) != TableKeyRef::of(&text));
        assert!(TableKey::of(&text) != TableKeyRef::of(&long));
        assert_ne!(TableKey::of(&long), TableKey::of(&text));
    }
}
