//! Files that a user names, with secrets, certificates or policies.

use std::fs::OpenOptions;
use std::io::{self, Read as _};
use std::path::Path;
use std::{error, fmt};

#[cfg(any(feature = "files", feature = "tls"))]
use crate::error::{Error, ErrorKind};

/// The treatment of a symbolic link in the place of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Links {
    /// The file that it leads to is read.
    Followed,
    /// Another user may have put it there.
    Refused,
}

/// Why a file was not read. Its text follows the name of the file.
#[derive(Debug)]
pub enum Unreadable {
    /// A folder, a pipe or a device.
    Irregular,
    /// It has more bytes than this.
    Larger(usize),
    /// The system refused.
    Failed(io::Error),
}

impl fmt::Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Irregular => f.write_str("is not a regular file"),
            Self::Larger(bytes) if *bytes < 1 << 20 => write!(f, "is larger than {} KiB", bytes >> 10),
            Self::Larger(bytes) => write!(f, "is larger than {} MiB", bytes >> 20),
            Self::Failed(error) => write!(f, "cannot be read: {error}"),
        }
    }
}

#[cfg(any(feature = "files", feature = "tls"))]
impl Unreadable {
    /// An error of this kind about `file`.
    pub(crate) fn as_error(&self, kind: ErrorKind, file: &str) -> Error {
        let error = Error::new(kind, format!("{file} {self}"));
        match self {
            Self::Failed(cause) => error.because(cause),
            Self::Irregular | Self::Larger(_) => error,
        }
    }
}

impl error::Error for Unreadable {
    fn source(&self) -> Option<&(dyn error::Error + 'static)> {
        match self {
            Self::Failed(error) => Some(error),
            Self::Irregular | Self::Larger(_) => None,
        }
    }
}

/// Reads a regular file of at most `max_bytes` bytes.
///
/// # Errors
/// The reason, without the name of the file. This does not wait for a pipe or a device, and reads nothing without an end.
pub fn read(path: &Path, max_bytes: usize, links: Links) -> Result<Vec<u8>, Unreadable> {
    let mut options = OpenOptions::new();
    options.read(true);
    #[cfg(unix)]
    {
        use rustix::fs::OFlags;
        use std::os::unix::fs::OpenOptionsExt as _;
        let of_links = if links == Links::Refused { OFlags::NOFOLLOW } else { OFlags::empty() };
        // Without `NONBLOCK`, opening a pipe would wait for its writer.
        options.custom_flags((OFlags::NONBLOCK | of_links).bits().cast_signed());
    }
    #[cfg(not(unix))]
    let _ = links;
    let file = options.open(path).map_err(Unreadable::Failed)?;
    if !file.metadata().map_err(Unreadable::Failed)?.is_file() {
        return Err(Unreadable::Irregular);
    }
    let mut bytes = Vec::new();
    file.take(max_bytes as u64 + 1).read_to_end(&mut bytes).map_err(Unreadable::Failed)?;
    if bytes.len() > max_bytes { Err(Unreadable::Larger(max_bytes)) } else { Ok(bytes) }
}
