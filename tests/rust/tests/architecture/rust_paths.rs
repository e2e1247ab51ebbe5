//! The file to which a path in Rust leads: through imports and re-exports, to the file that defines the name.

use std::collections::{BTreeMap, BTreeSet};

use super::rust_modules::{Crate, Import, Segments};

/// Edges of a graph of files, each with the path that makes it.
pub(crate) type Edges = BTreeMap<(String, String), String>;

/// Re-exports lead to re-exports, and no further than this.
const DEEPEST: usize = 16;

impl Crate {
    /// An edge from each file to every file that it names.
    pub(crate) fn edges(&self) -> Edges {
        let mut edges = Edges::new();
        for (place, module) in &self.modules {
            let imports = module.imports.iter().map(|import| &import.path);
            for path in imports.chain(&module.paths) {
                let Some(target) = self.defines(place, path, 0) else { continue };
                let to = &self.modules[&target].file;
                if *to != module.file {
                    edges.entry((module.file.clone(), to.clone())).or_insert_with(|| path.join("::"));
                }
            }
        }
        edges
    }

    /// Every path to something outside of the crate that a module names, written out.
    pub(crate) fn foreign(&self, place: &Segments) -> BTreeSet<String> {
        let module = &self.modules[place];
        let imports = module.imports.iter().map(|import| &import.path);
        let outside = imports.chain(&module.paths).filter(|path| self.defines(place, path, 0).is_none());
        outside
            .map(|path| match self.import(place, &path[0]) {
                Some(import) if import.path != *path => [&import.path[..], &path[1..]].concat().join("::"),
                _ => path.join("::"),
            })
            .collect()
    }

    fn import(&self, place: &Segments, name: &str) -> Option<&Import> {
        self.modules[place].imports.iter().find(|import| import.name == name)
    }

    fn child(&self, place: &Segments, name: &str) -> Option<Segments> {
        let child: Segments = place.iter().cloned().chain([name.to_owned()]).collect();
        self.modules.contains_key(&child).then_some(child)
    }

    /// The module that defines the name of a path, seen from a module. `None` means outside of the crate.
    fn defines(&self, from: &Segments, path: &[String], depth: usize) -> Option<Segments> {
        if depth > DEEPEST {
            return None;
        }
        let (first, rest) = path.split_first()?;
        let here = match first.as_str() {
            "crate" => vec![],
            "self" => from.clone(),
            "super" => from.split_last()?.1.to_vec(),
            _ => return self.leads(from, path, false, depth),
        };
        self.leads(&here, rest, true, depth)
    }

    /// Follows segments from a module. A name that is found nowhere is defined in the module itself, if the path is
    /// known to stay `inside` the crate.
    fn leads(&self, here: &Segments, path: &[String], inside: bool, depth: usize) -> Option<Segments> {
        let Some((first, rest)) = path.split_first() else { return Some(here.clone()) };
        if first == "super" {
            return self.leads(&here.split_last()?.1.to_vec(), rest, inside, depth);
        }
        if let Some(child) = self.child(here, first) {
            return self.leads(&child, rest, true, depth);
        }
        if self.modules[here].defined.contains(first) {
            return Some(here.clone());
        }
        if let Some(import) = self.import(here, first) {
            // `use url::Url` in a module that imports nothing else of that name is about a crate.
            if import.path.first() == Some(first) && import.path.len() == 1 {
                return None;
            }
            let whole = [&import.path[..], rest].concat();
            return self.defines(here, &whole, depth + 1);
        }
        let globs = self.modules[here].imports.iter().filter(|import| import.name == "*");
        for glob in globs {
            let Some(target) = self.defines(here, &glob.path, depth + 1) else { continue };
            let has = |place: &Segments| {
                self.child(place, first).is_some()
                    || self.modules[place].defined.contains(first)
                    || self.import(place, first).is_some()
            };
            if target != *here && has(&target) {
                return self.leads(&target, path, true, depth + 1);
            }
        }
        inside.then(|| here.clone())
    }
}
