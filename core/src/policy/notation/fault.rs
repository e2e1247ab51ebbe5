//! What is wrong in a notation, shown so that one sees it.

use crate::error::{Error, SourceLocation};

/// How much of a long word an error repeats.
const LONGEST_WORD: usize = 24;
/// How much of a long text an error shows on each side of the column.
const AROUND: usize = 36;

/// What is wrong in a text, and where.
#[derive(Debug)]
pub(in crate::policy) struct Fault {
    at: usize,
    what: String,
    expected: String,
    secret: bool,
}

impl Fault {
    pub(super) fn new(at: usize, what: impl Into<String>, expected: impl Into<String>) -> Self {
        Self { at, what: what.into(), expected: expected.into(), secret: false }
    }

    /// The same fault, of a text that is better not shown.
    pub(super) fn without_text(self) -> Self {
        Self { secret: true, ..self }
    }

    /// How many characters of the text stand before the fault.
    pub(in crate::policy) fn offset(&self, text: &str) -> usize {
        text.get(..self.at).map_or(0, |before| before.chars().count())
    }

    /// What was wrong; the text itself; a caret under the column; what was expected.
    pub(in crate::policy) fn message(&self, text: &str) -> String {
        let mut lines = vec![self.what.clone()];
        if !self.secret {
            let (excerpt, caret) = excerpt(text, self.offset(text));
            lines.push(format!("  {excerpt}"));
            lines.push(format!("  {}^", " ".repeat(caret)));
        }
        if !self.expected.is_empty() {
            lines.push(format!("expected {}", self.expected));
        }
        lines.join("\n")
    }

    pub(super) fn error(&self, text: &str) -> Error {
        Error::policy(self.message(text)).at(SourceLocation { file: None, line: 1, column: self.offset(text) + 1 })
    }
}

/// One printable line of a text around a character, and where that character stands in it.
fn excerpt(text: &str, offset: usize) -> (String, usize) {
    let from = if text.chars().count() > 2 * AROUND { offset.saturating_sub(AROUND) } else { 0 };
    let mut rest = text.chars().skip(from);
    let mut line = if from > 0 { String::from("…") } else { String::new() };
    let caret = offset - from + usize::from(from > 0);
    line.extend(rest.by_ref().take(offset - from + AROUND).map(printable));
    if rest.next().is_some() {
        line.push('…');
    }
    (line, caret)
}

/// Characters that would move the cursor or turn the line around would also move the caret away from its column.
pub(super) fn printable(c: char) -> char {
    match c {
        c if is_blank(c) => ' ',
        '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}' => '\u{fffd}',
        c if c.is_control() => '\u{fffd}',
        c => c,
    }
}

/// What Python's `\s` matches, because texts written for the `limits` package are read here.
pub(super) fn is_blank(c: char) -> bool {
    c.is_whitespace() || ('\u{1c}'..='\u{1f}').contains(&c)
}

/// A word as an error repeats it.
pub(in crate::policy) fn clip(word: &str) -> String {
    let mut clipped: String = word.chars().take(LONGEST_WORD).map(printable).collect();
    if clipped.len() < word.len() && word.chars().nth(LONGEST_WORD).is_some() {
        clipped.push('…');
    }
    clipped
}
