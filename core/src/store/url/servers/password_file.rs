//! A password that a file holds. The file is read anew for each connection, so that its password may change.

use std::fs::File;
use std::io::Read as _;
use std::path::PathBuf;

/// The longest password, in bytes: a guard against reading another file by mistake.
const MAX_PASSWORD: usize = 65_536;

/// The path of a file with a password.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct PasswordFile {
    /// The option of the URL that names it.
    pub(crate) option: &'static str,
    pub(super) path: PathBuf,
}

impl PasswordFile {
    /// The password that the file holds now, without the line break at its end.
    ///
    /// # Errors
    /// Why there is none. It shows neither the content nor the path: a part of a password may follow that in the URL.
    pub(super) fn read(&self) -> Result<String, String> {
        let refused = |why: &str| format!("the file that {} names {why}", self.option);
        let unreadable = |error: std::io::Error| refused(&format!("cannot be read: {error}"));
        // Opening a pipe, or reading one, could take for ever.
        if !std::fs::metadata(&self.path).map_err(unreadable)?.is_file() {
            return Err(refused("is no file"));
        }
        let mut bytes = Vec::new();
        let file = File::open(&self.path).map_err(unreadable)?;
        file.take(MAX_PASSWORD as u64 + 1).read_to_end(&mut bytes).map_err(unreadable)?;
        if bytes.len() > MAX_PASSWORD {
            return Err(refused("is larger than 64 kB: it must hold a password and nothing else"));
        }
        let text = String::from_utf8(bytes).map_err(|_| refused("is not UTF-8"))?;
        match text.trim_end_matches(['\r', '\n']) {
            "" => Err(refused("is empty: it must hold the password")),
            password => Ok(password.to_owned()),
        }
    }
}
