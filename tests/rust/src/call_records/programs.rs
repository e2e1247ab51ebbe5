//! Clients in other languages: `tests/histories/client.py` and `client.mjs`.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};

use serde_json::json;

use super::client::Client;
use super::record::CallRecord;
use super::schedule;

/// A language that a client program is written in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Language {
    /// Threads and tasks.
    Python,
    /// Calls that overlap.
    Node,
}

impl Language {
    /// The languages that `TIDEGATE_CLIENTS` lists, such as `python,node`. They must be built.
    ///
    /// # Panics
    /// When it lists another one.
    #[must_use]
    pub fn wanted() -> Vec<Self> {
        let names = std::env::var("TIDEGATE_CLIENTS").unwrap_or_default();
        let language = |name: &str| match name {
            "python" => Self::Python,
            "node" => Self::Node,
            _ => panic!("TIDEGATE_CLIENTS lists {name:?}: known are python and node"),
        };
        names.split(',').filter(|name| !name.is_empty()).map(language).collect()
    }

    fn name(self) -> &'static str {
        match self {
            Self::Python => "python",
            Self::Node => "node",
        }
    }

    fn command(self) -> Command {
        let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
        let (program, file) = match self {
            Self::Python => (root.join(".cache/venv/bin/python"), "client.py"),
            Self::Node => (PathBuf::from("node"), "client.mjs"),
        };
        let mut command = Command::new(program);
        if self == Self::Node {
            // Node would print a warning for each fault.
            command.arg("--no-warnings");
        }
        command.current_dir(root).arg(Path::new("tests/histories").join(file));
        command
    }
}

/// A running client.
pub struct ClientProgram {
    child: Child,
    output: BufReader<ChildStdout>,
}

impl ClientProgram {
    /// Starts it, and waits until it makes calls.
    ///
    /// # Panics
    /// When it does not start.
    #[must_use]
    pub fn start(language: Language, client: &Client) -> Self {
        let schedule = &client.schedule;
        let plan = json!({
            "name": language.name(), "url": client.url, "seed": client.seed, "file": schedule::file(),
            "timeout": client.timeout.as_secs_f64(), "pause": client.pause.as_secs_f64(),
            "after_error": client.after_error.as_secs_f64(), "run": schedule.run,
            "slice": schedule.slice.as_nanos() as u64, "groups": schedule.groups,
            "across_policies": schedule.across_policies, "policies": schedule.policies, "own": schedule.own,
        });
        let mut command = language.command();
        command.arg(plan.to_string()).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap_or_else(|error| panic!("{}: {error}", language.name()));
        let mut output = BufReader::new(child.stdout.take().expect("stdout is piped"));
        let mut line = String::new();
        output.read_line(&mut line).expect("it writes text");
        assert_eq!(line, "ready\n", "the client in {} did not start: its message is on stderr", language.name());
        Self { child, output }
    }

    /// Ends it, and returns its records.
    ///
    /// # Panics
    /// When it wrote something else.
    #[must_use]
    pub fn records(mut self) -> Vec<CallRecord> {
        drop(self.child.stdin.take());
        let read = |line: std::io::Result<String>| {
            let line = line.expect("it writes text");
            let value = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{line}: {error}"));
            CallRecord::from_json(&value).unwrap_or_else(|| panic!("not a record: {line}"))
        };
        let records = (&mut self.output).lines().map(read).collect();
        assert!(self.child.wait().expect("it ends").success(), "its message is on stderr");
        records
    }
}

impl Drop for ClientProgram {
    fn drop(&mut self) {
        // After `records` it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
