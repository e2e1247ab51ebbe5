//! What an examination finds.

use serde_json::{Value, json};

use crate::Output;
use crate::terminal::{BAD, DIM, GOOD, WARN, paint, width, wrapped};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Level {
    Ok,
    /// Worth knowing; nothing has to be done now.
    Note,
    /// Limits fail, are forgotten or are wrong.
    Problem,
}

impl Level {
    const fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Note => "note",
            Self::Problem => "problem",
        }
    }
}

/// One finding, and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Finding {
    pub(super) level: Level,
    /// What was examined, in one word.
    pub(super) check: &'static str,
    /// The server, where a store has several.
    pub(super) server: Option<String>,
    pub(super) message: String,
    /// A sentence, or a command to paste.
    pub(super) advice: Option<String>,
}

impl Finding {
    fn new(level: Level, check: &'static str, message: impl Into<String>) -> Self {
        Self { level, check, server: None, message: message.into(), advice: None }
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

    pub(super) fn show(&self, output: &mut Output) {
        let style = match self.level {
            Level::Ok => GOOD,
            Level::Note => WARN,
            Level::Problem => BAD,
        };
        let server = self.server.as_ref().map_or_else(String::new, |server| format!("{server}: "));
        let room = width().saturating_sub(25).max(30);
        let mut lines = wrapped(&format!("{server}{}", self.message), room).into_iter();
        let level = paint(style, &format!("{:<8}", self.level.name()));
        output.line(format!("  {level} {:<12} {}", self.check, lines.next().unwrap_or_default()));
        lines.for_each(|line| output.line(format!("{:24}{line}", "")));
        if let Some(advice) = &self.advice {
            // A command is not cut: it is there to be copied.
            let lines = if advice.contains("ACL SETUSER") { vec![advice.clone()] } else { wrapped(advice, room - 2) };
            for (index, line) in lines.iter().enumerate() {
                let mark = if index == 0 { paint(DIM, "→ ") } else { "  ".to_owned() };
                output.line(format!("{:24}{mark}{line}", ""));
            }
        }
    }

    pub(super) fn as_json(&self) -> Value {
        json!({
            "level": self.level.name(),
            "check": self.check,
            "server": self.server,
            "message": self.message,
            "advice": self.advice,
        })
    }
}
