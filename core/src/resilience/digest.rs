//! Digests of names, the same in every process, version and language: a key must not move to another store because a
//! digest has changed.

/// A number that is spread evenly over all numbers.
pub(super) type Digest = u64;

/// The digest of several texts. The length of each but the last is part of it.
pub(super) fn of(texts: &[&[u8]]) -> Digest {
    let mut hasher = blake3::Hasher::new();
    for (index, text) in texts.iter().enumerate() {
        if index + 1 < texts.len() {
            hasher.update(&(text.len() as u64).to_le_bytes());
        }
        hasher.update(text);
    }
    let digest = hasher.finalize();
    digest.as_bytes().first_chunk::<8>().map_or(0, |bytes| u64::from_le_bytes(*bytes))
}

/// Another number. Each of its bits depends on all bits of the old one (the last step of splitmix64).
pub(super) const fn mixed(number: Digest) -> Digest {
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

#[cfg(test)]
mod tests {
    #[test]
    fn digests_never_change() {
        // Another digest would move every key of every user.
        assert_eq!(super::of(&[b"policy", b"key"]), 3_594_043_108_959_892_075);
        assert_eq!(super::mixed(1), 0x5692_161d_100b_05e5);
    }
}
