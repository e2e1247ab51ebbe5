//! The hand-written files of the repository.

use std::fs;
use std::path::{Path, PathBuf};

use super::{Violations, hold};

/// Folders with files that are built, installed, or generated.
const NOT_OURS: [&str; 8] =
    [".git", "target", "node_modules", ".cache", "dist", "__pycache__", "bindings-node/binding", ".github"];
/// Generated from the compiled module.
const GENERATED: [&str; 1] = ["bindings-python/python/tidegate/_tidegate.pyi"];
const LONGEST: usize = 500;

pub(crate) fn root() -> PathBuf {
    fs::canonicalize(Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")).expect("the repository")
}

pub(crate) fn read(file: &str) -> String {
    fs::read_to_string(root().join(file)).unwrap_or_else(|error| panic!("{file}: {error}"))
}

pub(crate) fn exists(file: &str) -> bool {
    root().join(file).exists()
}

/// The first two folders of a path. Violations are grouped by them.
pub(crate) fn area(file: &str) -> String {
    file.splitn(3, '/').take(2).collect::<Vec<_>>().join("/")
}

/// Every file under a folder with one of these endings, as paths from the root of the repository, in order.
pub(crate) fn under(folder: &str, endings: &[&str]) -> Vec<String> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(root().join(&folder)).unwrap_or_else(|error| panic!("{folder}: {error}")) {
            let entry = entry.expect("an entry");
            let name = entry.file_name().into_string().expect("a name in UTF-8");
            let path = if folder.is_empty() { name.clone() } else { format!("{folder}/{name}") };
            if NOT_OURS.contains(&name.as_str()) || NOT_OURS.contains(&path.as_str()) || GENERATED.contains(&&*path) {
                continue;
            }
            let kind = entry.file_type().expect("a kind");
            if kind.is_dir() {
                folders.push(path);
            } else if kind.is_file() && endings.iter().any(|ending| path.ends_with(ending)) {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

#[test]
fn no_source_file_is_longer_than_500_lines() {
    let mut long = Violations::new();
    for file in under("", &[".rs", ".lua", ".py", ".ts", ".mjs", ".c", ".sh"]) {
        let lines = read(&file).lines().count();
        if lines > LONGEST {
            long.entry(area(&file)).or_default().push(format!("{file}: {lines} lines"));
        }
    }
    hold("a file has at most 500 lines", long);
}
