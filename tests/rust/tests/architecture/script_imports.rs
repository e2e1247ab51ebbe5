//! Imports between the files of the Python package and of the npm package.

use super::files;
use super::rust_paths::Edges;

/// Every module of the package that a module imports, wherever in it and for whatever purpose.
pub(crate) fn python(folder: &str) -> Edges {
    let all = files::under(folder, &[".py"]);
    let package = folder.rsplit_once('/').map_or(folder, |(_, name)| name);
    let file_of = |module: &str| {
        let path = format!("{folder}/{}", module.replace('.', "/"));
        [format!("{path}.py"), format!("{}/__init__.py", path.trim_end_matches('/'))]
            .into_iter()
            .find(|file| all.contains(file))
    };
    let mut edges = Edges::new();
    for file in &all {
        let source = files::read(file);
        let inside = file[folder.len() + 1..].split('/').collect::<Vec<_>>();
        for line in whole_imports(&source) {
            let mut targets: Vec<String> = Vec::new();
            if let Some((module, names)) = line.strip_prefix("from ").and_then(|rest| rest.split_once(" import ")) {
                let dots = module.len() - module.trim_start_matches('.').len();
                let base = if dots > 0 {
                    let mut base: Vec<&str> = inside[..inside.len().saturating_sub(dots)].to_vec();
                    base.extend(module[dots..].split('.').filter(|part| !part.is_empty()));
                    base.join(".")
                } else if module == package {
                    String::new()
                } else if let Some(rest) = module.strip_prefix(&format!("{package}.")) {
                    rest.to_owned()
                } else {
                    continue;
                };
                // An imported name may be a module itself.
                for name in names.split(['(', ')', ',']).map(str::trim).filter(|name| !name.is_empty()) {
                    let name = name.split_whitespace().next().unwrap_or_default();
                    let whole = if base.is_empty() { name.to_owned() } else { format!("{base}.{name}") };
                    targets.push(if file_of(&whole).is_some() { whole } else { base.clone() });
                }
            } else if let Some(rest) = line.strip_prefix(&format!("import {package}.")) {
                targets.push(rest.split_whitespace().next().unwrap_or_default().to_owned());
            }
            for target in targets {
                if let Some(to) = file_of(&target).filter(|to| to != file) {
                    edges.insert((file.clone(), to), line.clone());
                }
            }
        }
    }
    edges
}

/// Lines that import, each as one line.
fn whole_imports(source: &str) -> Vec<String> {
    let mut imports: Vec<String> = Vec::new();
    for line in source.lines().map(str::trim) {
        match imports.last_mut() {
            Some(open) if open.contains('(') && !open.contains(')') => open.push_str(line),
            _ if line.starts_with("from ") || line.starts_with("import ") => imports.push(line.to_owned()),
            _ => {}
        }
    }
    imports
}

/// Every file that a file imports or re-exports, types too.
pub(crate) fn typescript(folder: &str) -> Edges {
    let all = files::under(folder, &[".ts"]);
    let mut edges = Edges::new();
    for file in &all {
        let source = files::read(file);
        let from = file.rsplit_once('/').map_or("", |(folder, _)| folder);
        let names = ["from '", "import '", "import('", "require('"].iter().flat_map(|before| {
            source.split(before).skip(1).filter_map(|rest| rest.split('\'').next()).filter(|name| name.starts_with('.'))
        });
        for name in names {
            let mut parts: Vec<&str> = from.split('/').collect();
            for part in name.split('/') {
                match part {
                    "." => {}
                    ".." => drop(parts.pop()),
                    part => parts.push(part),
                }
            }
            let path = parts.join("/");
            let stem = path.strip_suffix(".js").unwrap_or(&path);
            let candidates = [format!("{stem}.ts"), format!("{stem}/index.ts")];
            if let Some(to) = candidates.into_iter().find(|to| all.contains(to) && to != file) {
                edges.insert((file.clone(), to), name.to_owned());
            }
        }
    }
    edges
}
