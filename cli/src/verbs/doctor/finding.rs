//! The findings of an examination.

use serde::Serialize;
use tidegate_simulate::text::escaped;

use crate::Output;
use crate::terminal::{BAD, DIM, GOOD, WARN, paint, width, wrapped};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Level {
    Ok,
    /// Worth knowing, but you need to do nothing now.
    Note,
    /// Limits fail, are forgotten or are wrong.
    Problem,
}

/// One finding, and the advice about it.
#[derive(Debug, Serialize)]
pub(super) struct Finding {
    pub(super) level: Level,
    /// The examined thing, in a word or two.
    pub(super) check: &'static str,
    /// The server, if a store has several.
    pub(super) server: Option<String>,
    /// The number of servers with this finding.
    #[serde(skip)]
    servers: usize,
    pub(super) message: String,
    /// A sentence, or a command to paste.
    pub(super) advice: Option<String>,
}

impl Finding {
    fn new(level: Level, check: &'static str, message: impl Into<String>) -> Self {
        Self { level, check, server: None, servers: 1, message: message.into(), advice: None }
    }

    pub(super) fn ok(check: &'static str, message: impl Into<String>) -> Self {
        Self::new(Level::Ok, check, message)
    }

    pub(super) fn note(check: &'static str, message: impl Into<String>) -> Self {
        Self::new(Level::Note, check, message)
    }

    pub(super) fn problem(check: &'static str, message: impl Into<String>) -> Self {
        Self::new(Level::Problem, check, message)
    }

    pub(super) fn advice(mut self, advice: impl Into<String>) -> Self {
        self.advice = Some(advice.into());
        self
    }

    /// Joins findings that several servers have in common.
    pub(super) fn join_equal(findings: Vec<Self>) -> Vec<Self> {
        let mut joined: Vec<Self> = Vec::new();
        for finding in findings {
            let is_equal = |other: &&mut Self| {
                (other.level, other.check, &other.message) == (finding.level, finding.check, &finding.message)
            };
            match joined.iter_mut().find(is_equal) {
                Some(other) => {
                    other.servers += 1;
                    other.server = Some(format!("{} servers", other.servers));
                }
                None => joined.push(finding),
            }
        }
        joined
    }

    pub(super) fn show(&self, output: &mut Output) {
        let (style, level) = match self.level {
            Level::Ok => (GOOD, "ok"),
            Level::Note => (WARN, "note"),
            Level::Problem => (BAD, "problem"),
        };
        let server = self.server.as_ref().map_or_else(String::new, |server| format!("{server}: "));
        let room = width().saturating_sub(25).max(30);
        let mut lines = wrapped(&escaped(&format!("{server}{}", self.message)), room).into_iter();
        let level = paint(style, &format!("{level:<8}"));
        output.line(format!("  {level} {:<12} {}", self.check, lines.next().unwrap_or_default()));
        lines.for_each(|line| output.line(format!("{:24}{line}", "")));
        if let Some(advice) = &self.advice {
            let advice = &escaped(advice);
            // A command is not cut, because the user copies it.
            let lines = if advice.contains("ACL SETUSER") { vec![advice.clone()] } else { wrapped(advice, room - 2) };
            for (index, line) in lines.iter().enumerate() {
                let mark = if index == 0 { paint(DIM, "→ ") } else { "  ".to_owned() };
                output.line(format!("{:24}{mark}{line}", ""));
            }
        }
    }
}
