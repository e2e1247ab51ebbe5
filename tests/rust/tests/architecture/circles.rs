//! No circle of files. A file may name the modules that it lies in, though these name it.

use std::collections::{BTreeMap, BTreeSet};

use super::rust_modules::Crate;
use super::rust_paths::Edges;
use super::{Violations, hold, script_imports};

/// Groups of files that all lead to each other, without the edges from a file to the modules that it lies in.
fn circles(edges: &Edges) -> Vec<BTreeSet<&str>> {
    let mut next: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for (from, to) in edges.keys() {
        if !lies_in(from, to) {
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
fn violations(edges: &Edges) -> Violations {
    let mut found = Violations::new();
    for circle in circles(edges) {
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

/// True if a file lies in a module: `x/mod.rs`, `x.rs`, `x/__init__.py`, `x/index.ts` and `x.ts` are modules with all that is in
/// `x`, and `lib.rs` with all that is in its folder.
fn lies_in(file: &str, module: &str) -> bool {
    let stem = module.rsplit_once('.').map_or(module, |(stem, _)| stem);
    let owner = ["/mod", "/lib", "/__init__", "/index"].iter().find_map(|name| stem.strip_suffix(name));
    file.strip_prefix(owner.unwrap_or(stem)).is_some_and(|rest| rest.starts_with('/'))
}

#[test]
fn no_circle_of_files_in_rust() {
    let crates = ["core/src", "cli/src", "simulate/src", "bindings-python/src", "bindings-node/src"];
    let found = crates.iter().flat_map(|folder| violations(&Crate::read(folder).edges())).collect();
    hold("no circles in Rust", found);
}

#[test]
fn no_circle_of_files_in_python() {
    let folder = "bindings-python/python/tidegate";
    hold("no circles in Python", violations(&script_imports::python(folder)));
}

#[test]
fn no_circle_of_files_in_typescript() {
    hold("no circles in TypeScript", violations(&script_imports::typescript("bindings-node/lib")));
}

#[test]
fn a_circle_is_found_and_a_module_with_its_files_is_none() {
    let edge = |from: &str, to: &str| ((format!("x/{from}"), format!("x/{to}")), String::new());
    let line =
        Edges::from([edge("a.rs", "b.rs"), edge("b.rs", "c.rs"), edge("mod.rs", "a.rs"), edge("c.rs", "mod.rs")]);
    assert!(violations(&line).is_empty());
    let circle: Edges = line.into_iter().chain([edge("c.rs", "a.rs")]).collect();
    let found = violations(&circle);
    assert_eq!(found.keys().collect::<Vec<_>>(), ["a circle in x"]);
    assert_eq!(found["a circle in x"].len(), 3);
    let through_a_module = Edges::from([edge("a.rs", "y/mod.rs"), edge("y/mod.rs", "y/b.rs"), edge("y/b.rs", "a.rs")]);
    assert_eq!(violations(&through_a_module)["a circle in x"].len(), 3);
}
