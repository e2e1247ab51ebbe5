//! A file that the processes of a machine share, as a URL names it.

use std::path::{Path, PathBuf};

use super::byte_size;
use super::memory_bounds::max_keys_of;
use super::query::found_options;
use crate::error::{Error, Result};

/// The least value of `max_bytes`, and its default.
const MIN_BYTES: usize = 128 << 10;
const DEFAULT_BYTES: usize = 64_000_000;
const DEFAULT_MODE: u32 = 0o600;

/// The place and the bounds of such a store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MachineFile {
    pub(crate) path: Box<Path>,
    /// The bytes of the file.
    pub(crate) max_bytes: usize,
    /// True if the URL gives them.
    pub(crate) has_bytes: bool,
    pub(crate) max_keys: usize,
    /// The rights on the file, such as `0o600`.
    pub(crate) mode: u32,
}

impl MachineFile {
    /// Reads a URL of `file://`.
    ///
    /// # Errors
    /// `config_invalid`.
    pub(super) fn parse(url: &str) -> Result<Self> {
        let rest = url.strip_prefix("file://").unwrap_or(url);
        let (place, query) = rest.split_once('?').unwrap_or((rest, ""));
        let mut options = found_options("file", query, &["max_keys", "max_bytes", "mode"])?.into_iter();
        let (keys, bytes, mode) = (options.next().flatten(), options.next().flatten(), options.next().flatten());
        let path = PathBuf::from(unescaped(place)?);
        if !path.is_absolute() || path.file_name().is_none() || place.ends_with('/') {
            return Err(Error::config(
                "file:// names a file by its whole path, with three slashes, as in file:///path/to/limits?max_bytes=64MB, or \"file://$PWD/limits\" in a shell",
            ));
        }
        let mode = mode.map_or(Ok(DEFAULT_MODE), |text| {
            let mode = u32::from_str_radix(text.strip_prefix("0o").unwrap_or(&text), 8).ok();
            mode.filter(|mode| mode & !0o666 == 0 && mode & 0o600 == 0o600).ok_or_else(|| {
                Error::config(
                    "mode must let the owner read and write the file: give an octal number such as 0600 or 0660",
                )
            })
        })?;
        let has_bytes = bytes.is_some();
        let max_bytes = bytes.map_or(Ok(DEFAULT_BYTES), |text| byte_size::parse("max_bytes", &text, MIN_BYTES))?;
        let max_keys = keys.map_or(Ok(usize::MAX), |text| max_keys_of(&text))?;
        Ok(Self { path: path.into(), max_bytes: max_bytes / 4096 * 4096, has_bytes, max_keys, mode })
    }
}

/// Decodes a path with percent-encoded characters.
fn unescaped(text: &str) -> Result<String> {
    let decoded = percent_encoding::percent_decode_str(text).decode_utf8().ok().filter(|path| !path.contains('\0'));
    decoded.map(String::from).ok_or_else(|| Error::config("the path of a file:// store must be UTF-8"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_names_a_file_and_its_bounds() {
        let parsed = |url| MachineFile::parse(url).expect(url);
        let file = parsed("file:///path/to/limits");
        assert_eq!((&*file.path, file.max_bytes, file.mode), (Path::new("/path/to/limits"), 64_000_000, 0o600));
        let file = parsed("file:///run/my%20app/limits?max_bytes=1MiB&max_keys=5000&mode=0660");
        assert_eq!((&*file.path, file.max_bytes), (Path::new("/run/my app/limits"), 1 << 20));
        assert_eq!((file.max_keys, file.mode), (5_000, 0o660));
    }

    #[test]
    fn what_is_no_file_is_refused() {
        for url in [
            "file://",
            "file:///",
            "file:///run/app/",
            "file://path/to/limits",
            "file://localhost/run/limits",
            "file:///run/limits?mode=0777",
            "file:///run/limits?mode=rw",
            "file:///run/limits?mode=0400",
            "file:///run/limits?max_bytes=1kB",
            "file:///run/limits?max_keys=0",
            "file:///run/limits?size=1",
            "file:///run/%00",
            "file:///run/%ff",
        ] {
            assert_eq!(MachineFile::parse(url).expect_err(url).code(), "config_invalid", "{url}");
        }
    }
}
