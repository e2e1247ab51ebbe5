//! A password that a file holds. The file is read anew for each connection, so that its password may change.

use std::path::PathBuf;

use crate::process::regular_file::{self, Links};

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
    /// Why there is none. Neither the content nor the path is shown: a part of a password may follow the path in the URL.
    pub(super) fn read(&self) -> Result<String, String> {
        let refused = |why: &str| format!("the file that {} names {why}", self.option);
        let bytes =
            regular_file::read(&self.path, MAX_PASSWORD, Links::Followed).map_err(|why| refused(&why.to_string()))?;
        let text = String::from_utf8(bytes).map_err(|_| refused("is not UTF-8"))?;
        match text.trim_end_matches(['\r', '\n']) {
            "" => Err(refused("is empty: it must hold the password")),
            password => Ok(password.to_owned()),
        }
    }
}
