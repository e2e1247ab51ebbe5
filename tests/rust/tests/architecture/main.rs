//! The shape of the repository: which room may name which, no circles of files, no long functions, no private words, and an
//! ARCHITECTURE.md that names files as they are.

mod circles;
mod documents;
mod files;
mod recipes;
mod rooms;
mod rust_modules;
mod rust_paths;
mod script_imports;
mod words;

use std::collections::BTreeMap;

/// Violations that are known and must go: (rule, violation). The list must shrink to empty. An entry that is no longer
/// needed fails the test of its rule.
const KNOWN: &[(&str, &str)] = &[];

/// The violations of a rule, each with its evidence.
type Violations = BTreeMap<String, Vec<String>>;

/// Fails when the violations of a rule are not exactly the known ones.
#[track_caller]
fn hold(rule: &str, mut found: Violations) {
    let mut complaints = Vec::new();
    for (_, known) in KNOWN.iter().filter(|(of, _)| *of == rule) {
        match found.remove(*known) {
            Some(evidence) => println!("known: {known}\n    {}", evidence.join("\n    ")),
            None => complaints.push(format!("{known}: this holds now, so its line in KNOWN must go")),
        }
    }
    for (violation, evidence) in found {
        complaints.push(format!("{violation}\n    {}", evidence.join("\n    ")));
    }
    assert!(complaints.is_empty(), "{rule}, {} complaints:\n{}", complaints.len(), complaints.join("\n"));
}
