//! A policy file, in each of its formats. An accepted file is the same when it is written in any format. The error of a
//! refused one has the file, the line and the column.

use tidegate::policy::Format;
use tidegate::{Error, Policy, PolicyFile};

use super::policy_file_text;
use crate::fuzz::outcome::shape;

pub(crate) const WORDS: &[&str] = &[
    "policies",
    "limits",
    "store",
    ":",
    ": ",
    "\n",
    "\n  ",
    "\n    - ",
    "{",
    "}",
    "[",
    "]",
    ", ",
    "\"",
    "'",
    "5/s",
    "count: 5",
    "period: 10m",
    "algorithm: gcra",
    "burst: 9",
    "initial: 1",
    "precision: 60",
    "concurrency 2 ttl 3s",
    "on_store_error",
    "local",
    "shadow",
    "true",
    "block_for",
    "forgive",
    "count_denied",
    "journal",
    "lease",
    "5%",
    "rollout",
    "shards",
    "percent",
    "name",
    "config",
    "limit",
    "600",
    "1.5",
    "&a ",
    "*a",
    "!!str ",
    "|\n",
    ">",
    "# ",
    "---\n",
    "${",
    "${X}",
    "${URL}",
    "${NO:-5/s}",
    "$${",
    " = ",
    "[[",
    "]]",
    "[policies]\n",
    "\\u00e9",
    "é",
    "\0",
    "\t",
    "? ",
    "- ",
    "null",
    "-1",
    "1e400",
    "0x1F",
    "\r\n",
    "'''",
    "\"\"\"",
    "\u{feff}",
    "\u{7f}",
    "redis://h",
    "memory://",
];

const NAME: &str = "t.policies";
/// A value of the environment that no message may show.
const SECRET: &str = "QXZJVKWY";
const LONGEST_MESSAGE: usize = 1_500;

fn environment(name: &str) -> Option<String> {
    match name {
        "X" => Some("5/s".to_owned()),
        "URL" => Some(format!("redis://u:{SECRET}@h/0")),
        _ => None,
    }
}

fn read(text: &str, format: Format) -> Result<PolicyFile, Error> {
    PolicyFile::parse_with(text, format, Some(NAME), &environment)
}

pub(crate) fn run(input: &[u8]) -> String {
    let text = String::from_utf8_lossy(input);
    let outcome = |format: Format| match read(&text, format) {
        Ok(file) => {
            same_in_every_format(&file);
            let policies: Vec<String> = file.policies().iter().take(2).map(kind).collect();
            format!("{} {:?} {policies:?}", format.name(), file.store().map(<[String]>::len))
        }
        Err(error) => refused(&text, &error),
    };
    Format::ALL.map(outcome).join("|")
}

fn kind(policy: &Policy) -> String {
    let options = policy.options();
    let set = [options.shadow, options.count_denied, options.journal > 0, options.lease.is_some()];
    let algorithms: Vec<&str> = policy.limits().iter().take(2).map(|limit| limit.algorithm().name()).collect();
    format!(
        "{algorithms:?} {:?} {:?} {set:?}",
        options.on_store_error,
        options.block_for.as_ref().map(|blocks| blocks.lengths().len())
    )
}

fn same_in_every_format(file: &PolicyFile) {
    for policy in file.policies() {
        assert_eq!(file.get(policy.name()), Some(policy));
        assert!(file.location(policy.name()).is_some_and(|location| location.file.as_deref() == Some(NAME)));
    }
    for format in Format::ALL {
        let text = policy_file_text::written(file, format);
        let again = read(&text, format).unwrap_or_else(|error| panic!("{}: {error}\n{text}", format.name()));
        assert_eq!(again.policies(), file.policies(), "{}: {text}", format.name());
        assert_eq!((again.store(), again.rollout()), (file.store(), file.rollout()), "{}: {text}", format.name());
    }
}

fn refused(text: &str, error: &Error) -> String {
    assert_eq!(error.code(), "policy_invalid", "{error}");
    let message = error.message();
    assert!(message.len() <= LONGEST_MESSAGE, "{} bytes: {message}", message.len());
    assert!(!message.contains(SECRET) || text.contains(SECRET), "{message}");
    let location = error.location().unwrap_or_else(|| panic!("no location: {message}"));
    assert_eq!(location.file.as_deref(), Some(NAME), "{message}");
    assert!(message.starts_with(&format!("{location}: ")), "{location} is not in {message}");
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let ends = text.matches(['\n', '\r']).count();
    assert!((1..=ends + 1).contains(&location.line), "line {} of {}: {message}", location.line, ends + 1);
    let longest = text.split('\n').map(|line| line.chars().count()).max().unwrap_or(0);
    assert!((1..=longest + 1).contains(&location.column), "column {} of {longest}: {message}", location.column);
    shape(message.get(location.to_string().len()..).unwrap_or_default())
}
