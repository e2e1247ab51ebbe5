//! `tidegate lint`: warnings about policy files, for people, programs and GitHub.

use clap::{Args, ValueEnum};
use serde_json::{Value, json};
use tidegate::{Error, SourceLocation, Warning, host};
use tidegate_simulate::text::{argument_text, counted, escaped as shown, may_be_url};

use crate::terminal::{BAD, BOLD, GOOD, WARN, escaped_lines, paint};
use crate::{Outcome, Output, Result};

#[derive(Debug, Args)]
#[command(after_help = "For example, `10/10s; 600/600s` gets a warning, because the second limit never refuses a call.

The exit code is 0 without findings, 1 with warnings, and 2 if a file or a notation is invalid.

Examples:
  $ tidegate lint tidegate.yaml
  $ tidegate lint tidegate.yaml --format github
  $ tidegate lint \"10/10s; 600/600s\" --json")]
pub(crate) struct Lint {
    /// Policy files (.yaml, .toml, .json), or notations
    #[arg(required = true, value_name = "FILE")]
    files: Vec<String>,
    /// The form of the report [default: github if GITHUB_ACTIONS is true, else text]
    #[arg(long, value_name = "FORMAT")]
    format: Option<Format>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    /// Text for people
    Text,
    /// The same as --json
    Json,
    /// Annotations for GitHub Actions
    Github,
}

/// The warnings about a file, or its error.
struct FileReport<'a> {
    file: &'a str,
    found: Result<Vec<Warning>, Error>,
}

/// A warning, or the reason why a file is invalid.
struct LintFinding<'a> {
    file: &'a str,
    /// The policy of a warning.
    policy: Option<&'a str>,
    location: Option<&'a SourceLocation>,
    message: &'a str,
}

impl Lint {
    #[expect(clippy::unnecessary_wraps, reason = "verbs have one signature")]
    pub(crate) fn run(&self, output: &mut Output) -> Result<Outcome> {
        let in_actions = || std::env::var("GITHUB_ACTIONS").is_ok_and(|value| value == "true");
        let format = match self.format {
            _ if output.is_json() => Format::Json,
            Some(format) => format,
            None if in_actions() => Format::Github,
            None => Format::Text,
        };
        let reports: Vec<FileReport<'_>> =
            self.files.iter().map(|file| FileReport { file, found: host::lint_text(file) }).collect();
        match format {
            Format::Text => text(&reports, output),
            Format::Json => output.json(&as_json(&reports)),
            Format::Github => {
                reports.iter().flat_map(FileReport::findings).for_each(|finding| output.line(finding.annotation()));
            }
        }
        Ok(match counts(&reports) {
            (0, 0) => Outcome::Done,
            (_, 0) => Outcome::Negative,
            _ => Outcome::Invalid,
        })
    }
}

/// The warnings and the invalid files.
fn counts(reports: &[FileReport<'_>]) -> (usize, usize) {
    let warnings = reports.iter().filter_map(|report| report.found.as_ref().ok()).map(Vec::len).sum();
    (warnings, reports.iter().filter(|report| report.found.is_err()).count())
}

fn text(reports: &[FileReport<'_>], output: &mut Output) {
    for LintFinding { file, policy, location, message } in reports.iter().flat_map(FileReport::findings) {
        let place = match location {
            Some(location) if location.file.is_some() => shown(&location.to_string()),
            Some(location) => format!("{}:{}:{}", argument_text(file), location.line, location.column),
            None => argument_text(file),
        };
        let level = match policy {
            Some(policy) => format!("{} {}:", paint(WARN, "warning:"), paint(BOLD, policy)),
            None => paint(BAD, "error:"),
        };
        output.line(format!("{place}: {level} {}", escaped_lines(message)));
    }
    let files = if reports.len() == 1 { argument_text(reports[0].file) } else { format!("{} files", reports.len()) };
    output.line(match counts(reports) {
        (0, 0) => format!("{files}: {}", paint(GOOD, "nothing found")),
        (warnings, 0) => format!("{files}: {}", counted(warnings, "warning")),
        (warnings, errors) => format!("{files}: {}, {}", counted(errors, "error"), counted(warnings, "warning")),
    });
}

fn as_json(reports: &[FileReport<'_>]) -> Value {
    let (warnings, errors) = counts(reports);
    json!({"files": reports.iter().map(FileReport::as_json).collect::<Value>(), "warnings": warnings, "errors": errors})
}

impl FileReport<'_> {
    fn findings(&self) -> Vec<LintFinding<'_>> {
        let finding = |policy, location, message| LintFinding { file: self.file, policy, location, message };
        match &self.found {
            Ok(warnings) => warnings
                .iter()
                .map(|warning| finding(Some(&*warning.policy), warning.location.as_ref(), &*warning.message))
                .collect(),
            Err(error) => {
                // The message may begin with the location, or with the file.
                let place = error.location().map_or_else(|| argument_text(self.file), ToString::to_string);
                let message = error.message();
                let message = message.strip_prefix(&format!("{place}: ")).unwrap_or(message);
                vec![finding(None, error.location(), message)]
            }
        }
    }

    fn as_json(&self) -> Value {
        let of = |finding: &LintFinding<'_>| {
            let (about, value) = match (finding.policy, &self.found) {
                (None, Err(error)) => ("code", error.code()),
                (policy, _) => ("policy", policy.unwrap_or_default()),
            };
            json!({
                about: value,
                "line": finding.location.map(|location| location.line),
                "column": finding.location.map(|location| location.column),
                "message": finding.message,
            })
        };
        let found: Vec<Value> = self.findings().iter().map(of).collect();
        let file = if may_be_url(self.file) { argument_text(self.file) } else { self.file.to_owned() };
        match self.found {
            Ok(_) => json!({"file": file, "valid": true, "error": null, "warnings": found}),
            Err(_) => json!({"file": file, "valid": false, "error": found[0], "warnings": []}),
        }
    }
}

impl LintFinding<'_> {
    /// A command of GitHub's runner: `::warning file=…,line=…,col=…::message`.
    fn annotation(&self) -> String {
        let place = self.location.map(|location| format!(",line={},col={}", location.line, location.column));
        let (level, policy) = match self.policy {
            Some(policy) => ("warning", format!("{}: ", shown(policy))),
            None => ("error", String::new()),
        };
        let message = escaped(&format!("{policy}{}", self.message));
        format!(
            "::{level} file={}{}::{message}",
            escaped_property(&argument_text(self.file)),
            place.unwrap_or_default()
        )
    }
}

/// Escapes a message for GitHub. `%` comes first, because every code begins with it.
fn escaped(text: &str) -> String {
    text.replace('%', "%25").replace('\r', "%0D").replace('\n', "%0A")
}

/// Escapes a property for GitHub, where a comma or a colon would end it.
fn escaped_property(text: &str) -> String {
    escaped(text).replace(':', "%3A").replace(',', "%2C")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn annotations_are_escaped_as_github_reads_them() {
        let location = SourceLocation::new(None, 3, 5);
        let finding = |file, policy, location, message| LintFinding { file, policy, location, message };
        assert_eq!(
            finding("a,b:c.yaml", Some("p"), Some(&location), "5% of\r\n10: x, y").annotation(),
            "::warning file=a%2Cb%3Ac.yaml,line=3,col=5::p: 5%25 of%0D%0A10: x, y"
        );
        assert_eq!(finding("x.yaml", None, None, "gone").annotation(), "::error file=x.yaml::gone");
    }
}
