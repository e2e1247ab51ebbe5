//! An error in a notation, and its message.

use crate::error::{Error, SourceLocation};

/// The most characters of a long word that an error repeats.
const MAX_WORD: usize = 24;
/// The characters of a long text that an error shows on each side of the column.
const EXCERPT_RADIUS: usize = 36;

/// An error in a text, and its offset.
#[derive(Debug)]
pub(in crate::policy) struct SyntaxError {
    /// In bytes.
    offset: usize,
    what: String,
    expected: String,
    /// True if the message must not show the text, which may hold a password.
    secret: bool,
}

impl SyntaxError {
    pub(super) fn new(offset: usize, what: impl Into<String>, expected: impl Into<String>) -> Self {
        Self { offset, what: what.into(), expected: expected.into(), secret: false }
    }

    /// This error, without the text.
    pub(super) fn without_text(self) -> Self {
        Self { secret: true, ..self }
    }

    /// The column of the error, from 0: the number of characters before it.
    pub(in crate::policy) fn column(&self, text: &str) -> usize {
        text.get(..self.offset).map_or(0, |before| before.chars().count())
    }

    /// The error, then the text with a caret under the column, then the expected words.
    pub(in crate::policy) fn message(&self, text: &str) -> String {
        let mut lines = vec![self.what.clone()];
        if !self.secret {
            let (excerpt, caret) = excerpt(text, self.column(text));
            lines.push(format!("  {excerpt}"));
            lines.push(format!("  {}^", " ".repeat(caret)));
        }
        if !self.expected.is_empty() {
            lines.push(format!("expected {}", self.expected));
        }
        lines.join("\n")
    }

    /// The message for a text that must not be shown.
    #[cfg(feature = "files")]
    pub(in crate::policy) fn message_without(&self, text: &str) -> String {
        let expected = if self.expected.is_empty() { String::new() } else { format!("; expected {}", self.expected) };
        format!(
            "the value of an environment variable, which is not shown, makes a notation here that is wrong at its character \
             {}{expected}",
            self.column(text) + 1
        )
    }

    pub(super) fn to_error(&self, text: &str) -> Error {
        Error::policy(self.message(text)).at(SourceLocation { file: None, line: 1, column: self.column(text) + 1 })
    }
}

/// One printable line of a text around a character, and the column of that character in it.
fn excerpt(text: &str, offset: usize) -> (String, usize) {
    let from = if text.chars().count() > 2 * EXCERPT_RADIUS { offset.saturating_sub(EXCERPT_RADIUS) } else { 0 };
    let mut rest = text.chars().skip(from);
    let mut line = if from > 0 { String::from("…") } else { String::new() };
    let caret = offset - from + usize::from(from > 0);
    line.extend(rest.by_ref().take(offset - from + EXCERPT_RADIUS).map(printable));
    if rest.next().is_some() {
        line.push('…');
    }
    (line, caret)
}

/// Replaces characters that move the cursor or reverse the line, because they would separate the caret from its column.
pub(super) fn printable(c: char) -> char {
    match c {
        c if is_blank(c) => ' ',
        '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}' => '\u{fffd}',
        c if c.is_control() => '\u{fffd}',
        c => c,
    }
}

/// True for the characters of Python's `\s`, because this parser also reads texts for the `limits` package.
pub(super) fn is_blank(c: char) -> bool {
    c.is_whitespace() || ('\u{1c}'..='\u{1f}').contains(&c)
}

/// A word for an error: printable, and not too long.
pub(in crate::policy) fn clip(word: &str) -> String {
    let mut clipped: String = word.chars().take(MAX_WORD).map(printable).collect();
    if clipped.len() < word.len() && word.chars().nth(MAX_WORD).is_some() {
        clipped.push('…');
    }
    clipped
}
