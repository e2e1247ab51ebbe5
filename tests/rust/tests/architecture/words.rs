//! Plain words: no private metaphors and no persons where calls are meant, and no two types of one name.

use std::collections::BTreeMap;

use super::files::area;
use super::rust_modules::Crate;
use super::{Violations, files, hold};

/// One a line. They are not in this file, because it would then have to be left out of the search.
const METAPHORS: &str = "tests/rust/tests/architecture/words.txt";
const SEARCHED: [&str; 13] =
    [".rs", ".py", ".ts", ".mjs", ".lua", ".md", ".toml", ".yaml", ".json", ".sh", ".c", "Makefile", ".pyi"];
/// Data of others, and texts about earlier versions.
const NOT_SEARCHED: [&str; 3] = ["CHANGELOG.md", "package-lock.json", "Cargo.lock"];

/// The words of a line, also within names such as `two_words`, `twoWords` and `TwoWords`.
fn words(line: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut was_lower = false;
    for letter in line.chars() {
        if !letter.is_alphabetic() || (letter.is_uppercase() && was_lower) {
            words.push(String::new());
        }
        if letter.is_alphabetic() {
            words.last_mut().expect("a word").extend(letter.to_lowercase());
        }
        was_lower = letter.is_lowercase();
    }
    words
}

#[test]
fn words_of_names_are_found() {
    assert_eq!(words("a Two_words twoWords!").join(" ").split_whitespace().count(), 5);
}

#[test]
fn no_metaphors() {
    let metaphors = files::read(METAPHORS);
    let metaphors: Vec<&str> = metaphors.lines().collect();
    let mut found = Violations::new();
    for file in files::under("", &SEARCHED) {
        if NOT_SEARCHED.contains(&file.as_str()) {
            continue;
        }
        for (number, line) in files::read(&file).lines().enumerate() {
            if let Some(word) = words(line).iter().find(|word| metaphors.contains(&word.as_str())) {
                found.entry(area(&file)).or_default().push(format!("{file}:{}: {word}", number + 1));
            }
        }
    }
    hold("a private word", found);
}

/// Everyday words that name no type, module or file: the table of words in ARCHITECTURE.md has a better one for each.
const EVERYDAY: &[&str] = &[
    "apart", "around", "bell", "cargo", "channel", "chart", "company", "division", "done", "face", "few", "flight",
    "heard", "hello", "home", "homes", "inbox", "job", "known", "line", "lines", "link", "make", "notes", "owned",
    "party", "patience", "pipe", "place", "reading", "ride", "row", "set", "spare", "subject", "survey", "turn",
    "verdict", "watch", "watched", "watching", "wire", "within",
];

#[test]
fn types_and_files_have_names_of_the_field() {
    let mut found = Violations::new();
    let mut complain = |file: &str, complaint: String| found.entry(area(file)).or_default().push(complaint);
    for folder in ["core/src", "simulate/src", "cli/src", "bindings-python/src", "bindings-node/src"] {
        let mut named: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for module in Crate::read(folder).modules.values() {
            for name in &module.types {
                // Siblings of one shape: every algorithm has a rule and a state.
                if !(module.file.contains("/algorithm/") && ["Rule", "State"].contains(&name.as_str())) {
                    named.entry(name.clone()).or_default().push(module.file.clone());
                }
                if EVERYDAY.contains(&name.to_lowercase().as_str()) {
                    complain(&module.file, format!("{name} says too little: {}", module.file));
                }
            }
        }
        for (name, mut files) in named {
            // One file may have a type for each operating system.
            files.dedup();
            if files.len() == 1 {
                continue;
            }
            complain(&files[0], format!("{name} names {} types: {}", files.len(), files.join(", ")));
        }
    }
    let sources = [
        "core/src",
        "simulate/src",
        "cli/src",
        "bindings-python/src",
        "bindings-python/python",
        "bindings-node/src",
        "bindings-node/lib",
    ];
    for file in sources.iter().flat_map(|folder| files::under(folder, &[".rs", ".py", ".ts", ".lua"])) {
        let stem = file.rsplit('/').next().and_then(|name| name.split('.').next()).unwrap_or_default();
        if EVERYDAY.contains(&stem.trim_start_matches('_')) {
            complain(&file, format!("{file} says too little"));
        }
    }
    hold("names of the field", found);
}
