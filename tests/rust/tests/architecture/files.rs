//! The hand-written files of the repository.

use std::fs;
use std::path::{Path, PathBuf};

use super::{Violations, hold};

/// Folders with files that are built, installed, or generated.
const NOT_OURS: [&str; 8] =
    [".git", "target", "node_modules", ".cache", "dist", "__pycache__", "bindings-node/binding", ".github"];
/// Generated from the compiled module.
const GENERATED: [&str; 1] = ["bindings-python/python/tidegate/_tidegate.pyi"];
/// The most lines of a function.
const LONGEST: usize = 150;

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

/// The first line of each function of a text, and the number of lines behind it. Formatters indent its last line as its first.
fn functions(text: &str) -> Vec<(&str, usize)> {
    let lines: Vec<&str> = text.lines().collect();
    let indent = |line: &str| line.len() - line.trim_start().len();
    let begins = |line: &str| {
        let is_code = !line.trim_start().starts_with(['/', '#', '-', '*']);
        is_code && line.contains('(') && line.split(' ').any(|word| ["fn", "function", "def"].contains(&word))
    };
    let ends = |from: usize| {
        let is_last = |line: &&str| {
            let rest = line.trim_start();
            !rest.is_empty() && indent(line) <= indent(lines[from]) && !rest.starts_with([')', '{']) && rest != "where"
        };
        lines[from + 1..].iter().position(is_last).unwrap_or(lines.len() - from)
    };
    (0..lines.len()).filter(|at| begins(lines[*at])).map(|at| (lines[at].trim(), ends(at))).collect()
}

#[test]
fn no_function_is_longer_than_150_lines() {
    let mut long = Violations::new();
    for file in under("", &[".rs", ".lua", ".py", ".ts", ".mjs"]) {
        let text = read(&file);
        for (function, lines) in functions(&text).into_iter().filter(|(_, lines)| *lines > LONGEST) {
            long.entry(area(&file)).or_default().push(format!("{file}: {lines} lines: {function}"));
        }
    }
    hold("a function has at most 150 lines", long);
}

#[test]
fn the_lines_of_a_function_end_where_its_indentation_does() {
    let rust =
        "impl A {\n    fn a(\n        b: u8,\n    ) -> u8\n    where\n        A: B,\n    {\n        b\n    }\n}\n";
    assert_eq!(functions(rust), [("fn a(", 6)]);
    let python = "def a(\n    b: int,\n) -> int:\n    return b\n\n\nb = 1\n";
    assert_eq!(functions(python), [("def a(", 5)]);
}
