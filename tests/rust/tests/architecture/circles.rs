//! No circle of files, except a module and its own children.

use std::collections::{BTreeMap, BTreeSet};

use super::rust_modules::Crate;
use super::rust_paths::Edges;
use super::{Violations, hold, script_imports};

/// Groups of files that all lead to each other, without the edges between a parent and its children.
fn circles(edges: &Edges, is_parent: impl Fn(&str, &str) -> bool) -> Vec<BTreeSet<&str>> {
    let mut next: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for (from, to) in edges.keys() {
        if !is_parent(from, to) && !is_parent(to, from) {
            next.entry(from).or_default().insert(to);
        }
    }
    let reached = |start: &str| {
        let mut seen = BTreeSet::new();
        let mut open: Vec<&str> = next.get(start).into_iter().flatten().copied().collect();
        while let Some(file) = open.pop() {
            if seen.insert(file) {
                open.extend(next.get(file).into_iter().flatten());
            }
        }
        seen
    };
    let all: BTreeMap<&str, BTreeSet<&str>> = next.keys().map(|file| (*file, reached(file))).collect();
    let mut found: Vec<BTreeSet<&str>> = Vec::new();
    for (file, reached) in &all {
        let leads_back = |other: &&&str| all.get(**other).is_some_and(|reached| reached.contains(file));
        let circle: BTreeSet<&str> = reached.iter().filter(leads_back).copied().collect();
        if !circle.is_empty() && !found.contains(&circle) {
            found.push(circle);
        }
    }
    found
}

/// A circle is named by the folder that has all its files, which changes less than the files do.
fn violations(edges: &Edges, is_parent: impl Fn(&str, &str) -> bool) -> Violations {
    let mut found = Violations::new();
    for circle in circles(edges, is_parent) {
        let mut folders = circle.iter().map(|file| file.rsplit_once('/').map_or("", |(folder, _)| folder));
        let mut common = folders.next().unwrap_or_default();
        for folder in folders {
            while folder != common && !folder.starts_with(&format!("{common}/")) {
                common = common.rsplit_once('/').map_or("", |(folder, _)| folder);
            }
        }
        let inside = edges.iter().filter(|((from, to), _)| circle.contains(&**from) && circle.contains(&**to));
        let evidence = inside.map(|((from, to), path)| format!("{from} names {to}: {path}"));
        found.entry(format!("a circle in {common}")).or_default().extend(evidence);
    }
    found
}

/// `x/mod.rs`, `x.rs`, `lib.rs`, `x/__init__.py`, `x/index.ts` and `x.ts` are parents of the files in `x`, and of the
/// parents of its folders.
fn is_parent(parent: &str, child: &str) -> bool {
    let stem = |file: &str| file.rsplit_once('.').map_or(file, |(stem, _)| stem).to_owned();
    let place = |file: &str| {
        let stem = stem(file);
        let owner = ["/mod", "/lib", "/__init__", "/index"].iter().find_map(|name| stem.strip_suffix(name));
        owner.map_or(stem.clone(), str::to_owned)
    };
    place(child).rsplit_once('/').is_some_and(|(folder, _)| folder == place(parent))
}

#[test]
fn no_circle_of_files_in_rust() {
    let crates = ["core/src", "simulate/src", "cli/src", "bindings-python/src", "bindings-node/src"];
    let found = crates.iter().flat_map(|folder| violations(&Crate::read(folder).edges(), is_parent)).collect();
    hold("no circles in Rust", found);
}

#[test]
fn no_circle_of_files_in_python() {
    let folder = "bindings-python/python/tidegate";
    hold("no circles in Python", violations(&script_imports::python(folder), is_parent));
}

#[test]
fn no_circle_of_files_in_typescript() {
    hold("no circles in TypeScript", violations(&script_imports::typescript("bindings-node/lib"), is_parent));
}

#[test]
fn a_circle_is_found_and_a_parent_with_its_child_is_none() {
    let edge = |from: &str, to: &str| ((format!("x/{from}"), format!("x/{to}")), String::new());
    let line =
        Edges::from([edge("a.rs", "b.rs"), edge("b.rs", "c.rs"), edge("mod.rs", "a.rs"), edge("c.rs", "mod.rs")]);
    assert!(violations(&line, is_parent).is_empty());
    let circle: Edges = line.into_iter().chain([edge("c.rs", "a.rs")]).collect();
    let found = violations(&circle, is_parent);
    assert_eq!(found.keys().collect::<Vec<_>>(), ["a circle in x"]);
    assert_eq!(found["a circle in x"].len(), 3);
}
