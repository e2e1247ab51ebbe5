//! The files of the repository that are made from other sources of it: the script with parts of it as they run, and the types and
//! the page of the options.

use std::fs;
use std::path::{Path, PathBuf};

use crate::options;

/// The place of a file of the repository.
#[must_use]
pub fn path(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(file)
}

/// The text of a file of the repository.
///
/// # Panics
/// If there is no such file.
#[must_use]
pub fn read(file: &str) -> String {
    fs::read_to_string(path(file)).unwrap_or_else(|error| panic!("{file}: {error}"))
}

/// Each generated file, with its text.
#[must_use]
pub fn files() -> Vec<(String, String)> {
    let script = tidegate::bench::script_files().into_iter();
    let script = script.map(|(name, text)| (format!("core/src/store/redis/script/golden/{name}.txt"), text));
    script.chain(options::files()).collect()
}
