//! Shared code of the command's tests: it runs the command, and compares its output with golden files.

#![allow(dead_code, reason = "each test uses a part of it")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tidegate_tests::servers::{Kind, Servers};

/// The result of a run of the command.
pub(crate) struct Ran {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) error: String,
}

impl Ran {
    #[track_caller]
    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {}{}", self.out, self.error))
    }
}

/// The command, without the environment that would change its answers.
pub(crate) fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    for name in ["TIDEGATE_STORE", "TIDEGATE_TOP", "GITHUB_ACTIONS", "CLICOLOR_FORCE", "NO_COLOR"] {
        command.env_remove(name);
    }
    command.args(arguments).current_dir(folder("files")).stdin(Stdio::null());
    command
}

#[track_caller]
pub(crate) fn run(arguments: &[&str]) -> Ran {
    ran(&mut command(arguments))
}

/// Runs the command on a store with the policy file.
pub(crate) fn on(url: &str, arguments: &[&str]) -> Ran {
    run(&[arguments, &["--store", url, "--policies", "tidegate.yaml"]].concat())
}

pub(crate) fn redis() -> Servers {
    Servers::start(Kind::Single)
}

#[track_caller]
pub(crate) fn ran(command: &mut Command) -> Ran {
    let output = command.output().expect("the command runs");
    let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
    let code = output.status.code().unwrap_or_else(|| panic!("{command:?} was killed"));
    Ran { code, out: text(output.stdout), error: text(output.stderr) }
}

pub(crate) fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(name)
}

/// Compares an output with its golden file. With TIDEGATE_GOLDEN=write it writes the file instead.
///
/// Differences between runs are masked by these rules: the address of a server, a version, a moment, a length of time
/// that the test names, and numbers that the test names.
#[track_caller]
pub(crate) fn golden(name: &str, text: &str) {
    let path = folder("golden").join(format!("{name}.txt"));
    if std::env::var_os("TIDEGATE_GOLDEN").is_some_and(|value| value == "write") {
        fs::write(&path, text).expect("a golden file");
        return;
    }
    let expected = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    assert!(
        text == expected,
        "{name} differs from {}; TIDEGATE_GOLDEN=write writes it\n--- now\n{text}\n--- golden\n{expected}",
        path.display()
    );
}

/// The text with each number, a point and units of time included, replaced by `#`: for outputs that are measured.
pub(crate) fn without_numbers(text: &str) -> String {
    let mut masked = String::new();
    let mut in_number = false;
    for c in text.chars() {
        let is_number = c.is_ascii_digit() || (in_number && (c == ',' || c == '.'));
        if is_number && !in_number {
            masked.push('#');
        }
        if !is_number {
            masked.push(c);
        }
        in_number = is_number;
    }
    for unit in ["# µs", "# ms", "# ns", "# s", "# kB", "# MB", "# GB", "# bytes"] {
        masked = masked.replace(unit, "#");
    }
    // A length of time is long or short depending on when the test runs.
    for time in ["less than #", "#d #h", "#h #m", "#m #s", "#d", "#h", "#m"] {
        masked = masked.replace(time, "#");
    }
    // The width of a column follows its numbers.
    let mut lines: Vec<String> = Vec::new();
    for line in masked.lines() {
        let indent = line.len() - line.trim_start().len();
        let words: Vec<&str> = line.split_whitespace().collect();
        lines.push(format!("{}{}", " ".repeat(indent), words.join(" ")));
    }
    lines.join("\n") + "\n"
}

/// A folder that is removed afterwards.
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    pub(crate) fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("tidegate-{}-{name}", std::process::id()));
        fs::create_dir_all(&path).expect("a folder");
        Self(path)
    }

    pub(crate) fn file(&self, name: &str) -> String {
        self.0.join(name).to_str().expect("a path in UTF-8").to_owned()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // If something is left there, the next test that looks for it finds it.
        let _ = fs::remove_dir_all(&self.0);
    }
}
