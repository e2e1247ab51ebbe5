//! ARCHITECTURE.md walks one check through files that exist, and every decision has its number, title and line.

use super::{Violations, files, hold};

/// The most files that an async check passes on its way from a binding to the socket, and back.
const THERE: usize = 11;
const BACK: usize = 8;

/// The lines of a section of a document, under a heading and before the next of its level or above.
fn section<'a>(document: &'a str, heading: &str) -> Option<&'a str> {
    let level = heading.split(' ').next()?;
    let (_, rest) = document.split_once(&format!("\n{heading}\n"))?;
    let end = (1..=level.len()).filter_map(|depth| rest.find(&format!("\n{} ", "#".repeat(depth)))).min();
    Some(&rest[..end.unwrap_or(rest.len())])
}

/// The files that the steps of a walk begin with: ``1. `core/src/x.rs` does this``.
fn steps(walk: &str) -> Vec<&str> {
    let step =
        |line: &'_ str| -> bool { line.split_once(". `").is_some_and(|(number, _)| number.parse::<u8>().is_ok()) };
    walk.lines().filter(|line| step(line)).filter_map(|line| line.split('`').nth(1)).collect()
}

#[test]
fn the_walk_of_one_check_names_files_that_exist() {
    let document = files::read("ARCHITECTURE.md");
    let mut found = Violations::new();
    let walk = section(&document, "## The way of one check").unwrap_or_default();
    for language in ["Python", "Node"] {
        for (heading, most) in
            [(format!("### There, from {language}"), THERE), (format!("### Back, to {language}"), BACK)]
        {
            let Some(walk) = section(walk, &heading) else {
                found.insert(format!("no {heading}"), vec![]);
                continue;
            };
            let files = steps(walk);
            let missing: Vec<String> =
                files.iter().filter(|file| !files::exists(file)).map(ToString::to_string).collect();
            if !missing.is_empty() || files.is_empty() {
                found.insert(format!("{heading}: files that do not exist"), missing);
            }
            let mut different = files.clone();
            different.sort_unstable();
            different.dedup();
            println!("{heading}: {} files", different.len());
            if different.len() > most {
                found.insert(format!("{heading}: more than {most} files"), vec![]);
            }
        }
    }
    hold("the walk of one check", found);
}

/// The folders at which a shortened path may begin.
const ROOMS: [&str; 10] = [
    "",
    "core/src/",
    "core/src/limiter/",
    "core/src/resilience/",
    "core/src/store/",
    "core/src/store/redis/",
    "core/src/store/redis/protocol/",
    "core/src/store/redis/script/",
    "bindings-python/python/tidegate/",
    "tests/rust/",
];

#[test]
fn every_file_that_is_named_exists() {
    let mut found = Violations::new();
    let recipes = files::under("docs/contributing/recipes", &[".md"]);
    for document in ["ARCHITECTURE.md", "CONTRIBUTING.md"].into_iter().chain(recipes.iter().map(String::as_str)) {
        for name in files::read(document).split('`').skip(1).step_by(2) {
            let is_path = name.contains('/') && !name.contains([' ', '*', '<', '{', '(', ':', '"']);
            let is_pattern = name.split(['/', '.']).any(|part| ["x", "NNNN-title"].contains(&part));
            let exists = |room: &&str| files::exists(&format!("{room}{name}"));
            if is_path && !is_pattern && !ROOMS.iter().any(exists) {
                found.entry(document.to_owned()).or_default().push(name.to_owned());
            }
        }
    }
    hold("files that are named exist", found);
}

#[test]
fn every_test_that_holds_a_threat_exists() {
    let mut found = Violations::new();
    let document = files::read("SECURITY.md");
    let names = document.split('`').skip(1).step_by(2).filter(|name| name.starts_with("tests/"));
    let mut count = 0;
    for name in names {
        count += 1;
        let (path, test) = name.split_once("::").unwrap_or((name, ""));
        if !files::exists(path) || !files::read(path).contains(test) {
            found.entry("SECURITY.md".to_owned()).or_default().push(name.to_owned());
        }
    }
    assert!(count > 20, "{count} tests are named");
    hold("tests that hold a threat exist", found);
}

#[test]
fn every_file_with_unsafe_code_is_named() {
    let (mut found, document) = (Violations::new(), files::read("SECURITY.md"));
    let sources = ["core/src", "bindings-node/src", "bindings-python/src", "simulate/src", "cli/src"]
        .map(|room| files::under(room, &[".rs"]));
    for file in sources.into_iter().flatten().filter(|file| files::read(file).contains("unsafe_code")) {
        if !document.contains(&format!("`{file}`")) {
            found.entry("SECURITY.md".to_owned()).or_default().push(file);
        }
    }
    hold("files with unsafe code are named", found);
}

#[test]
fn every_decision_has_its_number_its_title_and_its_line() {
    let index = files::read("docs/adr/README.md");
    let mut found = Violations::new();
    let pages = files::under("docs/adr", &[".md"]);
    for (number, page) in pages.iter().filter(|page| !page.ends_with("README.md")).enumerate() {
        let text = files::read(page);
        let title = text.lines().next().unwrap_or_default();
        let name = page.trim_start_matches("docs/adr/");
        let begin = format!("# {:04}. ", number + 1);
        let sections = ["## Context", "## Decision", "## Consequences"];
        let listed = format!("[{:04}]({name}) | {} |", number + 1, title.trim_start_matches(&begin));
        if !title.starts_with(&begin) || !name.starts_with(&format!("{:04}-", number + 1)) {
            found.insert(format!("{page} is not called {begin}"), vec![title.to_owned()]);
        } else if !index.contains(&listed) {
            found.insert(format!("{page} is not in the index"), vec![listed]);
        }
        for heading in sections.iter().filter(|heading| !text.contains(&format!("\n{heading}\n"))) {
            found.insert(format!("{page} has no {heading}"), vec![]);
        }
    }
    assert!(pages.len() > 10);
    hold("decisions have one format", found);
}
