//! `tidegate lint`: warnings about policy files, for people, programs and GitHub.

use clap::{Args, ValueEnum};
use serde_json::{Value, json};
use tidegate::{Error, SourceLocation, Warning, host};

use crate::terminal::{BAD, BOLD, GOOD, WARN, escaped as shown, paint};
use crate::{Failure, Outcome, Output};

#[derive(Debug, Args)]
#[command(after_help = "Exit code: 0 nothing found, 1 warnings, 2 a file or a notation that is invalid.

Examples:
  $ tidegate lint tidegate.yaml
  $ tidegate lint tidegate.yaml --format github
  $ tidegate lint \"10/10s; 600/600s\" --json")]
pub(crate) struct Lint {
    /// Policy files (.yaml, .toml, .json), or notations
    #[arg(required = true, value_name = "FILE")]
    files: Vec<String>,
    /// How to report: github where GITHUB_ACTIONS is true, else text
    #[arg(long, value_name = "FORMAT")]
    format: Option<Format>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    /// For people
    Text,
    /// The same as --json
    Json,
    /// Annotations of GitHub Actions
    Github,
}

/// What was found in a file.
struct FileReport<'a> {
    file: &'a str,
    found: Result<Vec<Warning>, Error>,
}

impl Lint {
    #[expect(clippy::unnecessary_wraps, reason = "verbs have one signature")]
    pub(crate) fn run(&self, output: &mut Output) -> Result<Outcome, Failure> {
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
            Format::Github => reports.iter().for_each(|report| annotations(report, output)),
        }
        let (warnings, errors) = counts(&reports);
        Ok(match (warnings, errors) {
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
    for report in reports {
        match &report.found {
            Ok(warnings) => warnings.iter().for_each(|warning| {
                let (place, policy) =
                    (location_of(report.file, warning.location.as_ref()), paint(BOLD, &warning.policy));
                output.line(format!("{place}: {} {policy}: {}", paint(WARN, "warning:"), warning.message));
            }),
            Err(error) => {
                let place = location_of(report.file, error.location());
                output.line(format!("{place}: {} {}", paint(BAD, "error:"), message(report.file, error)));
            }
        }
    }
    let (warnings, errors) = counts(reports);
    let files = if reports.len() == 1 { shown(reports[0].file) } else { format!("{} files", reports.len()) };
    let count = |number: usize, what: &str| format!("{number} {what}{}", if number == 1 { "" } else { "s" });
    output.line(match (warnings, errors) {
        (0, 0) => format!("{files}: {}", paint(GOOD, "nothing found")),
        (_, 0) => format!("{files}: {}", count(warnings, "warning")),
        _ => format!("{files}: {}, {}", count(errors, "error"), count(warnings, "warning")),
    });
}

fn location_of(file: &str, location: Option<&SourceLocation>) -> String {
    match location {
        Some(location) if location.file.is_some() => location.to_string(),
        Some(location) => format!("{}:{}:{}", shown(file), location.line, location.column),
        None => shown(file),
    }
}

/// The message without the location or the file that it may begin with.
fn message<'a>(file: &str, error: &'a Error) -> &'a str {
    let place = error.location().map_or_else(|| shown(file), ToString::to_string);
    error.message().strip_prefix(&format!("{place}: ")).unwrap_or(error.message())
}

fn as_json(reports: &[FileReport<'_>]) -> Value {
    let line = |location: Option<&SourceLocation>| location.map(|location| location.line);
    let column = |location: Option<&SourceLocation>| location.map(|location| location.column);
    let file = |report: &FileReport<'_>| {
        let warnings: Vec<Value> = report
            .found
            .iter()
            .flatten()
            .map(|warning| {
                json!({
                    "policy": warning.policy,
                    "line": line(warning.location.as_ref()),
                    "column": column(warning.location.as_ref()),
                    "message": warning.message,
                })
            })
            .collect();
        let error = report.found.as_ref().err().map(|error| {
            json!({
                "code": error.code(),
                "line": line(error.location()),
                "column": column(error.location()),
                "message": message(report.file, error),
            })
        });
        json!({"file": report.file, "valid": report.found.is_ok(), "error": error, "warnings": warnings})
    };
    let (warnings, errors) = counts(reports);
    json!({"files": reports.iter().map(file).collect::<Vec<_>>(), "warnings": warnings, "errors": errors})
}

fn annotations(report: &FileReport<'_>, output: &mut Output) {
    match &report.found {
        Ok(warnings) => warnings.iter().for_each(|warning| {
            let text = format!("{}: {}", warning.policy, warning.message);
            output.line(annotation("warning", report.file, warning.location.as_ref(), &text));
        }),
        Err(error) => output.line(annotation("error", report.file, error.location(), message(report.file, error))),
    }
}

/// A command of GitHub's runner: `::warning file=…,line=…,col=…::message`.
fn annotation(level: &str, file: &str, location: Option<&SourceLocation>, message: &str) -> String {
    let mut properties = format!("file={}", escaped_property(file));
    if let Some(location) = location {
        properties += &format!(",line={},col={}", location.line, location.column);
    }
    format!("::{level} {properties}::{}", escaped(message))
}

/// As GitHub reads a message: `%` first, which stands before every code.
fn escaped(text: &str) -> String {
    text.replace('%', "%25").replace('\r', "%0D").replace('\n', "%0A")
}

/// As GitHub reads a property, which ends with a comma or a colon.
fn escaped_property(text: &str) -> String {
    escaped(text).replace(':', "%3A").replace(',', "%2C")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn annotations_are_escaped_as_github_reads_them() {
        let location = SourceLocation::new(None, 3, 5);
        assert_eq!(
            annotation("warning", "a,b:c.yaml", Some(&location), "5% of\r\n10: x, y"),
            "::warning file=a%2Cb%3Ac.yaml,line=3,col=5::5%25 of%0D%0A10: x, y"
        );
        assert_eq!(annotation("error", "x.yaml", None, "gone"), "::error file=x.yaml::gone");
    }
}
