//! The inputs that are kept: `tests/rust/corpus/<target>/<name>.txt`.

use std::fs;
use std::path::{Path, PathBuf};

use crate::fuzz::targets::Target;

/// The longest input that is kept, in bytes.
pub(crate) const LONGEST: usize = 1_024;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus")
}

pub(crate) fn folder(target: &Target) -> PathBuf {
    root().join(target.name)
}

/// The folders of the corpus.
pub(crate) fn folders() -> Vec<PathBuf> {
    let entries = fs::read_dir(root()).expect("the corpus");
    entries.map(|entry| entry.expect("an entry").path()).filter(|path| path.is_dir()).collect()
}

/// The kept inputs of a target, in the order of their names.
pub(crate) fn inputs(target: &Target) -> Vec<(PathBuf, Vec<u8>)> {
    let folder = folder(target);
    let entries = fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.expect("an entry").path()).collect();
    paths.sort();
    paths.into_iter().map(|path| (path.clone(), fs::read(path).expect("an input"))).collect()
}

/// The name of the file of an input: the same input is kept once.
pub(crate) fn name_of(input: &[u8]) -> String {
    let digest = input
        .iter()
        .fold(0xcbf2_9ce4_8422_2325_u64, |sum, byte| (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3));
    format!("found-{digest:016x}.txt")
}
