//! Makes a documentation test of each Rust block in the READMEs and in `docs`: `OUT_DIR/snippets.rs`, which `src/lib.rs`
//! includes: so no page is left out, and a test has the name of its page and line. `tests/python/snippets.py` has the rules of all
//! languages.

use std::env;
use std::fmt::Write;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// The Rust blocks of a page as `(line, language, code)`. The language may have attributes: `rust,no_run`. A title, which follows
/// a blank, is none.
fn rust_blocks(text: &str) -> Vec<(usize, &str, String)> {
    let mut blocks = Vec::new();
    let mut lines = text.lines().enumerate();
    while let Some((number, line)) = lines.next() {
        let Some(info) = line.trim_start().strip_prefix("```") else { continue };
        let indent = line.len() - line.trim_start().len();
        let mut code = String::new();
        for (_, line) in lines.by_ref().take_while(|(_, line)| line.trim() != "```") {
            code.push_str(line.get(indent..).unwrap_or_default());
            code.push('\n');
        }
        let language = info.split(' ').next().unwrap_or_default();
        if language.split(',').next() == Some("rust") {
            blocks.push((number + 1, language, code));
        }
    }
    blocks
}

/// A block with one of these needs a server at the usual port, or a caller that comes. No test gives it that, so it is only compiled.
const NEEDS: [&str; 4] = ["redis://", "::bind(", ".serve(", "://api.example.com"];

/// A dependency that the tests do not have. `tests/python/long/test_actix.py` runs such a block.
const ELSEWHERE: &str = "use actix_web::";

/// The language of a block, with what rustdoc is told of it.
fn attributes(language: &str, code: &str) -> String {
    if code.contains(ELSEWHERE) {
        return format!("{language},ignore");
    }
    let is_run = !code.contains(".await") || !NEEDS.iter().any(|need| code.contains(need));
    if is_run { language.to_owned() } else { format!("{language},no_run") }
}

fn pages(folder: &Path, found: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            pages(&path, found)?;
        } else if path.extension().is_some_and(|ending| ending == "md") {
            found.push(path);
        }
    }
    Ok(())
}

fn main() -> io::Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let (readme, docs) = (root.join("README.md"), root.join("docs"));
    println!("cargo::rerun-if-changed={}", readme.display());
    println!("cargo::rerun-if-changed={}", docs.display());
    // core/README.md is the documentation of the crate itself.
    let mut found = vec![readme];
    pages(&docs, &mut found)?;
    found.sort();
    let mut modules = String::new();
    for path in found {
        let page = path.strip_prefix(&root).unwrap_or(&path).display().to_string();
        let name: String =
            page.chars().map(|c| if c.is_alphanumeric() { c.to_ascii_lowercase() } else { '_' }).collect();
        for (line, language, code) in rust_blocks(&fs::read_to_string(&path)?) {
            // rustdoc would give it a main of its own.
            if !code.contains("fn main()") {
                return Err(io::Error::other(format!("{page}, line {line}: a block of Rust has its own main")));
            }
            let text = format!("{page}, line {line}\n\n```{}\n{code}```\n", attributes(language, &code));
            writeln!(modules, "#[doc = {text:?}]\nmod {name}_{line} {{}}").map_err(io::Error::other)?;
        }
    }
    fs::write(Path::new(&env::var("OUT_DIR").map_err(io::Error::other)?).join("snippets.rs"), modules)
}
