//! Colours and width of the terminal.

use std::ffi::OsString;
use std::io::{self, IsTerminal};

use anstream::ColorChoice;
use anstyle::{AnsiColor, Style};
use terminal_size::{Height, Width, terminal_size};
use tidegate_simulate::text::{columns_of, escaped};

pub(crate) const GOOD: Style = AnsiColor::Green.on_default();
pub(crate) const BAD: Style = AnsiColor::Red.on_default();
pub(crate) const WARN: Style = AnsiColor::Yellow.on_default();
pub(crate) const NAME: Style = AnsiColor::Cyan.on_default();
pub(crate) const BOLD: Style = Style::new().bold();
pub(crate) const DIM: Style = Style::new().dimmed();

/// The width if the output is no terminal, and the largest width of text and pictures.
const DEFAULT_WIDTH: usize = 80;
const MAX_WIDTH: usize = 120;
const DEFAULT_HEIGHT: usize = 24;

/// Finds `--color` before the arguments are parsed, because help and errors are coloured, too.
pub(crate) fn colours_of(arguments: &[OsString]) -> ColorChoice {
    let mut texts = arguments.iter().filter_map(|argument| argument.to_str());
    while let Some(text) = texts.next() {
        let value = if text == "--color" { texts.next() } else { text.strip_prefix("--color=") };
        match value {
            Some("always") => return ColorChoice::Always,
            Some("never") => return ColorChoice::Never,
            _ if text == "--" => break,
            _ => {}
        }
    }
    ColorChoice::Auto
}

/// A text in a style. The text may come from others. The output drops the codes if there are no colours.
pub(crate) fn paint(style: Style, text: &str) -> String {
    format!("{style}{}{style:#}", escaped(text))
}

/// Escapes each line of a message.
pub(crate) fn escaped_lines(message: &str) -> String {
    message.split('\n').map(escaped).collect::<Vec<_>>().join("\n")
}

/// True if standard output is a terminal.
pub(crate) fn is_interactive() -> bool {
    io::stdout().is_terminal()
}

/// The size of standard output, if that is a terminal.
fn size() -> Option<(Width, Height)> {
    is_interactive().then(terminal_size).flatten()
}

/// The columns of standard output.
pub(crate) fn width() -> usize {
    let columns = size().map(|(width, _)| usize::from(width.0));
    columns.unwrap_or(DEFAULT_WIDTH).clamp(40, MAX_WIDTH)
}

/// The rows of standard output.
pub(crate) fn screen_rows() -> usize {
    let rows = size().map(|(_, height)| usize::from(height.0));
    rows.unwrap_or(DEFAULT_HEIGHT).max(4) - 1
}

/// A bar of `columns` columns, filled by a share from 0 to 1.
pub(crate) fn bar(share: f64, columns: usize) -> String {
    let filled = (share.clamp(0.0, 1.0) * columns as f64).round() as usize;
    // A small share is never shown as empty, and a share below 1 never as full.
    let filled = match filled {
        0 if share > 0.0 => 1,
        all if all == columns && share < 1.0 => columns - 1,
        other => other,
    };
    format!("{}{}", "█".repeat(filled), "░".repeat(columns - filled))
}

/// Cuts a text at blanks into lines of at most `columns` columns.
pub(crate) fn wrapped(text: &str, columns: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let last = lines.last_mut().expect("there is one");
        if last.is_empty() {
            last.push_str(word);
        } else if columns_of(last) + 1 + columns_of(word) <= columns {
            last.push(' ');
            last.push_str(word);
        } else {
            lines.push(word.to_owned());
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_shows_little_as_something_and_nearly_all_as_not_all() {
        assert_eq!(bar(0.0, 4), "░░░░");
        assert_eq!(bar(0.001, 4), "█░░░");
        assert_eq!(bar(0.5, 4), "██░░");
        assert_eq!(bar(0.999, 4), "███░");
        assert_eq!(bar(1.0, 4), "████");
        assert_eq!(bar(7.0, 4), "████");
    }

    #[test]
    fn text_is_cut_at_blanks() {
        assert_eq!(wrapped("one two three", 7), ["one two", "three"]);
        assert_eq!(wrapped("", 7), [""]);
    }
}
