//! The length of the block after a denial, and of the blocks that follow.

use std::fmt;

use smallvec::SmallVec;

use crate::algorithm::Period;
use crate::error::{Error, Result};

/// The most lengths of blocks that one policy may have.
pub const MAX_BLOCK_LENGTHS: usize = 16;

/// How long a denial blocks its key. With several lengths, each further block takes the next one.
///
/// ```
/// use tidegate::{BlockFor, Options, Policy};
///
/// let limits = Policy::parse("5/minute")?.limits().to_vec();
/// let block_for = Some(BlockFor::parse("1m, 10m, 1h")?);
/// let policy = Policy::new(limits, Options { block_for, ..Options::default() })?;
/// assert_eq!(policy.options().block_for.as_ref().map(|lengths| lengths.lengths().len()), Some(3));
/// # Ok::<(), tidegate::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlockFor(SmallVec<[Period; 1]>);

impl BlockFor {
    /// These lengths, in order. The last one repeats for every block that follows.
    ///
    /// # Errors
    /// `policy_invalid` for none, and for more than 16.
    pub fn new(lengths: impl IntoIterator<Item = Period>) -> Result<Self> {
        let lengths: SmallVec<[Period; 1]> = lengths.into_iter().collect();
        if lengths.is_empty() || lengths.len() > MAX_BLOCK_LENGTHS {
            return Err(Error::policy(format!(
                "block_for has {} lengths: it must have from 1 to {MAX_BLOCK_LENGTHS}",
                lengths.len()
            )));
        }
        Ok(Self(lengths))
    }

    /// Parses a text such as `10m`, or `1m, 10m, 1h`.
    ///
    /// # Errors
    /// `policy_invalid` with a description of the expected text.
    pub fn parse(text: &str) -> Result<Self> {
        let lengths = text.split(',').map(str::parse::<Period>).collect::<Result<Vec<_>>>()?;
        Self::new(lengths)
    }

    /// The lengths, in order.
    #[must_use]
    pub fn lengths(&self) -> &[Period] {
        &self.0
    }

    /// True if blocks have several lengths.
    pub(crate) fn escalates(&self) -> bool {
        self.0.len() > 1
    }

    /// The length of a block of that level, from 1 on.
    pub(crate) fn of_level(&self, level: u8) -> Period {
        self.0[usize::from(level.max(1) - 1).min(self.0.len() - 1)]
    }

    pub(crate) fn longest(&self) -> Period {
        self.0.iter().copied().max_by_key(|length| length.micros()).unwrap_or(self.0[0])
    }
}

impl From<Period> for BlockFor {
    fn from(length: Period) -> Self {
        Self(SmallVec::from_slice(&[length]))
    }
}

/// The lengths with commas between them.
impl fmt::Display for BlockFor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().enumerate().try_for_each(|(index, length)| {
            f.write_str(if index > 0 { ", " } else { "" })?;
            length.fmt(f)
        })
    }
}

impl std::str::FromStr for BlockFor {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        Self::parse(text)
    }
}
